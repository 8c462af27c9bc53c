"""The search protocol: event times of one launcher call, L2 flushed, host time hidden, bad candidates abandoned.

Each sample queues a short wait, a flush of the L2 cache (written, then read), the start event, the call and the end
event: the device does not wait for the host inside the timed span. If it did (compilers took the processor from the
host), the start event has passed before the end is queued: such a sample is late, and another one is taken. This
protocol ranks candidates during a search; it is not the confirmed protocol.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

T = TypeVar("T")

WARM_UP_CALLS = 2
MIN_SAMPLES = 5
MAX_SAMPLES = 30
MAX_LATE = 15
BUDGET_US = 6_000.0
ABANDON_AFTER = 3
PARTS = 3
"""Calls in which each launch is timed by itself."""
CYCLES_PER_US = 2_000
LONGEST_WAIT_US = 20_000.0
"""A host that others use takes milliseconds to queue seven launches, and more now and then."""
LATE_TRIES = 4
"""Spans that `HostWait` takes in place of a late one, itself included."""


@dataclass(frozen=True)
class Samples:
    """Event times in microseconds, the host's time per call, and whether sampling stopped early on a bad candidate.

    late counts the dropped samples in which the device waited for the host. When nearly all were late (a launcher that
    synchronises, or a busy processor), they are kept and host_bound is set.
    """

    times_us: tuple[float, ...]
    host_us: float
    abandoned: bool = False
    late: int = 0
    host_bound: bool = False

    @property
    def detail(self) -> dict[str, float | int | bool]:
        """Details that are stored with the times: the host's time, and late samples."""
        unusual = {"late": self.late} if self.late else {"host_bound": True} if self.host_bound else {}
        return {"host_us": round(self.host_us, 1), **unusual}


@dataclass(frozen=True)
class TimedSpan:
    """One timed call: the event time in microseconds, and whether the device had to wait for the host."""

    time_us: float
    late: bool


@dataclass
class HostWait:
    """The device's wait in microseconds before a timed span, in which the host queues all of the span.

    late counts the spans that stayed late: a launcher that synchronises, which is not waited for any longer.
    """

    us: float
    late: int = 0

    @classmethod
    def of_host(cls, host_us: float) -> HostWait:
        """The wait for a call that takes the host this long to queue."""
        return cls(min(LONGEST_WAIT_US, 1.5 * host_us + 40.0))

    def lengthen(self) -> None:
        self.us = min(LONGEST_WAIT_US, 2 * self.us)

    def take(self, queue: Callable[[float], tuple[T, bool]]) -> T:
        """The first span in time, else the last one. queue(wait) gives (a span, whether the device came too early)."""
        for _ in range(LATE_TRIES if self.late < LATE_TRIES else 1):
            span, late = queue(self.us)
            if not late:
                return span
            self.lengthen()
        self.late += 1
        return span


class Flush:
    """A buffer of twice the L2 cache that is written and read before every sample."""

    def __init__(self) -> None:
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.buffer = torch.empty(max(2 * size, 64 << 20) // 4, dtype=torch.int32, device="cuda")

    def __call__(self) -> None:
        self.buffer.zero_()
        self.buffer.sum()


def take_samples(
    call: Callable[..., Any],
    inputs: Sequence[tuple[Any, ...]],
    flush: Flush,
    limit_us: float | None = None,
    after: Callable[[], None] = lambda: None,
) -> Samples:
    """Times call(*inputs[i]) with i rotating; after() follows each call, outside its span.

    Sampling stops when the median of the first few samples is above limit_us.
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

    def take(first: int, wait_us: float) -> list[TimedSpan]:
        queued = [_queue(call, inputs[(first + i) % len(inputs)], flush, wait_us, after) for i in range(ABANDON_AFTER)]
        torch.cuda.synchronize()
        return [TimedSpan(start.elapsed_time(end) * 1000.0, late) for start, end, late in queued]

    return collect_samples(take, host_us, limit_us)


def collect_samples(
    take: Callable[[int, float], list[TimedSpan]], host_us: float, limit_us: float | None = None
) -> Samples:
    """Samples from batches until there are enough; take(number so far, wait in microseconds) gives the next batch.

    After a late sample, the wait that hides the host is doubled.
    """
    times: list[float] = []
    late: list[float] = []
    wait = HostWait.of_host(host_us)
    while len(times) < MAX_SAMPLES and (len(times) < MIN_SAMPLES or sum(times) < BUDGET_US):
        batch = take(len(times) + len(late), wait.us)
        times += [span.time_us for span in batch if not span.late]
        late += [span.time_us for span in batch if span.late]
        if any(span.late for span in batch):
            wait.lengthen()
        if len(late) >= MAX_LATE:
            break
        if limit_us is not None and len(times) >= ABANDON_AFTER and statistics.median(times) > limit_us:
            return Samples(tuple(times), host_us, True, len(late))
    if len(times) < ABANDON_AFTER:
        return Samples((*times, *late), host_us, host_bound=True)
    return Samples(tuple(times), host_us, late=len(late))


def time_parts(
    call: Callable[..., Any],
    inputs: Sequence[tuple[Any, ...]],
    flush: Flush,
    host_us: float,
    spans: list[tuple[str, Any, Any]],
    after: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Microseconds of each part of a call (`collect_parts`); call adds (part, start event, end event) to spans."""

    def take(number: int, wait_us: float) -> tuple[bool, list[tuple[str, float]]]:
        spans.clear()
        _, _, late = _queue(call, inputs[number % len(inputs)], flush, wait_us, after)
        torch.cuda.synchronize()
        return late, [(part, start.elapsed_time(end) * 1000.0) for part, start, end in spans]

    return collect_parts(take, host_us)


def collect_parts(
    take: Callable[[int, float], tuple[bool, list[tuple[str, float]]]], host_us: float
) -> dict[str, float]:
    """The medians of PARTS calls; {} where the device waited for the host in more.

    take(number, wait in microseconds) is a call: whether it was late, and what its parts took. A part that comes
    several times counts with its sum.
    """
    times: dict[str, list[float]] = {}
    taken, wait = 0, HostWait.of_host(1.5 * host_us + 100.0)  # the events between the launches are queued too
    for number in range(2 * PARTS):
        late, spans = take(number, wait.us)
        if late:
            wait.lengthen()
            continue
        own: defaultdict[str, float] = defaultdict(float)
        for part, us in spans:
            own[part] += us
        for part, us in own.items():
            times.setdefault(part, []).append(us)
        taken += 1
        if taken == PARTS:
            return {part: statistics.median(us) for part, us in times.items()}
    return {}


def _queue(
    call: Callable[..., Any], inputs: tuple[Any, ...], flush: Flush, wait_us: float, after: Callable[[], None]
) -> tuple[Any, Any, bool]:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(wait_us * CYCLES_PER_US))
    flush()
    start.record()
    call(*inputs)
    end.record()
    late = start.query()
    after()
    return start, end, late
