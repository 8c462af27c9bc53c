"""`kernelsearch import`, as a user of another tuner meets it."""

import json
import math
from types import SimpleNamespace

import pytest

from kernelsearch.cli import run_import
from kernelsearch.core.errors import KernelsearchError
from kernelsearch.kernel.source import Kernel
from kernelsearch.record import recorded_space
from kernelsearch.record.exchange import tuner_files

TRITON = {"key": [1], "configs_timings": [
    [{"kwargs": {}, "num_warps": 16, "num_stages": 1}, [0.01]],
    [{"kwargs": {}, "num_warps": 2, "num_stages": 1}, [0.02]]]}  # fmt: skip


@pytest.fixture
def cache(tmp_path):
    path = tmp_path / "softmax_kernel.autotune.json"
    path.write_text(json.dumps(TRITON))
    return path


def test_tritons_cache_becomes_a_space(run, cache, tmp_path):
    done = run("import", cache, "--out", tmp_path / "s.json")
    assert done.code == 0 and "2 configs" in done.out and "simulate" in done.out
    assert recorded_space.read(tmp_path / "s.json").optimum_us == 10
    again = run("import", cache, "--out", tmp_path / "s.json")
    assert again.code == 2 and "--force" in again.err


def test_its_best_config_becomes_a_kernel_of_the_task(run, cache, tmp_path):
    assert run("new", "softmax").code == 0
    done = run("import", cache, "--task", "softmax.py")
    assert done.code == 0 and "'num_warps': 16" in done.out and "best of 2 configs" in done.out
    assert done.out.count("@triton.jit") == 1
    done = run("import", cache, "--task", "softmax.py", "--out", "missing/kernel.py")
    assert done.code == 2 and "missing/kernel.py cannot be written" in done.err


def test_helions_block_sizes_are_given_in_order(run, tmp_path):
    assert run("new", "matmul").code == 0
    (tmp_path / "h.json").write_text(json.dumps({"block_sizes": [128, 256, 64], "num_warps": 8, "num_stages": 3}))
    done = run("import", tmp_path / "h.json", "--task", "matmul.py")
    assert done.code == 0, done.err
    assert "block sizes were given to BLOCK_M, BLOCK_N, BLOCK_K in this order" in done.out


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_any_other_file_is_one_line(run, tmp_path, text):
    (tmp_path / "odd.json").write_text(text)
    done = run("import", "odd.json")
    assert done.code == 2 and len(done.err.strip().splitlines()) == 1


ODD = [None, [], {}, "x", -1, 0, 1e999, math.nan, True, 10**400, [[]], [None], {"a": {}}]
HELION = {"block_sizes": [64], "num_warps": 4, "num_stages": 2}
KERNEL_TUNER = {"tune_params_keys": ["BLOCK"], "kernel_name": "k", "cache": {
    "1": {"BLOCK": 1, "time": 0.1, "times": [0.1]}, "2": {"BLOCK": 2, "time": "InvalidConfig"}}}  # fmt: skip


def places(value, above=()):
    """The places of a JSON value, each as the names and numbers that lead to it."""
    yield above
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        yield from places(inner, (*above, name))


def put(value, place, new):
    """The JSON value with another one at a place."""
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = put(value[place[0]], place[1:], new)
    return copy


@pytest.mark.parametrize("form", ["triton", "t4", "kernel_tuner", "helion"])
def test_any_odd_value_anywhere_is_one_sentence_or_a_space_with_times(form, tmp_path):
    seed = Kernel.parse("@triton.jit\ndef k(x, BLOCK: tl.constexpr): pass\n")
    facts = SimpleNamespace(space={"BLOCK": (1, 2), "num_warps": (2, 4)}, config={}, sites=("k",))
    plain = {"triton": TRITON, "kernel_tuner": KERNEL_TUNER, "helion": HELION}
    whole = plain[form] if form in plain else json.loads(t4((seed.digest, {"num_warps": 2}, 0.1)))
    path = tmp_path / "odd.json"
    for place in places(whole):
        for odd in ODD:
            path.write_text(json.dumps(put(whole, place, odd)))
            try:
                space = tuner_files.read(path)
                assert all(0 < r.time_us < math.inf for r in space.rows if r.time_us is not None), (place, odd)
            except KernelsearchError as error:
                assert "\n" not in str(error), (place, odd)
            try:
                run_import._best_config(path, facts, seed)
            except KernelsearchError as error:
                assert "\n" not in str(error), (place, odd)


def t4(*kernels):
    """T4 results as `trials` writes them: each kernel with parameters of its own."""
    results = [
        {"configuration": {"kernel": digest, **config}, "objectives": ["time"], "times": {"runtimes": [time]},
         "invalidity": "correct", "correctness": 1, "measurements": [{"name": "time", "value": time, "unit": "ms"}]}
        for digest, config, time in kernels
    ]  # fmt: skip
    return json.dumps({"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}, "results": results})


def test_of_several_kernels_in_t4_results_only_the_tasks_own_gives_its_config(run, tmp_path):
    """The fastest config is another kernel's, with a parameter that the task's own does not have."""
    assert run("new", "softmax").code == 0
    run("optimize", "softmax.py", "--trials", 1, "--quiet", "--shape", 0)
    (seed,) = {line.split(",")[3] for line in run("trials").out.splitlines()[1:]}
    other = "f" * 16
    others = ((other, {"num_warps": 2, "SPLIT": 4}, 0.1), (other, {"num_warps": 4, "SPLIT": 4}, 0.2))
    both = ((seed, {"num_warps": 8}, 0.3), *others)
    (tmp_path / "both.json").write_text(t4(*both))
    done = run("import", "both.json", "--task", "softmax.py")
    assert done.code == 0 and "best of 1 configs" in done.out and "'num_warps': 8" in done.out
    done = run("import", "both.json")
    assert done.code == 0 and "of the 2 kernels" in done.err and other[:8] in done.err
    space = recorded_space.read(tmp_path / "both.space.json")
    assert set(space.parameters) == {"num_warps", "SPLIT"} and space.optimum_us == 100
    (tmp_path / "found.json").write_text(t4(*others))
    done = run("import", "found.json", "--task", "softmax.py")
    assert done.code == 2 and "no config of the task's own kernel" in done.err
