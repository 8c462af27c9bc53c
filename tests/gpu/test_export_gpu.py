"""On a GPU: a confirmed kernel, exported, installed apart from this project: its tests, its benchmark, its costs."""

import json
import os
import subprocess
import sys

import pytest
import torch
from click.testing import CliRunner

from kernelsearch.cli import main
from kernelsearch.tasks import shipped

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

FIRST_CALL_US = 1000.0
DISPATCH_US = 5.0


@pytest.fixture(scope="module", params=["column_sum", "softmax"])
def installed(request, tmp_path_factory):
    """(The task's name, a folder with the wheel installed) after a search with confirmation."""
    folder = tmp_path_factory.mktemp("export")
    (folder / f"{request.param}.py").write_text(shipped.text(request.param))
    database = str(folder / "found.db")
    search = ["optimize", str(folder / f"{request.param}.py"), "--trials", "60", "--db", database, "--quiet"]
    done = CliRunner().invoke(main, search)
    assert done.exit_code == 0, done.output
    package = [
        "export",
        "--task",
        request.param,
        "--db",
        database,
        "--out",
        str(folder / "out"),
        "--name",
        "fast-found",
    ]
    done = CliRunner().invoke(main, [*package, "--json"])
    if done.exit_code == 2 and "no confirmed kernel" in done.stderr:
        pytest.skip("this search found nothing to confirm")
    assert done.exit_code == 0, done.output
    wheel = json.loads(done.stdout)["wheel"]
    site = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site), wheel]
    subprocess.run(pip, check=True)
    return request.param, site


def ran(site, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    return subprocess.run([sys.executable, *arguments], env=environment, cwd=site, capture_output=True, text=True)


def test_its_own_tests_pass(installed):
    _, site = installed
    done = ran(site, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "fast_found")
    assert done.returncode == 0, done.stdout[-4000:]


def test_its_benchmark_reproduces_the_claims_and_dispatch_is_cheap(installed):
    name, site = installed
    done = ran(site, "-m", "fast_found.benchmark", "--json")
    told = json.loads(done.stdout)
    print(done.stdout)
    for shape in told["shapes"]:
        assert shape["runs"].startswith("kernel "), shape
        assert shape["verdict"] in ("reproduced", "faster than claimed"), shape
    assert told["dispatch"][name]["overhead_us"] <= DISPATCH_US
    assert told["dispatch"][name]["first_call_us"] <= FIRST_CALL_US
