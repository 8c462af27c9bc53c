"""An exported package: complete, the same each time, installed without this project, right by its own tests."""

import csv
import hashlib
import io
import json
import subprocess
import sys
import tomllib
import zipfile
from base64 import urlsafe_b64encode
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gated_record import A100, CONFIG, H100, SPLIT, run_fresh

from kernelsearch.core.tree_walk import choose
from kernelsearch.core.types import Evidence
from kernelsearch.export import tables
from kernelsearch.kernel.source import Kernel

MAX_WHEEL = 200_000


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
            and "__pycache__" not in p.parts}  # fmt: skip


def test_the_same_database_and_options_give_the_same_bytes(package, exported):
    again = exported(name="fast-gated")
    first, second = tree(package[0].out), tree(again.out)
    assert first == second and len(first) > 15
    assert package[0].wheel.stat().st_size <= MAX_WHEEL


@pytest.mark.slow
def test_the_wheel_is_one_that_pip_takes_and_needs_no_kernelsearch(package, tmp_path):
    done = package[0]
    with zipfile.ZipFile(done.wheel) as archive:
        names = archive.namelist()
        assert {i.date_time for i in archive.infolist()} == {(2020, 2, 2, 0, 0, 0)}  # hatchling's own
        record = next(n for n in names if n.endswith("RECORD"))
        rows = {r[0]: r[1] for r in csv.reader(io.StringIO(archive.read(record).decode()))}
        for name in names:
            digest = urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
            assert name == record or rows[name] == f"sha256={digest}"
        assert set(rows) == set(names)
    pip = [sys.executable, *"-m pip install -q --no-deps --no-index --target".split(), tmp_path, done.wheel]
    subprocess.run(pip, check=True, capture_output=True)
    ran = run_fresh(
        "import sys; sys.modules['kernelsearch'] = None\n"
        "import fast_gated, torch\nx, g = torch.randn(9, 5), torch.randn(5, 9)\n"
        "torch.testing.assert_close(fast_gated.gated_sum(x, g), (x * g.t()).sum(0) + 1.5)\n"
        "print(fast_gated.__version__, fast_gated.explain('gated_sum', x, g, True))", tmp_path,
    )  # fmt: skip
    assert ran.stdout == "0.1.0 reference: nothing was verified on cpu\n", ran.stderr


def test_metadata_agrees_in_pyproject_and_wheel(package):
    files = tree(package[0].out)
    project = tomllib.loads(files["pyproject.toml"].decode())["project"]
    with zipfile.ZipFile(package[0].wheel) as archive:
        metadata = archive.read("fast_gated-0.1.0.dist-info/METADATA").decode()
    assert project["name"] == "fast-gated" and "Name: fast-gated\n" in metadata
    assert project["license"] == "LicenseRef-Unstated AND MIT"  # nothing is granted of the user's file unasked
    assert "License-Expression: LicenseRef-Unstated AND MIT\n" in metadata and "LICENSE" not in files
    assert all(f"Requires-Dist: {d}\n" in metadata for d in project["dependencies"])
    assert "fast_gated/py.typed" in files
    ours = (Path(__file__).parents[2] / "LICENSE").read_text()  # of what is copied into the package
    assert files["LICENSE-kernelsearch"].decode().split() == ours.split()
    assert metadata.count("License-File: LICENSE") == 1
    held = (
        "gated_sum, reference, the kernels and what they use of gated_sum.py: under no licence, so nobody may share it"
    )
    assert held in files["README.md"].decode()


def test_the_readme_says_the_confirmed_numbers_and_how_they_were_obtained(package):
    readme = (package[0].out / "README.md").read_text()
    assert "| rows=256 cols=64 | 5.0 us | 2.000x [1.990, 2.010] | max-autotune | 2.000x [1.990, 2.010] | `" in readme
    assert f"| `{Kernel.parse(SPLIT).digest[:8]}`, BLOCK_C=32 BLOCK_R=16 SPLIT=4 num_warps=2 |" in readme
    assert "`gated_sum`: Sums" in readme
    for said in ("A B B A", "SM 1980 MHz", "torch 2.11", "A/A spread 0.20%", "NVIDIA H100 80GB HBM3, **confirmed**"):
        assert said in readme
    assert "Not confirmed" not in readme


def test_a_claim_can_be_traced_to_its_row(package):
    found = package[1].evidence()["tasks"]["gated_sum"]
    kernel = next(k for k in found["kernels"] if k["config"] == CONFIG)
    assert kernel["row"] == {"database": "found.db", "run": 1, "trial": 1, "run_name": kernel["row"]["run_name"]}
    assert kernel["verdict"]["verdict"] == "accept" and kernel["evidence"] == "confirmed" and kernel["device"] == H100
    assert kernel["finding"]["shapes"][0]["clocks"]["sm_mhz"] == 1980.0 and kernel["versions"] == {"torch": "2.11"}
    assert [a["edit"] for a in kernel["lineage"]] == [None, "split_reduction"]


def test_kernels_carry_their_provenance_and_stay_readable(package):
    text = next((package[0].out / "fast_gated" / "_gated_sum").glob("kernel_*.py")).read_text()
    assert "run 1 (gated_sum evolve seed 0" in text and "trial 1, of found.db" in text and "split_reduction" in text
    assert "@triton.jit\ndef part_kernel(" in text and "eval" not in text
    task = (package[0].out / "fast_gated" / "_gated_sum" / "task.py").read_text()
    assert "# What it launches is counted by nobody." in task and "numpy" not in task and "@triton.jit" not in task
    assert task.startswith('# SPDX-License-Identifier: Apache-2.0\n# Copyright of its owner\n"""The launcher')


def test_the_table_dispatches_by_a_tree(package):
    dispatch = package[1]._dispatch
    table = dispatch.TASKS["gated_sum"].tables[H100]
    entries = table.entries
    assert [e.label for e in entries] == ["rows=256 cols=64", "rows=64 cols=128"]
    assert entries[0].config == CONFIG and entries[1].config["SPLIT"] == 4  # each shape has what was best there
    assert table.trees == {"float32 float32 None": {"size": "x.shape[0]", "at_most": 128.0, "then": "1", "else": "0"}}
    for rows, wanted in ((200, 0), (32, 1), (1, 1), (128, 1), (129, 0)):
        sizes = {"x.shape[0]": rows, "x.shape[1]": 50, "weight.shape[0]": 50, "bias.shape[0]": rows}
        assert table.find(sizes, ("float32", "float32", None)) is entries[wanted]


def test_where_a_config_was_left_out_as_too_large_another_runs_at_larger_sizes(package):
    """Sizes within the range of each axis that no timed shape has together, as 256 rows of 128."""
    (part,) = package[0].parts
    chosen = {**part.chosen.devices[H100]}
    small = chosen["timed:0"]
    for times, wanted in ((small.times, "0"), ({"timed:0": small.times["timed:0"]}, "1")):
        chosen["timed:0"] = replace(small, times=times)
        own = replace(part, chosen=replace(part.chosen, devices={H100: {**chosen}}))
        (tree,) = tables.fit_trees(own, H100).values()
        sizes = {"x.shape[0]": 256.0, "weight.shape[0]": 64.0, "bias.shape[0]": 256.0}
        assert choose(tree, {**sizes, "x.shape[1]": 64.0}) == "0"
        assert choose(tree, {**sizes, "x.shape[1]": 128.0, "weight.shape[0]": 128.0}) == wanted


def test_dtypes_that_no_timed_shape_has_go_by_the_sizes_of_all(package):
    """Where they were judged: one rule for all, and none looks for the nearest shape."""
    (part,) = package[0].parts
    number = part.examined.keys.index("test:0")
    first, *rest = part.examined.inputs
    values = [replace(v, dtype="float16") if n == number else v for n, v in enumerate(first.values)]
    inputs = (replace(first, values=tuple(values)), *rest)
    part = replace(part, examined=replace(part.examined, inputs=inputs))
    trees = tables.fit_trees(part, H100)
    assert trees["float16 float32 None"] == trees["float32 float32 None"] and len(trees) == 2


def gpu(dispatch, *inputs):
    """What the package chooses for such inputs on an H100; they are fake."""
    dispatch._NAMES[torch.device("cuda", 0)] = H100
    return dispatch.TASKS["gated_sum"].choose(inputs)


def fake(*shape, dtype=torch.float32, stride=None):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty_strided(shape, stride, dtype=dtype, device="cuda:0") if stride else torch.empty(
            shape, dtype=dtype, device="cuda:0")  # fmt: skip


def test_only_what_was_verified_runs_a_kernel(package):
    dispatch = package[1]._dispatch
    assert gpu(dispatch, fake(100, 60), fake(60, 100), True).entry is not None
    refused = {
        "size 300 of x's axis 0": (fake(300, 60), fake(60, 300), True),
        "layout is axes 1 0": (fake(100, 60, stride=(1, 100)), fake(60, 100), True),
        "layout is rows with gaps": (fake(100, 60, stride=(64, 1)), fake(60, 100), True),
        "dtypes (bfloat16, float32": (fake(100, 60, dtype=torch.bfloat16), fake(60, 100), True),
        "twice=False was not judged": (fake(100, 60), fake(60, 100), False),
        "x has 3 axes": (fake(2, 50, 60), fake(60, 100), True),
        "nothing was verified on cpu": (torch.empty(100, 60), torch.empty(60, 100), True),
    }
    for said, inputs in refused.items():
        choice = gpu(dispatch, *inputs)
        assert choice.entry is None and said in choice.reason, (said, choice.reason)
    dispatch._NAMES[torch.device("cuda", 0)] = A100
    assert (
        "nothing was verified on NVIDIA A100"
        in dispatch.TASKS["gated_sum"].choose((fake(9, 5), fake(5, 9), True)).reason
    )


@pytest.mark.slow
def test_its_own_tests_pass_and_its_benchmark_asks_for_a_gpu(package):
    out = package[0].out
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "fast_gated", "--rootdir", str(out)]
    ran = subprocess.run(command, cwd=out, capture_output=True, text=True)
    assert ran.returncode == 0 and "passed" in ran.stdout, ran.stdout[-3000:]
    bench = subprocess.run([sys.executable, "-m", "fast_gated.benchmark"], cwd=out, capture_output=True, text=True)
    assert torch.cuda.is_available() or (bench.returncode == 2 and "no CUDA device" in bench.stderr)


def test_what_is_not_confirmed_says_so_everywhere(exported, database):
    weak = database(evidence=Evidence.ESTIMATED, confirmed=False, device="h100")
    done = exported(name="weak-sum", dbs=(str(weak),), evidence=Evidence.ESTIMATED)
    files = {name: data.decode() for name, data in tree(done.out).items() if not name.endswith(".whl")}
    assert "**Not confirmed.**" in files["README.md"] and "us | 2.00x |" in files["README.md"]
    assert (
        "NOT CONFIRMED" in files["weak_sum/_gated_sum/__init__.py"] and "Not confirmed" in files["weak_sum/__init__.py"]
    )
    kernels = json.loads(files["weak_sum/evidence.json"])["tasks"]["gated_sum"]["kernels"]
    assert {k["evidence"] for k in kernels} == {"estimated"}


def test_several_databases_are_merged_into_one_package(exported, confirmed_db, database):
    other = database(device=A100, times=(4.0, 9.0))
    done = exported(name="both-sums", dbs=(str(confirmed_db), str(other)))
    tables = sorted(p.name for p in (done.out / "both_sums" / "configs").iterdir())
    assert tables == [f"gated_sum,device_name={d.replace(' ', '_')}.json" for d in (A100, H100)]


def test_configs_alone(exported):
    done = exported(format="configs")
    assert done.wheel is None and len(done.files) == 2
    table = json.loads((done.out / f"gated_sum,device_name={H100.replace(' ', '_')}.json").read_text())
    assert table["entries"][0]["sizes"] == [256, 64, 64, 256] and table["entries"][0]["vs_fastest"]["ratio"] == 2.0
