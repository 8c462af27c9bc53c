"""Counting Ctrl-C: noted, then raised, then the handler of before; or, at a process's end, nothing more."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor

import pytest

from kernelsearch.core.interrupts import FINISHING, POLL_S, Interrupts


@pytest.fixture(autouse=True)
def usual_handler():
    """Python's own, whatever started the suite: what a shell starts in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_is_noted_and_the_second_raises():
    with Interrupts() as interrupts:
        interrupt()
        assert interrupts.count == 1
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert interrupts.count == 2
    with pytest.raises(KeyboardInterrupt):  # the handler of before
        interrupt()


def test_a_wait_says_once_what_a_first_one_does():
    said = []
    with ThreadPoolExecutor(2) as pool, Interrupts(say=said.append) as interrupts:
        short, long = pool.submit(int), pool.submit(time.sleep, 3 * POLL_S)
        assert interrupts.wait([short]) == ({short}, set()) and not said
        interrupt()
        assert interrupts.wait([short, long], FIRST_COMPLETED) == ({short}, {long}) and said == [FINISHING]
        assert interrupts.wait([short, long]) == ({short, long}, set()) and said == [FINISHING]


def test_forgotten_ones_interrupt_nothing():
    with Interrupts(ending=True) as interrupts:
        interrupt()
        interrupts.reset()
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_nothing_is_counted_outside_the_main_thread():
    seen = []

    def body():
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize("within", [1, 2])
def test_at_the_end_of_a_process_further_ones_are_ignored(within):
    code = f"""
import os, signal
from kernelsearch.core.interrupts import Interrupts
with Interrupts(ending=True):
    try:
        for _ in range({within}):
            os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        pass
os.kill(os.getpid(), signal.SIGINT)
print("closed")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr
