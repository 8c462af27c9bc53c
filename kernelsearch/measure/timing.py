"""The search protocol: event times of one launcher call, L2 flushed, host time hidden, bad candidates abandoned.

Each sample queues a short wait, a flush of the L2 cache (written, then read), the start event, the call
and the end event, so that the device never waits for the host inside the timed span. This ranks
candidates during a search; it is not the confirmed protocol.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

WARM_UP_CALLS = 2
MIN_SAMPLES = 5
MAX_SAMPLES = 30
BUDGET_US = 6_000.0
ABANDON_AFTER = 3
CYCLES_PER_US = 2_000


@dataclass(frozen=True)
class Samples:
    """Event times in microseconds, the host's time per call, and whether sampling stopped early on a bad candidate."""

    times_us: tuple[float, ...]
    host_us: float
    abandoned: bool


class Flush:
    """A buffer of twice the L2 cache that is written and read before every sample."""

    def __init__(self) -> None:
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.buffer = torch.empty(max(2 * size, 64 << 20) // 4, dtype=torch.int32, device="cuda")

    def __call__(self) -> None:
        self.buffer.zero_()
        self.buffer.sum()


def sample(
    call: Callable[..., Any], inputs: Sequence[tuple[Any, ...]], flush: Flush, limit_us: float | None = None,
    after: Callable[[], None] = lambda: None,
) -> Samples:
    """Times call(*inputs[i]) with i rotating; after() follows each call, outside of its span.

    limit_us is the time above which a candidate is not worth more samples: when the median of the
    first few is above it, sampling stops.
    """
    for i in range(WARM_UP_CALLS):
        call(*inputs[i % len(inputs)])
        after()
    torch.cuda.synchronize()
    started = time.perf_counter()
    call(*inputs[0])
    host_us = (time.perf_counter() - started) * 1e6
    after()
    torch.cuda.synchronize()
    times: list[float] = []
    while len(times) < MAX_SAMPLES and (len(times) < MIN_SAMPLES or sum(times) < BUDGET_US):
        batch = [_queued(call, inputs[(len(times) + i) % len(inputs)], flush, host_us, after) for i in range(ABANDON_AFTER)]
        torch.cuda.synchronize()
        times.extend(start.elapsed_time(end) * 1000.0 for start, end in batch)
        if limit_us is not None and statistics.median(times) > limit_us:
            return Samples(tuple(times), host_us, abandoned=True)
    return Samples(tuple(times), host_us, abandoned=False)


def _queued(
    call: Callable[..., Any], inputs: tuple[Any, ...], flush: Flush, host_us: float, after: Callable[[], None]
) -> tuple[Any, Any]:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(min(2_000.0, 1.5 * host_us + 30.0) * CYCLES_PER_US))
    flush()
    start.record()
    call(*inputs)
    end.record()
    after()
    return start, end
