"""Jobs for the worker of the confirmed protocol and their answers: plain data, one class per job.

The worker keeps one open shape and its contestants between jobs: the driver decides after every few blocks whether it
needs more, and the judge must not compute while anything is timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelsearch.compile.build import Binary
from kernelsearch.core.types import Verdict
from kernelsearch.worker.messages.jobs import CandidateJob, Ran

CRASHED = "Crash"
"""The kind of a `jobs.JobFailure` after which the worker is useless, because a contestant spoiled its process."""


@dataclass(frozen=True)
class Prepare:
    """Import and warm up what PyTorch's baselines need, at this (small) shape; answered with Prepared.

    The driver sends it while the search still runs: the imports of PyTorch's compiler alone take some ten seconds.
    whole: those too that time their own configs, one process at a time; all that they compile stays on the disk.
    """

    path: str
    shape: str
    whole: bool = False


@dataclass(frozen=True)
class Prepared:
    """The seconds that the preparation took."""

    seconds: float


@dataclass(frozen=True)
class OpenShape:
    """Make the inputs of this shape, one set per seed (the sets rotate); answered with OpenedShape, or JobFailure.

    one_set: only the first seed's set is judged, because the task's weights depend on the seed too.
    """

    path: str
    shape: str
    seeds: tuple[int, ...]
    one_set: bool = False


@dataclass(frozen=True)
class OpenedShape:
    """The available baselines besides the seed, notes (sentences for the user), and the baselines that are judged.

    peers: those that the task file names itself, where its inputs have one set of values for each seed.
    """

    baselines: tuple[str, ...]
    notes: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Enter:
    """Prepare a contestant: a candidate with its binaries, or a named baseline; answered with EnteredContestant.

    A candidate may be answered with a MissingBinary instead. judged: outputs are kept for the judge, samples of a
    candidate's timed ones, of a baseline those of one call.
    """

    name: str
    candidate: CandidateJob | None = None
    binaries: Mapping[str, Binary] = field(default_factory=dict)
    judged: bool = False


@dataclass(frozen=True)
class EnteredContestant:
    """A contestant's rough event and host time per call in microseconds and the most memory that a call holds beside
    its inputs, or the verdict or failure that bars it."""

    pilot_us: float = 0.0
    host_us: float = 0.0
    peak_bytes: int = 0
    verdict: Verdict | None = None
    failure: str = ""


@dataclass(frozen=True)
class Blocks:
    """Time these blocks, each a sequence of contestants; answered with Sampled.

    same maps a second name of a contestant to its first.
    """

    orders: tuple[tuple[str, ...], ...]
    same: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sampled:
    """Event times in microseconds in the order of the blocks, and the GPU's state between them.

    edges: a reading before each block and one after the last: (SM MHz, memory MHz, °C, W, throttle bits), or None if
    NVML is missing; why says so. changed: candidates that wrote to an input, which ends their case. late: contestants
    of which samples are kept in which the device waited for the host.
    """

    times_us: tuple[tuple[float, ...], ...] = ()
    edges: tuple[tuple[int, int, int, float, int] | None, ...] = ()
    why: str = ""
    changed: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outputs:
    """Hand over the kept outputs of a contestant, for the judge and not the driver; answered with Handed."""

    name: str


@dataclass(frozen=True)
class Handed:
    """(seed, Ran of Shared tensors) of each distinct output, and how many sampled outputs were equal to one of them."""

    outputs: tuple[tuple[int, Ran], ...] = ()
    sampled: int = 0


@dataclass(frozen=True)
class Clocks:
    """Time this contestant by the wall clock and by its kernels' own times; answered with Clocked."""

    name: str
    event_us: float


@dataclass(frozen=True)
class Clocked:
    """Microseconds per call; kernel_us is None if CUPTI gives nothing."""

    wall_us: float
    kernel_us: float | None = None


@dataclass(frozen=True)
class MeasureCeilings:
    """Measure the best rates of this GPU; answered with Ceilings."""


@dataclass(frozen=True)
class Ceilings:
    """`copy_gbps`, `matmul_bf16_tflops` and so on, `launch_us` (host) and `empty_kernel_us` (event) by name."""

    values: Mapping[str, float]
