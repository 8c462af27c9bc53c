"""Builds go to other nodes when all own compile workers are busy, and come back when they are lost there."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from kernelsearch.cluster import compilers
from kernelsearch.cluster.compilers import SharedCompilers
from kernelsearch.worker.processes.workers import WorkerHung


def test_builds_beyond_the_own_workers_go_elsewhere_and_come_back_when_lost(monkeypatch):
    hold, asked = threading.Event(), []

    def ask_own(job, timeout):
        asked.append(job)
        hold.wait(10)
        return f"{job} here"

    def ask_cluster(job, timeout):
        if job == "hangs":
            raise WorkerHung("no answer within 20 s")
        return None if job == "lost" else f"{job} there"

    monkeypatch.setattr(compilers, "ask_cluster", ask_cluster)
    own = SimpleNamespace(ask=ask_own, size=2, source=SimpleNamespace(role="compile"))
    shared = SharedCompilers(own, 3, (("landlock", "no kernel support, on b"),))
    assert shared.size == 5 and shared.source.role == "compile"
    with ThreadPoolExecutor(4) as pool:
        busy = [pool.submit(shared.ask, n, 20.0) for n in range(2)]
        while len(asked) < 2:
            pass
        assert shared.ask("third", 20.0) == "third there"
        with pytest.raises(WorkerHung, match="within 20 s"):
            shared.ask("hangs", 20.0)
        lost = pool.submit(shared.ask, "lost", 20.0)
        hold.set()
        assert lost.result(10) == "lost here" and [b.result(10) for b in busy] == ["0 here", "1 here"]
    assert shared.ask("later", 20.0) == "later here"
