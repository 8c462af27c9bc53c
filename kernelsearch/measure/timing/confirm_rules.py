"""The confirmed protocol's rules as plain functions: the order of contestants, the valid blocks, impossible times.

A block is a random order of its contestants followed by the same order backwards (A B B A), so that a drift that is
linear within a block cancels in every pair. Times are in microseconds. No torch, no GPU.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernelsearch.core.types import ShapeFact, TaskFacts, TensorFact
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.timing import paired_statistics as paired
from kernelsearch.measure.timing.nvml import SLOWED, Reading
from kernelsearch.measure.timing.protocol import compute_spread_us

PROTOCOL = "confirmed-1"
CONTROL = "A/A control"
MIN_BLOCKS = 40
MAX_BLOCKS = 1000
CHUNK = 20
"""Blocks between two looks at the intervals."""
HALF_WIDTH = 0.0025
"""Sampling stops when all deciding intervals are this narrow (0.25 %)."""
SLOW_RATIO = 2.0
"""Contestants slower than this many times the fastest decide nothing, and are timed in every fourth block only."""
SLOW_EVERY = 4
CLOCK_DRIFT = 0.03
"""A block is dropped when the SM clock at one of its edges differs by this share from the run's median clock."""
MAX_DROPPED = 0.30
LAUNCH_BOUND = 3.0
"""Times below this many empty kernels are called launch-bound."""
AGREE_RATIO = 0.10
AGREE_US = 3.0

Block = tuple[tuple[str, float], ...]
"""One block's samples in time order: (contestant, microseconds)."""


def draw_order(names: Sequence[str], slow: Sequence[str], number: int, rng: random.Random) -> tuple[str, ...]:
    """The contestants of block `number`, forwards and backwards."""
    chosen = [n for n in names if n not in slow or number % SLOW_EVERY == 0]
    rng.shuffle(chosen)
    return (*chosen, *reversed(chosen))


def find_slow(pilot_us: Mapping[str, float]) -> tuple[str, ...]:
    """Contestants that are too slow to decide anything, by their pilot times."""
    fastest = min(pilot_us.values(), default=0.0)
    return tuple(n for n, t in pilot_us.items() if t > SLOW_RATIO * fastest)


def log_ratios_of(blocks: Sequence[Block], one: str, other: str) -> list[float]:
    """log(other's time / one's time) of every block that has both, each by its geometric mean in the block."""
    ratios = []
    for block in blocks:
        own = [math.log(t) for n, t in block if n == one]
        others = [math.log(t) for n, t in block if n == other]
        if own and others:
            ratios.append(statistics.fmean(others) - statistics.fmean(own))
    return ratios


@dataclass(frozen=True)
class ContestantTime:
    """The median of a contestant's event times, half the distance between their quartiles, and their number."""

    time_us: float
    spread_us: float
    samples: int


def time_of(blocks: Sequence[Block], name: str) -> ContestantTime | None:
    times = [t for block in blocks for n, t in block if n == name]
    return ContestantTime(statistics.median(times), compute_spread_us(times), len(times)) if times else None


# ---------------------------------------------------------------- valid blocks


@dataclass(frozen=True)
class ValidBlocks:
    """The valid blocks, and how many were dropped and why; unstable when too many were."""

    blocks: tuple[Block, ...]
    dropped: int = 0
    reasons: tuple[str, ...] = ()
    clocks: Mapping[str, float] = field(default_factory=dict)

    @property
    def unstable(self) -> bool:
        whole = len(self.blocks) + self.dropped
        return whole > 0 and self.dropped > MAX_DROPPED * whole


def drop_spoiled(blocks: Sequence[Block], edges: Sequence[tuple[Reading | None, Reading | None]]) -> ValidBlocks:
    """Drops blocks with throttling or another SM clock than the run's median at their edges (before and after each)."""
    readings = [r for pair in edges for r in pair if r is not None]
    if not readings:
        return ValidBlocks(tuple(blocks))
    usual_mhz = statistics.median(r.sm_mhz for r in readings)
    valid, reasons = [], set()
    for block, pair in zip(blocks, edges, strict=True):
        faults = {word for r in pair if r is not None for word in _find_faults(r, usual_mhz)}
        reasons |= faults
        if not faults:
            valid.append(block)
    clocks = {
        "sm_mhz": usual_mhz,
        "memory_mhz": statistics.median(r.memory_mhz for r in readings),
        "temperature": max(r.temperature for r in readings),
        "power_w": round(statistics.median(r.power_w for r in readings), 1),
        "power_capped": float(any("software power cap" in r.format_reasons() for r in readings)),
    }
    return ValidBlocks(tuple(valid), len(blocks) - len(valid), tuple(sorted(reasons)), clocks)


def _find_faults(reading: Reading, usual_mhz: float) -> list[str]:
    other_clock = usual_mhz > 0 and abs(reading.sm_mhz - usual_mhz) > CLOCK_DRIFT * usual_mhz
    return [
        *replace(reading, reasons=reading.reasons & SLOWED).format_reasons(),
        *(["another SM clock"] if other_clock else []),
    ]


# ---------------------------------------------------------------- when to stop


def are_narrow(
    blocks: Sequence[Block], pairs: Sequence[tuple[str, str]], level: float, limit: float = HALF_WIDTH
) -> bool:
    """Whether the intervals of all these pairs are narrow enough, by few draws, since the GPU waits meanwhile."""
    intervals = [
        paired.bootstrap_interval([log_ratios_of(blocks, one, other)], level, draws=paired.RESAMPLES)
        for one, other in pairs
    ]
    return all(i is not None and i.half_width <= limit for i in intervals)


# ---------------------------------------------------------------- impossible times


def compute_floor_us(target: Target, bytes_moved: int | None, flops: int | None, dtypes: Sequence[str]) -> float:
    """The least time in microseconds by this target's datasheet; 0 when the task gives neither figure.

    Bytes that fit the L2 cache may have stayed there. The arithmetic rate is the highest one of the arguments' dtypes
    (Triton's names): no honest kernel is ever faster.
    """
    by_bytes = max(0, (bytes_moved or 0) - target.l2_bytes) / (target.bandwidth_gbps * 1e3)
    return max(by_bytes, (flops or 0) / (peak_tflops_of(target, dtypes) * 1e6))


def explain_impossible(target: Target, facts: TaskFacts, key: str, time_us: float) -> str:
    """A clause on a time of a call at a timed shape below what its bytes and flops allow; empty for other times."""
    shape = next((s for s in facts.shapes if s.key == key), ShapeFact(key, "", {}))
    least = compute_floor_us(target, shape.bytes_moved, shape.flops, list_dtypes(facts, key))
    return f"{time_us:.3g} us is impossible: {target.name} needs at least {least:.3g} us for this" * (time_us < least)


def list_dtypes(facts: TaskFacts, key: str) -> tuple[str, ...]:
    """Triton's names of the dtypes that the launcher's tensors have at a shape."""
    args = [a for launch in facts.traces[key].launches for a in launch.args.values()]
    return tuple(sorted({a.dtype for a in args if isinstance(a, TensorFact)}))


def peak_tflops_of(target: Target, dtypes: Sequence[str]) -> float:
    """The highest datasheet rate of these dtypes, in TFLOP/s."""
    kinds = {d.lstrip("*") for d in dtypes}
    if any(k.startswith("fp8") or k in ("i8", "u8", "i1") for k in kinds):
        return 2 * target.tensor_tflops
    if kinds & {"bf16", "fp16"}:
        return target.tensor_tflops
    return target.tf32_tflops


def compute_roofline_us(
    ceilings: Mapping[str, float], bytes_moved: int | None, flops: int | None, dtypes: Sequence[str]
) -> float | None:
    """The larger of bytes over the measured copy bandwidth and flops over the measured matmul rate; None if unknown.

    A yardstick, not a limit: honest kernels may be a little faster.
    """
    kinds = {d.lstrip("*") for d in dtypes}
    word = next((k for k in ("bf16", "fp16") if k in kinds), "fp32")
    copy, rate = ceilings.get("copy_gbps"), ceilings.get(f"matmul_{word}_tflops")
    parts = [bytes_moved / (copy * 1e3)] if bytes_moved and copy else []
    parts += [flops / (rate * 1e6)] if flops and rate and flops > _ARITHMETIC * (bytes_moved or 0) else []
    return max(parts) if parts else None


_ARITHMETIC = 50.0
"""A task with fewer operations per byte has no matrix products, and a matmul's rate does not apply."""


def is_launch_bound(time_us: float, ceilings: Mapping[str, float]) -> bool:
    empty = ceilings.get("empty_kernel_us")
    return empty is not None and time_us < LAUNCH_BOUND * empty


def find_disagreement(event_us: float, wall_us: float | None, kernel_us: float | None) -> str:
    """How a too small event time contradicts the kernels' own times, or without these the wall clock; empty if not.

    A large event time is no fault: events also span the gaps between launches, which kernel times do not. Nor is a
    large wall time beside right kernel times: these are of all streams, so what is left is the host's.
    """
    name, other = ("the wall clock", wall_us) if kernel_us is None else ("the kernels' own times", kernel_us)
    return f"events say {event_us:.3g} us, but {name} {other:.3g} us" if _is_longer(other, event_us) else ""


def explain_slow_host(event_us: float, wall_us: float | None, kernel_us: float | None) -> str:
    """A clause on a wall time that is longer than the GPU's, where the kernels' own times confirm that; else empty."""
    if kernel_us is None or not _is_longer(wall_us, event_us):
        return ""
    return f"a call takes {wall_us:.3g} us by the wall clock, {kernel_us:.3g} us of them on the GPU: the host is slower"


def _is_longer(other_us: float | None, event_us: float) -> bool:
    return other_us is not None and other_us > event_us * (1 + AGREE_RATIO) + AGREE_US
