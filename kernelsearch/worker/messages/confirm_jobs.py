"""What the worker of the confirmed protocol is asked and what it answers: plain data, one class a question.

The worker keeps one open shape and its contestants between questions, because the driver decides after every few
blocks whether more are needed, and the judge must not compute while anything is timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelsearch.compile.build import Binary
from kernelsearch.core.types import Verdict
from kernelsearch.worker.messages.jobs import Candidate, Ran

CRASHED = "Crash"
"""The kind of a `jobs.Failure` that says: a contestant spoiled this process, which is of no more use."""


@dataclass(frozen=True)
class Prepare:
    """Import and warm up what the baselines need, at this (small) shape; answered with Prepared.

    Asked while the search still runs: PyTorch's compiler alone takes some ten seconds of imports.
    """

    path: str
    shape: str


@dataclass(frozen=True)
class Prepared:
    """The seconds that it took."""

    seconds: float


@dataclass(frozen=True)
class OpenShape:
    """Make the inputs of this shape from these seeds (the contents that rotate); answered with Opened, or Failure.

    one_set says that only the first seed's contents are judged, since the task's weights depend on the seed too.
    """

    path: str
    shape: str
    seeds: tuple[int, ...]
    one_set: bool = False


@dataclass(frozen=True)
class Opened:
    """The baselines that exist here, besides the seed; notes are sentences for the user."""

    baselines: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Enter:
    """Make a contestant ready: a candidate with its binaries, or a baseline by its name; answered with Entered.

    A candidate may instead be answered with a MissingBinary.
    """

    name: str
    candidate: Candidate | None = None
    binaries: Mapping[str, Binary] = field(default_factory=dict)


@dataclass(frozen=True)
class Entered:
    """Its rough event time and host time per call in microseconds, or the verdict or the failure that keeps it out."""

    pilot_us: float = 0.0
    host_us: float = 0.0
    verdict: Verdict | None = None
    failure: str = ""


@dataclass(frozen=True)
class Blocks:
    """Time these blocks, each a sequence of contestants; same maps a second name to the contestant that it copies."""

    orders: tuple[tuple[str, ...], ...]
    same: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sampled:
    """Event times in microseconds in the asked order; edges holds a reading before each block and one after the last.

    A reading is (SM MHz, memory MHz, °C, W, throttle bits), None where NVML is missing; why says so. changed names
    candidates that wrote to an input, which ends their case.
    """

    times_us: tuple[tuple[float, ...], ...] = ()
    edges: tuple[tuple[int, int, int, float, int] | None, ...] = ()
    why: str = ""
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outputs:
    """Hand over what was kept of this candidate's timed outputs; answered with Handed. The judge sees it, not the driver."""

    name: str


@dataclass(frozen=True)
class Handed:
    """(seed, Ran of Shared tensors) of each distinct output, and how many sampled ones were equal to one of them."""

    outputs: tuple[tuple[int, Ran], ...] = ()
    sampled: int = 0


@dataclass(frozen=True)
class Clocks:
    """Time this contestant by the wall clock and by its kernels' own times; answered with Clocked."""

    name: str
    event_us: float


@dataclass(frozen=True)
class Clocked:
    """Microseconds per call; kernel_us is None where CUPTI gives nothing."""

    wall_us: float
    kernel_us: float | None = None


@dataclass(frozen=True)
class MeasureCeilings:
    """What can this GPU do at best? Answered with Ceilings."""


@dataclass(frozen=True)
class Ceilings:
    """`copy_gbps`, `matmul_bf16_tflops` and so on, `launch_us` (host) and `empty_kernel_us` (event) by name."""

    values: Mapping[str, float]
