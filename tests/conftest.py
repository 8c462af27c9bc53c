"""One hypothesis profile for the whole suite, and the command line on workers that live as long as the test session.

A command starts workers of its own, which import torch for seconds. In this process all pools of benches fork their
workers from nurseries that are kept, and `run` calls a command here; tests about a command's own process start one.
"""

import gc
import json
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pytest
from hypothesis import settings

settings.register_profile("kernelsearch", deadline=None, database=None)
settings.load_profile("kernelsearch")
gc.set_threshold(50_000)  # the usual one takes an eighth of all tests' time
os.environ.setdefault("OMP_NUM_THREADS", "1")  # each core has a test: more threads of torch only wait for one another


TURNS = 10
"""Of the slow tests a run with --turn runs those of one turn of so many: CI takes the turns, a commit each."""


def pytest_addoption(parser):
    parser.addoption("--turn", type=int, help=f"of tests marked slow, only those of this turn (modulo {TURNS})")


def pytest_collection_modifyitems(config, items):
    """Leaves out the slow tests of other turns. A test's turn comes from its name: others do not change it."""
    turn = config.getoption("--turn")
    if turn is not None:
        late = {i for i in items if i.get_closest_marker("slow") and (crc32(i.nodeid.encode()) - turn) % TURNS}
        items[:] = [i for i in items if i not in late]
        config.hook.pytest_deselected(items=[*late])


def pytest_collection_finish():
    """Keeps the collector from the objects of a thousand imported modules, which took a tenth of all tests' time."""
    gc.freeze()


@dataclass(frozen=True)
class Done:
    """How a command ended: its exit code, and what it wrote to stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        assert self.out.strip(), f"exit code {self.code}, nothing on stdout, and on stderr: {self.err}"
        return json.loads(self.out)


class Borrowed(AbstractContextManager):
    """A run's workplace whose workers are forked from somebody else's nurseries."""

    def __init__(self, nurseries, readable=()):
        from kernelsearch.worker.processes.pool import Pool

        self.make, self.nurseries, self.readable, self.pools = Pool, nurseries, readable, []
        self.cache = nurseries.place.cache

    def pool(self, role, size, *, fork=True):
        self.pools.append(self.make(self.nurseries.source(role, fork), size))
        return self.pools[-1]

    def close(self):
        for pool in self.pools:
            pool.source = SimpleNamespace(role=pool.source.role, close=lambda: None)
            pool.close()

    def __exit__(self, *_):
        self.close()


class Nurseries:
    """The sources of workers by role, kept for as long as their workplace."""

    def __init__(self, place):
        self.place, self.kept = place, {}

    def source(self, role, fork):
        if role not in self.kept:
            self.kept[role] = self.place.pool(role, 0, fork=fork).source
        return self.kept[role]


@pytest.fixture(scope="session")
def nurseries(tmp_path_factory):
    """Sources of workers; the workers may read the session's temporary files and the checkout."""
    from kernelsearch.worker.processes.pool import Workplace

    readable = (str(tmp_path_factory.getbasetemp().resolve()), str(Path(__file__).resolve().parents[1]))
    with Workplace(readable) as place:
        yield Nurseries(place)


@pytest.fixture(scope="session", autouse=True)
def borrowing(nurseries):
    """Every Bench in this process, and what writes first kernels, forks its workers from the kept nurseries."""
    from kernelsearch.search import first_kernel
    from kernelsearch.trial import bench

    with pytest.MonkeyPatch.context() as patch:
        for module in (bench, first_kernel):
            patch.setattr(module, "Workplace", lambda readable=(): Borrowed(nurseries, readable))
        yield


@pytest.fixture
def run(borrowing, tmp_path, monkeypatch):
    """`run("optimize", "task.py", ...)`: a command of the command line, in a folder of its own."""
    from click.testing import CliRunner

    from kernelsearch.cli import main

    monkeypatch.chdir(tmp_path)

    def run(*args):
        result = CliRunner().invoke(main, [str(a) for a in args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    return run
