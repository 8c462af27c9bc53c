"""What workers are asked and what they answer: plain data, one class a question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelsearch.compile.build import Binary
from kernelsearch.core.types import Config, Verdict
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.static_model.counts import Counts
from kernelsearch.worker.messages.channel import Array


@dataclass(frozen=True)
class Hello:
    """A worker's first message: its process id, the isolation layers that hold, and (layer, reason) of those that do not."""

    pid: int
    layers: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Last:
    """A worker's last answer: it ran out of memory, disk or descriptors, and should be replaced.

    full says that the disk is: the machine's fault and not the candidate's.
    """

    answer: Any
    full: bool = False


@dataclass(frozen=True)
class Failure:
    """A job that failed inside a trusted worker through the user's own code or set-up, in one sentence."""

    message: str
    kind: str = "TaskError"


# ------------------------------------------------------------------ compile worker


@dataclass(frozen=True)
class Compile:
    """Build these specialisations of one kernel's code; precision is the task's contract, checked on each."""

    code: str
    name: str
    specs: tuple[Specialisation, ...]
    target: Target
    precision: str = "ieee"


@dataclass(frozen=True)
class Compiled:
    """The binaries in the order of the specs, or the verdict that ended the build."""

    binaries: tuple[Binary, ...] = ()
    verdict: Verdict | None = None


# ------------------------------------------------------------------ judge


@dataclass(frozen=True)
class OpenTask:
    """Load this task file and describe it; answered with TaskFacts, or Failure."""

    path: str
    target: Target
    gpu: bool = False


@dataclass(frozen=True)
class OutlineTask:
    """What is there of a task file that may lack a kernel; answered with `propose.first.Outline`, or Failure."""

    path: str
    target: Target


@dataclass(frozen=True)
class LauncherGrid:
    """The launcher's own grid at one launch of one shape, for these constexprs (Triton's `meta`); answered with a tuple."""

    shape: str
    launch: int
    meta: Mapping[str, Any]


SIZES = ("long", "far", "equal", "joint")
"""Kinds of shapes that the judge makes of sizes that only timed shapes have (`judging.planning`)."""


@dataclass(frozen=True)
class Case:
    """One thing to judge: a shape under a regime, with the secret seed that its inputs come from.

    probe (input, flattened element, value) moves one element of those inputs: the outputs are then also compared
    with the unmoved case's. padded gives every tensor of two or more axes rows that lie further apart, NaN between.
    half says that kernels are passed 16-bit floats here, so that without a GPU a float32 twin is judged. sampled says
    that only a few programs of the grid run, and that only what they write is judged.
    """

    shape: str
    regime: str
    seed: int
    probe: tuple[int, int, float] | None = None
    padded: bool = False
    half: bool = False
    sampled: bool = False

    @property
    def kind(self) -> str:
        """What its shape is: `timed`, `test`, or one of SIZES or `typed`."""
        return self.shape.partition(":")[0]


@dataclass(frozen=True)
class Cases:
    """What is judged at this depth; answered with a tuple of Case over the test shapes."""

    depth: str
    seed: int


@dataclass(frozen=True)
class CaseInputs:
    """The inputs of these cases, for a worker to run; answered with one tuple of Arrays and plain values each.

    twin asks for float32 in place of 16-bit floats (the interpreter's bfloat16 is not to be trusted).
    """

    cases: tuple[Case, ...]
    twin: bool = False


@dataclass(frozen=True)
class JudgeRuns:
    """Outputs and inputs-afterwards of these cases, in order; answered with the first rejecting Verdict, or accept.

    atomics says that the kernel has any, so that its repeated runs may differ within the tolerance. A case with a
    probe comes after its unmoved case.
    """

    cases: tuple[Case, ...]
    runs: tuple[Ran, ...]
    depth: str = "screen"
    twin: bool = False
    atomics: bool = False


@dataclass(frozen=True)
class JudgeSeeded:
    """A Ran of Shared tensors from a `RunSeeded`, judged in GPU memory at its timed shape; answered with a Verdict.

    again in it are the outputs of the run as it is timed, where they differ; atomics says that they may, within limits.
    """

    case: Case
    run: Ran
    atomics: bool = False


@dataclass(frozen=True)
class JudgeTask:
    """Would a trivial answer pass this task? Answered with a tuple of sentences, empty when fine."""


# ------------------------------------------------------------------ interpreter and run worker


@dataclass(frozen=True)
class Candidate:
    """What a worker that runs kernels is told of a candidate and of the seed that fills the other sites."""

    kernel: Kernel
    config: Config
    seed: Kernel
    seed_config: Config
    sites: tuple[str, ...]
    target: Target


@dataclass(frozen=True)
class Ran:
    """A launcher call: its flattened outputs and its inputs afterwards, or the verdict that ended it.

    again holds the outputs of repeated runs that were not equal to the first one's bit for bit. suspect is what an
    interpreted kernel did that no right one needs to do, in one sentence; covers how much of the outputs the whole grid
    would write if it did as its sampled programs do (0 to 1).
    """

    outputs: tuple[Array, ...] = ()
    inputs: tuple[Any, ...] = ()
    verdict: Verdict | None = None
    again: tuple[tuple[Array, ...], ...] = ()
    suspect: str = ""
    covers: float = 1.0


@dataclass(frozen=True)
class Interpret:
    """Run the launcher once per case in the interpreter; answered with a tuple of Ran.

    order is forward, reversed or shuffled: the order of the programs of every launch. twins says for each case
    whether 16-bit floats are replaced by float32, sampled from which seed its programs are sampled (0: all run).
    num_sms is what the launch spec is told (0: the target's).
    """

    path: str
    candidate: Candidate
    shapes: tuple[str, ...]
    inputs: tuple[tuple[Any, ...], ...]
    order: str = "forward"
    twins: tuple[bool, ...] = ()
    sampled: tuple[int, ...] = ()
    num_sms: int = 0


@dataclass(frozen=True)
class Profile:
    """Count what sampled programs of the real grid do at these shapes; answered with Profiled."""

    path: str
    candidate: Candidate
    shapes: tuple[str, ...]


@dataclass(frozen=True)
class Profiled:
    """Counts for each shape and each device launch of it, in order, or the verdict that ended it."""

    counts: Mapping[str, tuple[Counts, ...]] = field(default_factory=dict)
    verdict: Verdict | None = None


@dataclass(frozen=True)
class RunCases:
    """Run the launcher per case on the GPU with these binaries, guarded and poisoned; answered with Ran tuples.

    repeats is how many times each case runs, from fresh copies of its inputs.
    """

    path: str
    candidate: Candidate
    binaries: Mapping[str, Binary]
    shapes: tuple[str, ...]
    inputs: tuple[tuple[Any, ...], ...]
    repeats: int = 1


@dataclass(frozen=True)
class RunSeeded:
    """Run one whole timed shape with inputs made from the case's seed; answered with a Ran of Shared tensors."""

    path: str
    candidate: Candidate
    binaries: Mapping[str, Binary]
    case: Case


@dataclass(frozen=True)
class Shared:
    """A tensor in GPU memory that another process holds: dtype, shape, stride, offset in elements, CUDA's handle."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    handle: tuple[Any, ...]


@dataclass(frozen=True)
class Time:
    """Time the launcher at these shapes by the search protocol; answered with Timed.

    limits_us gives, per shape, the time above which sampling stops early (a bad candidate); rival_us the times to beat:
    shapes are left out once those before them say that they are not beaten (`measure/timing/racing.py`).
    """

    path: str
    candidate: Candidate
    binaries: Mapping[str, Binary]
    shapes: tuple[str, ...]
    limits_us: Mapping[str, float] = field(default_factory=dict)
    rival_us: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TimeBaseline:
    """Time a baseline (`eager`, `compile`, `max-autotune`) at one shape in the same way; answered with Timed."""

    path: str
    baseline: str
    shape: str


@dataclass(frozen=True)
class Timed:
    """Event times in microseconds per shape, what is said of them, and whether sampling was cut short.

    detail, by shape: host_us, the host's time of one call; late, the samples left out because the device waited for the
    host; host_bound where nearly all were late and were kept.
    """

    samples_us: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    detail: Mapping[str, Mapping[str, float | int | bool]] = field(default_factory=dict)
    abandoned: bool = False
    verdict: Verdict | None = None


@dataclass(frozen=True)
class MissingBinary:
    """The launcher passed arguments for which no binary was sent: compile these, then ask again."""

    specs: tuple[Specialisation, ...]
    of_seed: tuple[bool, ...]


PROOF_BLOCK = 256


@dataclass(frozen=True)
class Prove:
    """Does this worker compute the known kernel (`running.KNOWN`, blocks of PROOF_BLOCK) exactly? Answered with a bool."""

    binary: Binary


@dataclass(frozen=True)
class DeviceInfo:
    """What device is there? Answered with Device, or Failure."""


@dataclass(frozen=True)
class Device:
    """A live GPU: its name, compute capability (90), SM count, and versions of the driver and libraries."""

    name: str
    capability: int
    num_sms: int
    versions: Mapping[str, str] = field(default_factory=dict)


def spec_key(spec: Specialisation, of_seed: bool) -> str:
    """The key of a binary among those sent with one candidate."""
    return spec.key("seed" if of_seed else "candidate", "", "")
