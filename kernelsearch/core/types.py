"""The project's words as plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

Value = int | float | bool | str | None
"""A config's value. A string is an expression of the launch spec, such as `next_power_of_2(n_cols)`."""

Config = Mapping[str, Value]
"""Values for tunable constexprs and launch options, for example `{"BLOCK": 1024, "num_warps": 4}`.

A dotted name (`stage_two.num_warps`) is for one function of a kernel that has several.
"""

USUAL_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
AMD_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim", "kpack")
LAUNCH_OPTIONS = (*USUAL_OPTIONS, *AMD_OPTIONS)
"""Names of a config that are options of Triton's compiler, not constexprs of the kernel."""


def config_key(config: Config) -> str:
    """The one JSON text of a config: sorted names, no spaces."""
    return json.dumps(dict(config), sort_keys=True, separators=(",", ":"))


def content_digest(*parts: str) -> str:
    """The first 16 hex digits of a SHA-256 over the parts: every id of the project."""
    joined = "\x1f".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:16]


# ---------------------------------------------------------------- launches


@dataclass(frozen=True)
class TensorFact:
    """A tensor argument as a launch sees it.

    dtype is Triton's name (`fp32`, `bf16`, `i64`); shape and stride are in elements; aligned: the address is a multiple
    of 16 bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    aligned: bool = True

    @property
    def extent(self) -> int:
        """Elements from the first to the last in memory."""
        return 0 if 0 in self.shape else 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride))


@dataclass(frozen=True)
class DescriptorFact(TensorFact):
    """A tensor descriptor made on the host (Triton's `TensorDescriptor`): a view of a tensor, and the tile it moves.

    block is the shape of that tile; padding is what it reads outside of the view (`zero`, `nan`); rounds says that
    float32 elements are rounded to tf32; hooked that a hook of the launcher's autotuner sets the tile to fit a config.
    """

    block: tuple[int, ...] = ()
    padding: str = "zero"
    rounds: bool = False
    hooked: bool = False


@dataclass(frozen=True)
class DtypeFact:
    """A `tl.dtype` passed as a constexpr, by its Triton name."""

    name: str


ArgFact = TensorFact | int | float | bool | str | DtypeFact | None


@dataclass(frozen=True, order=True)
class Fill:
    """A call of the launcher that fills memory: its source file, and the line and the column (in bytes) of its end."""

    file: str
    line: int
    column: int


@dataclass(frozen=True)
class LaunchFact:
    """One launch made by the task's launcher, before a candidate changes anything.

    args has all arguments by parameter name, constexprs included; options has `num_warps` and the like; grid is None
    when the launcher's grid is a function of the constexprs (a lambda), which only its own process can call; tiles are
    the parameters that it reads. kept are the places of the configs that its autotuner's `early_config_prune` leaves
    there, None if it leaves all. fills are the calls of the launcher that fill what it passes, by parameter.
    """

    site: str
    args: Mapping[str, ArgFact]
    options: Mapping[str, Value] = field(default_factory=dict)
    grid: tuple[int, ...] | None = None
    kept: tuple[int, ...] | None = None
    tiles: tuple[str, ...] = ()
    fills: Mapping[str, tuple[Fill, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Trace:
    """All launches that the launcher makes for one shape, in order."""

    shape: str
    launches: tuple[LaunchFact, ...]


@dataclass(frozen=True)
class ShapeFact:
    """One shape of a task.

    key names it in every job and row (`timed:0`, `test:2`); label is for people (`rows=4096 cols=1024 dtype=bfloat16`);
    bytes_moved and flops are the minimum for any kernel, None when the task does not give them.
    """

    key: str
    label: str
    params: Mapping[str, Any]
    bytes_moved: int | None = None
    flops: int | None = None

    @property
    def timed(self) -> bool:
        return self.key.startswith("timed:")


@dataclass(frozen=True)
class TaskFacts:
    """A task as plain data, for the driver, which does not import torch.

    seed is the text of the seed as a kernel file (see `source.Kernel`); sites are the names of the kernels that the
    launcher launches; config is the seed's own config; notes are sentences for the user (an inferred space, a seed that
    the gate refuses). own_configs are the config lists of the seed's autotuners, one per kernel, if the file gives no
    CONFIG; tuned is how many configs they have in total, once config is the best of them (`trial/own_configs.py`).
    capability is the compute capability of the GPU that candidates run on (90), 0 without one. lanes and copy_engine
    are facts of the target: threads of a warp, and whether tensor descriptors are more than pointers there.
    """

    name: str
    path: str
    digest: str
    form: str
    seed: str
    sites: tuple[str, ...]
    shapes: tuple[ShapeFact, ...]
    test_shapes: tuple[ShapeFact, ...]
    space: Mapping[str, tuple[Value, ...]]
    config: Config
    precision: str = "ieee"
    traces: Mapping[str, Trace] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    own_configs: tuple[tuple[Config, ...], ...] = ()
    tuned: int = 0
    capability: int = 0
    lanes: int = 32
    copy_engine: bool = True

    def find_fills(self, name: str) -> tuple[Fill, ...]:
        """The launcher's fills of what it passes as a parameter, in any launch that was traced."""
        passed = (launch.fills.get(name, ()) for trace in self.traces.values() for launch in trace.launches)
        return tuple(dict.fromkeys(fill for fills in passed for fill in fills))


LEAST_GAIN = 0.01
"""A kernel that is faster by less gains nothing: the seed, which is simpler, is as good."""


def is_gain(speedup: float) -> bool:
    """Whether a speed-up over the seed counts as a gain: the rule for what is called best, shown and exported."""
    return speedup >= 1.0 + LEAST_GAIN


# ---------------------------------------------------------------- search


SAMPLER = "surrogate"
"""The default sampler of configs (`tune/surrogate.py`)."""


class _Words(StrEnum):
    """Enums that are pickled by value: Python 3.11.2 pickles by `getattr`, which the workers' channel refuses."""

    def __reduce_ex__(self, _protocol: object) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.value,)


class ProposalKind(_Words):
    SEED = "seed"
    """The task's own kernel with its own config."""
    REWRITE = "rewrite"
    """A new structure made from its parents."""
    RETUNE = "retune"
    """An existing structure with another config."""


@dataclass(frozen=True)
class Proposal:
    """A strategy's choice of what to try next.

    parents are kernel digests (none for a seed). edit names a typed edit, None leaves the choice to the proposer;
    config is an explicit config, None leaves it to the tuner; sampler says how the tuner should choose it (`surrogate`,
    the default; `neighbour`, one step from its best; `random`; or Optuna's `tpe`). drained is set by the search: it had
    to tell all that was in flight before it got this one, since an earlier proposal gave nothing new.
    """

    kind: ProposalKind
    parents: tuple[str, ...] = ()
    edit: str | None = None
    config: Config | None = None
    sampler: str = SAMPLER
    drained: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", ProposalKind(self.kind))  # also from its word
        if not isinstance(self.parents, tuple):
            raise ValueError(f"parents is a tuple of kernel digests, not {self.parents!r}")
        if self.kind is ProposalKind.SEED and self.parents:
            raise ValueError("a seed proposal has no parents")
        if self.kind is not ProposalKind.SEED and not self.parents:
            raise ValueError(f"a {self.kind.value} proposal names at least one parent")


WHOLE, WHOLE_REPAIR = "kernel", "kernel-repair"
"""The authors of whole kernels, as `Trial.edit` has them: `kernel:NAME`, `kernel-repair:NAME`."""


def is_whole_kernel(edit: str | None) -> bool:
    """True for a kernel that was written whole: its SPACE and CONFIG stand alone, and are not its parent's."""
    return edit is not None and edit.partition(":")[0] in (WHOLE, WHOLE_REPAIR)


class Word(_Words):
    """The verdict words of the contract."""

    ACCEPT = "accept"
    STATIC = "reject-static"
    COMPILE = "reject-compile"
    WRONG = "reject-wrong"
    PRECISION = "reject-precision"
    MEMORY = "reject-memory"
    RACE = "reject-race"
    TIMING = "reject-timing"
    TIMEOUT = "timeout"
    CRASH = "crash"


@dataclass(frozen=True)
class Referee:
    """The circumstances of a verdict: mode (`gpu` or `interpreter`), and the isolation layers that were on."""

    mode: str
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """Accept, or reject with the stage and the reason; failure is a value.

    error_ratio is the worst error over the tolerance (1.0 is the limit), None when nothing was computed. depth is
    `screen` or `full`. detail is for `--explain`: shape, regime, index, expected, got.
    """

    word: Word
    stage: str
    reason: str = ""
    depth: str = "screen"
    error_ratio: float | None = None
    referee: Referee = Referee("interpreter")
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.word is not Word.ACCEPT and not self.reason:
            raise ValueError("a rejection needs a reason")

    @property
    def accepted(self) -> bool:
        return self.word is Word.ACCEPT


class Evidence(_Words):
    """The kinds of evidence for a time, weakest first."""

    ESTIMATED = "estimated"
    MEASURED = "measured"
    CONFIRMED = "confirmed"


@dataclass(frozen=True)
class ShapeTime:
    """The time of one launcher call at one shape, in microseconds.

    spread_us is half the distance between the quartiles, None for an estimate; specialisation is the digest of the
    binaries that ran.
    """

    shape: str
    time_us: float
    spread_us: float | None = None
    samples: int = 0
    specialisation: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """Times on a named device under a named protocol.

    abandoned means that a bad candidate was given up early: its times are rough and some shapes may be missing.
    """

    evidence: Evidence
    device: str
    protocol: str
    times: tuple[ShapeTime, ...]
    abandoned: bool = False

    @property
    def by_shape(self) -> dict[str, float]:
        """Microseconds by a shape's key."""
        return {t.shape: t.time_us for t in self.times}

    def time_us(self, shape: str) -> float | None:
        return self.by_shape.get(shape)


@dataclass(frozen=True)
class Hint:
    """One finding about a candidate: the bottleneck, at most four numbers, one suggested change.

    name is the rule that found it, why gives its numbers in a sentence; lost is the estimated share of the time that it
    costs, provided that `assuming` holds (0: nothing is lost). `formats.explain_hint` has all as text.
    """

    bottleneck: str
    evidence: Mapping[str, float]
    suggestion: str
    name: str = ""
    why: str = ""
    lost: float = 0.0
    assuming: str = ""


@dataclass(frozen=True)
class Outcome:
    """The result of evaluating a candidate. A measurement exists if and only if the verdict is accept.

    work is the digest of the machine code that ran and of its launches, empty where that is not known. measured_by is
    empty if this trial evaluated the candidate; else it is the digest of the candidate whose evaluation was reused: the
    same one in an earlier trial, or one with the same work.
    """

    verdict: Verdict
    measurement: Measurement | None = None
    hints: tuple[Hint, ...] = ()
    seconds: float = 0.0
    work: str = ""
    measured_by: str = ""

    def __post_init__(self) -> None:
        if self.verdict.accepted != (self.measurement is not None):
            raise ValueError("a measurement exists if and only if the verdict is accept")


@dataclass(frozen=True)
class Trial:
    """One candidate's row: the proposal, the candidate, the verdict, the measurement.

    score is that of its times (`record.rows.score_times`: below 1 is faster than the seed), None unless accepted. edit
    names the change that made this kernel from its parent, rationale describes it in a sentence.
    """

    number: int
    proposal: Proposal
    kernel: str
    config: Config
    outcome: Outcome
    score: float | None = None
    edit: str | None = None
    rationale: str = ""

    def __post_init__(self) -> None:
        if self.score is not None and not self.outcome.verdict.accepted:
            raise ValueError("a rejected trial has no score")

    @property
    def accepted(self) -> bool:
        return self.outcome.verdict.accepted
