"""Jobs for the workers and their answers: plain data, one class per job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelsearch.compile.build import Binary
from kernelsearch.core.types import Config, Fill, Trace, Verdict
from kernelsearch.kernel.blocks import Block
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.static_model.counts import LaunchCounts
from kernelsearch.worker.messages.channel import Array


@dataclass(frozen=True)
class JobFailure:
    """A trusted worker's job failed through the user's code or set-up: one sentence, and an error class's name."""

    message: str
    kind: str = "TaskError"


# ------------------------------------------------------------------ compile worker


@dataclass(frozen=True)
class Compile:
    """Build these specialisations of a kernel's code, each checked against the task's precision contract."""

    code: str
    name: str
    specs: tuple[Specialisation, ...]
    target: Target
    precision: str = "ieee"


@dataclass(frozen=True)
class Compiled:
    """The binaries in the order of the specialisations, or the verdict that ended the build."""

    binaries: tuple[Binary, ...] = ()
    verdict: Verdict | None = None


# ------------------------------------------------------------------ judge


@dataclass(frozen=True)
class OpenTask:
    """Load this task file and describe it; answered with TaskFacts, or JobFailure."""

    path: str
    target: Target
    gpu: bool = False


@dataclass(frozen=True)
class SeedTask:
    """Write TorchInductor's kernels for a task file that has none; answered with its text and another start's."""

    path: str
    target: Target


@dataclass(frozen=True)
class RecordCall:
    """Run this script to its first call of a file's function or module; answered with the text of `get_inputs`."""

    script: str
    arguments: tuple[str, ...]
    file: str
    name: str


@dataclass(frozen=True)
class LauncherGrid:
    """Compute the launcher's own grid at one launch of a shape for these constexprs (`meta`); answered with a tuple."""

    shape: str
    launch: int
    meta: Mapping[str, Any]


@dataclass(frozen=True)
class DescribeLaunch:
    """Describe one launch of a shape under a config, whose hooks set the tiles of its descriptors; a `LaunchFact`."""

    shape: str
    launch: int
    config: Config


SIZES = ("long", "odd", "even", "over", "equal", "joint", "drawn")
"""Kinds of shapes that the judge makes from sizes that only timed shapes have (`judging.planning`)."""
LARGE = (*SIZES, "timed")
"""Kinds of shapes that are judged without a GPU as far as the task's own kernel can be run there."""


def even_key(key: str) -> str:
    """The key of the `even` shape beside an `odd` one."""
    return key.replace("odd", "even", 1)


@dataclass(frozen=True)
class JudgedCase:
    """One case to judge: a shape under a regime, with the secret seed of its inputs.

    probe: (input, flattened element, value) changes one element of the inputs; outputs are then compared with those of
    the unchanged case too. padded: rows of all tensors of two or more axes lie further apart, with NaN between
    (PADDED), or one stride of some inputs is larger (`x.stride(0)`, more by `and`). sampled: only some rows are
    compared. once: a GPU runs it once. scalars: (name, value) of inputs that are numbers, in place of the task's own.
    seeded: a GPU judges it whole, as a timed shape.
    """

    shape: str
    regime: str
    seed: int
    probe: tuple[int, int, float] | None = None
    padded: str = ""
    sampled: bool = False
    once: bool = False
    scalars: tuple[tuple[str, Any], ...] = ()
    seeded: bool = False

    @property
    def kind(self) -> str:
        """The kind of its shape: `timed`, `test`, `typed` or one of SIZES."""
        return self.shape.partition(":")[0]


JudgedCases = tuple[JudgedCase, ...]


@dataclass(frozen=True)
class Cases:
    """Choose what is judged at a depth, or lies `between` timed shapes, by sizes if given; answered with Planned."""

    depth: str
    seed: int
    sizes: int | None = None


@dataclass(frozen=True)
class Planned:
    """The cases of a depth in order; sizes of their shapes in words; launches at drawn ones; notes on missing ones."""

    cases: JudgedCases
    labels: Mapping[str, str]
    traces: Mapping[str, Trace] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaseInputs:
    """Make the inputs of these cases for another worker; answered with one tuple of Arrays and plain values each."""

    cases: JudgedCases


@dataclass(frozen=True)
class PrepareAnswers:
    """Compute the right answers of these cases, which are kept until their runs are judged; answered with nothing."""

    cases: JudgedCases


@dataclass(frozen=True)
class JudgeRuns:
    """Judge the runs of these cases, a probe's after its unchanged one; answered with the first rejecting Verdict, else
    accept. atomics: the kernel has some, so its repeated runs may differ within the tolerance.
    """

    cases: JudgedCases
    runs: tuple[Ran, ...]
    depth: str = "screen"
    atomics: bool = False


@dataclass(frozen=True)
class JudgeSeeded:
    """Judge the Ran of Shared tensors of a `RunSeeded` in GPU memory, at its timed shape; answered with a Verdict.

    `run.again` holds the outputs of the run as it is timed, if they differ; atomics: they may, within the tolerance.
    """

    case: JudgedCase
    run: Ran
    atomics: bool = False


@dataclass(frozen=True)
class KeepBusy:
    """Multiply on the GPU for so many seconds, beside a candidate in another process; answered with nothing."""

    seconds: float


@dataclass(frozen=True)
class JudgeTask:
    """Check that no trivial answer passes this task; answered with a tuple of sentences, empty if none does."""


# ------------------------------------------------------------------ evaluator and run worker


@dataclass(frozen=True)
class CandidateJob:
    """A candidate as the workers that run kernels need it, with the seed that fills the other sites.

    fills are those of the launcher that it leaves out.
    """

    kernel: Kernel
    config: Config
    seed: Kernel
    seed_config: Config
    sites: tuple[str, ...]
    target: Target
    fills: tuple[Fill, ...] = ()


REPEATED = "repeated"
"""The field of a verdict's detail with the number of runs that an asynchronous kernel made at a timed shape."""
REPEATS_S = 15.0
"""Seconds after which a slow asynchronous kernel is not run again."""
UNDEFINED = "forward, with undefined lanes"
"""The order of programs in which lanes that are masked without `other` hold what the language allows, and not 0."""
ZEROED = "forward, over zeros"
"""The order of programs before which unwritten memory holds zeros: one byte may be right by what it held."""

UNFILLED = "forward, but for fill "
"""With a number from 1: the order of programs in which memory that the launcher fills holds what was there before."""


@dataclass(frozen=True)
class Ran:
    """A launcher call: its outputs, its inputs afterwards (Unchanged, or none if no bit changed), or a verdict instead.

    again: outputs of repeated runs that differ from the first run's in any bit. suspect: one sentence on what an
    evaluated kernel did that no right kernel needs to do. written: for each output, which of its elements are
    compared, if not all. reached, ran: blocks of the kernels with conditions that were computed, and those that
    ran, up to this call of the job; absent: blocks that were not compiled where these would be. place: where the
    fill is that was left out (UNFILLED). repeated: how many more runs an asynchronous kernel made; unequal: the
    outputs of the last of them, if they are not those of the first run.
    """

    outputs: tuple[Array, ...] = ()
    inputs: tuple[Any, ...] = ()
    verdict: Verdict | None = None
    again: tuple[tuple[Array, ...], ...] = ()
    suspect: str = ""
    written: tuple[Array | None, ...] = ()
    reached: frozenset[Block] = frozenset()
    ran: frozenset[Block] = frozenset()
    absent: frozenset[Block] = frozenset()
    place: str = ""
    repeated: int = 0
    unequal: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Evaluate:
    """Run the launcher once per case in the evaluator; answered with a tuple of Ran.

    order: of the programs of every launch, as of a GridRun, UNDEFINED, ZEROED or UNFILLED. sampled: for each case, the
    seed that draws the rows which are compared (0: all). num_sms: the number of multiprocessors that the launch spec
    sees (0: the target's).
    """

    path: str
    candidate: CandidateJob
    shapes: tuple[str, ...]
    inputs: tuple[tuple[Any, ...], ...]
    order: str = "forward"
    sampled: tuple[int, ...] = ()
    num_sms: int = 0


@dataclass(frozen=True)
class Profile:
    """Count the work of programs, drawn by the secret, of the real grid at these shapes; answered with Profiled."""

    path: str
    candidate: CandidateJob
    shapes: tuple[str, ...]
    secret: int = 0


@dataclass(frozen=True)
class Profiled:
    """Counts by shape, one per device launch in order, or the verdict that ended the job."""

    counts: Mapping[str, tuple[LaunchCounts, ...]] = field(default_factory=dict)
    verdict: Verdict | None = None


@dataclass(frozen=True)
class RunCases:
    """Run the launcher per case on the GPU with these binaries, guarded and poisoned; answered with a tuple of Ran.

    repeats: how many times each case runs, from fresh copies of its inputs; by case.
    """

    path: str
    candidate: CandidateJob
    binaries: Mapping[str, Binary]
    shapes: tuple[str, ...]
    inputs: tuple[tuple[Any, ...], ...]
    repeats: tuple[int, ...] = ()


@dataclass(frozen=True)
class RunSeeded:
    """Run one whole timed shape with inputs made from the case's seed; answered with a Ran of Shared tensors.

    asynchronous: run it many times; atomics: then its runs may differ, but not in where they are NaN.
    """

    path: str
    candidate: CandidateJob
    binaries: Mapping[str, Binary]
    case: JudgedCase
    asynchronous: bool = False
    atomics: bool = False


@dataclass(frozen=True)
class Shared:
    """A tensor in GPU memory that another process holds: dtype, shape, stride, offset in elements, CUDA's handle."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    handle: tuple[Any, ...]


@dataclass(frozen=True)
class TimeCandidate:
    """Time the launcher at these shapes by the search protocol; answered with Timed.

    limits_us: by shape, the time above which sampling stops early. rival_us: by shape, the time to beat: with points,
    where the shapes lie, those are left out where it will not be (`core/timed_shapes.py`).
    """

    path: str
    candidate: CandidateJob
    binaries: Mapping[str, Binary]
    shapes: tuple[str, ...]
    limits_us: Mapping[str, float] = field(default_factory=dict)
    rival_us: Mapping[str, float] = field(default_factory=dict)
    points: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class TimeBaseline:
    """Time a baseline (`eager`, `compile`, `max-autotune`) at one shape in the same way; answered with Timed."""

    path: str
    baseline: str
    shape: str


@dataclass(frozen=True)
class Timed:
    """Event times in microseconds per shape, details of them, and whether sampling stopped early.

    detail, by shape: host_us, the host's time of a call; late, how many samples were dropped because the device waited
    for the host; host_bound, true if nearly all were late and stay in; parts_us, what each of several functions took.
    """

    samples_us: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    detail: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    abandoned: bool = False
    verdict: Verdict | None = None


@dataclass(frozen=True)
class MissingBinary:
    """The launcher passed arguments that no sent binary is for: compile these, then ask again."""

    specs: tuple[Specialisation, ...]
    of_seed: tuple[bool, ...]


@dataclass(frozen=True)
class Prove:
    """Compute a known kernel (blocks of `compile.known.PROOF_BLOCK`) and check it exactly; answered with a bool."""

    binary: Binary


def spec_key(spec: Specialisation, of_seed: bool) -> str:
    """The key of a binary among those of one candidate."""
    return spec.key("seed" if of_seed else "candidate", "", "")
