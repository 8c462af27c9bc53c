"""Turns on a GPU, between threads, between objects and between processes."""

import subprocess
import sys
import threading
import time

from kernelsearch.measure.timing import turns
from kernelsearch.measure.timing.turns import WAITING, GpuTurn

HOLD = """
import sys
from pathlib import Path
from kernelsearch.measure.timing.turns import GpuTurn

with GpuTurn(file=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_process_is_waited_for_and_lets_go_when_it_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("kernelsearch.core.slow_steps.FIRST_S", 0.05)
    file = tmp_path / "gpu.lock"
    command = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        said, taken = [], threading.Event()

        def take():
            with GpuTurn(said.append, file):
                taken.set()

        waiting = threading.Thread(target=take)
        waiting.start()
        assert not taken.wait(0.3)
        other.kill()
        waiting.join(30.0)
    assert taken.is_set()
    assert said and said[0].startswith(WAITING)


def test_waits_in_a_row_are_said_once_a_minute(tmp_path, monkeypatch):
    """Two searches on one GPU wait for each other at every step."""
    monkeypatch.setattr("kernelsearch.core.slow_steps.FIRST_S", 0.02)
    said, file = [], tmp_path / "gpu.lock"
    turn, pipes = GpuTurn(said.append, file), {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    for again_s, times in ((60.0, 1), (60.0, 1), (0.0, 2)):
        monkeypatch.setattr(turns, "AGAIN_S", again_s)
        with subprocess.Popen([sys.executable, "-c", HOLD, str(file)], **pipes) as other:
            assert other.stdout.readline() == "held\n"
            waiting = threading.Thread(target=turn.__enter__)
            waiting.start()
            end = time.monotonic() + 30.0
            while len(said) < times and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(0.2)  # for one that must not come
            assert waiting.is_alive()
            other.kill()
            waiting.join(30.0)
        turn.__exit__()
        assert len(said) == times


def test_benches_of_one_process_wait_for_each_other_even_without_a_file(tmp_path):
    for file in (tmp_path / "gpu.lock", tmp_path / "no folder" / "gpu.lock"):
        taken = threading.Event()
        with GpuTurn(file=file):
            waiting = threading.Thread(target=take_once, args=(file, taken))
            waiting.start()
            assert not taken.wait(0.1)
        waiting.join(30.0)
        assert taken.is_set()


def take_once(file, taken):
    with GpuTurn(file=file):
        taken.set()


def test_a_file_of_somebody_else_is_locked_without_the_right_to_write_it(tmp_path):
    file = tmp_path / "gpu.lock"
    file.touch(mode=0o444)
    with (
        GpuTurn(file=file),
        subprocess.Popen(
            [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other,
    ):
        said = threading.Event()
        reader = threading.Thread(target=lambda: other.stdout.readline() and said.set())
        reader.start()
        assert not said.wait(0.5)
        other.kill()
        reader.join(30.0)
