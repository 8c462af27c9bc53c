"""The time of a call by other clocks than events: the wall clock, and the kernels' own times from CUPTI.

Both are differences: a queue of L2 flushes with the call behind each, less the same queue without it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from kernelsearch.measure.timing.events import CYCLES_PER_US, LONGEST_WAIT_US

CALLS = 20
REPEATS = 5


def measure_clocks(call: Callable[[], object], flush: Callable[[], None], host_us: float) -> tuple[float, float | None]:
    """(Wall time, kernels' time or None if CUPTI gives none) of one call, in microseconds."""

    def nothing() -> None:
        pass

    wait_us = shortest = CALLS * (1.5 * host_us + 60.0)
    while _time_wall(call, flush, wait_us)[1]:
        wait_us *= 2
        if wait_us > CALLS * LONGEST_WAIT_US:  # the launcher synchronises, and no wait hides it
            wait_us = shortest
            break
    timed = [_time_wall(call, flush, wait_us) for _ in range(REPEATS)]
    wall = statistics.median(us for us, _ in timed)
    wall -= statistics.median(_time_wall(nothing, flush, wait_us)[0] for _ in range(REPEATS))
    without, with_call = _profiled_us(nothing, flush), _profiled_us(call, flush)
    known = 0 < without < with_call
    return wall / CALLS, (with_call - without) / CALLS if known else None


def _time_wall(call: Callable[[], object], flush: Callable[[], None], wait_us: float) -> tuple[float, bool]:
    """(Wall time of the queue, whether the device waited for the host).

    The host fills the queue while the device waits, which hides the host's time.
    """
    torch.cuda.synchronize()
    begun = time.perf_counter()
    torch.cuda._sleep(int(wait_us * CYCLES_PER_US))
    woken = torch.cuda.Event()
    woken.record()
    for _ in range(CALLS):
        flush()
        call()
    late = woken.query()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) * 1e6, late


def _profiled_us(call: Callable[[], object], flush: Callable[[], None]) -> float:
    """The sum of all kernels' and memsets' times in the queue; 0 if the profiler cannot start."""
    try:
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(CALLS):
                flush()
                call()
            torch.cuda.synchronize()
        return float(sum(e.self_device_time_total for e in profiler.key_averages()))
    except RuntimeError:
        return 0.0
