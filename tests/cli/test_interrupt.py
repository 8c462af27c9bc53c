"""Ctrl-C: the rows in flight are finished, the best is printed, the way on is said, and --resume goes it.

The exit code is 0: what was asked for until then is done and stored (a second Ctrl-C drops what is in flight and
gives 0 too).
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelsearch.core.errors import StoreError
from kernelsearch.core.interrupts import FINISHING
from kernelsearch.record.store import Store

LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
"""A shell's background jobs ignore the signal, and what they start does too."""
COMMAND = [sys.executable, "-c", f"{LISTEN}; from kernelsearch.cli import main; main()", "optimize"]


def started(folder, *options, task="softmax.py"):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, task, *options], cwd=folder, **pipes)


def stored(folder):
    database = folder / "kernelsearch.db"
    if not database.exists():
        return []
    try:
        with Store.open(str(database), write=False) as store:
            return [t for r in store.load_runs() for t in store.load_trials(r.id)]
    except StoreError:  # its writer is still making the tables
        return []


def said(lines):
    """The lines without those that say every few seconds what takes long, which a busy machine has anywhere."""
    return (line for line in lines if "s so far" not in line)


@pytest.mark.slow
def test_interrupt_then_resume(run, tmp_path):
    assert run("new", "softmax").code == 0
    # one small timed shape and one test shape: what is tested is the stopping
    text = Path("softmax.py").read_text()
    text = re.sub(r"(?s)\nSHAPES = \[.*?\n\]", "\nSHAPES = [dict(rows=64, cols=96, dtype=torch.float32)]", text)
    text = re.sub(r"TEST_SHAPES = .*", "TEST_SHAPES = [dict(rows=3, cols=50)]", text)
    Path("softmax.py").write_text(text)

    process = started(tmp_path, "--trials", "500", "--window", "2")
    end = time.monotonic() + 300  # on a busy machine
    while len(stored(tmp_path)) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and err.count(FINISHING) == 1, err
    done = stored(tmp_path)
    assert 2 <= len(done) < 500 and [t.number for t in done] == list(range(len(done)))
    assert f"interrupted after {len(done)} of 500 trials; all of them are stored" in out
    assert "Traceback" not in err and ("best:" in out or "nothing was gained" in out)
    (again,) = re.findall(r"go on with: (.*)", out)
    assert shlex.split(again)[:3] == ["kernelsearch", "optimize", "softmax.py"]

    more = len(done) + 2
    resumed = run(*shlex.split(again.replace("--trials 500", f"--trials {more}"))[1:], "--json", "--quiet")
    assert resumed.code == 0 and resumed.json["trials"] == more, resumed.err
    assert resumed.json["run"] == 1 and not resumed.json["interrupted"]
    after = stored(tmp_path)
    assert after[: len(done)] == done and len(after) == more


@pytest.mark.slow
def test_a_second_interrupt_ends_it_at_once(run, tmp_path):
    run("new", "softmax")
    process = started(tmp_path, "--trials", "500")
    end = time.monotonic() + 300  # on a busy machine
    while not stored(tmp_path) and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert any(FINISHING in line for line in process.stderr)  # said before anything is finished
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "Traceback" not in err, err
    assert "interrupted after" in out
    assert stored(tmp_path) and not os.path.exists(tmp_path / "kernelsearch.db-lock")


@pytest.mark.slow
def test_an_interrupt_while_the_seed_is_written_is_one_line(tmp_path):
    """There is nothing to keep yet."""
    slow = "import time\nimport torch\n\ndef reference(x):\n    time.sleep(60)\n    return x * 2\n\n"
    (tmp_path / "slow.py").write_text(slow + "def get_inputs(n=64):\n    return [torch.randn(n)]\n")
    process = started(tmp_path, task="slow.py")
    assert next(said(process.stderr)) == "slow.py has no kernel: TorchInductor writes a first one\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, [*said(err.splitlines())]) == (130, "", ["kernelsearch: interrupted"])
    assert not (tmp_path / "slow_seeded.py").exists()
