"""Roles that need torch are forked from one process that has imported it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelsearch.worker.processes.pool import Workplace


def parent_of(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def pid_of(pool):
    with pool.lease() as worker:
        return worker.pid


def gone(process, within=20.0):
    end = time.monotonic() + within
    while Path(f"/proc/{process}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    return not Path(f"/proc/{process}").exists()


@pytest.mark.slow
def test_torch_is_imported_once_whatever_is_killed():
    with Workplace() as place:
        judges, served = place.pool("judge", 1), place.pool("evaluate", 1, fork=False)
        pid_of(judges)
        trunk = parent_of(judges.source.nursery_pid)
        server = pid_of(served)
        assert parent_of(server) == trunk
        os.kill(trunk, signal.SIGKILL)
        assert gone(server)
        first = pid_of(judges)
        assert parent_of(first) == judges.source.nursery_pid  # a nursery outlives the trunk
        os.kill(judges.source.nursery_pid, signal.SIGKILL)
        os.kill(judges.source.standby_pid, signal.SIGKILL)
        assert gone(first) and pid_of(judges) != first
        assert parent_of(pid_of(served)) == parent_of(judges.source.nursery_pid) != trunk


def test_triton_is_imported_after_the_fork():
    """Each role imports it by itself, with its own environment: what interprets kernels, and what does not."""
    code = "import sys; from torch.fx.experimental import symbolic_shapes; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
