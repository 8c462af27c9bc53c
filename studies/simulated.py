"""A search without a compiler or a GPU: a made-up landscape, its proposer, and evaluators that wrap each other.

The landscape is an invention with the features that real spaces show (few good configs, a third of the
rewrites invalid, many of the others slower, tuning optima that move with the structure, a floor that no
kernel goes below). Its numbers are not measurements of anything. Everything is a function of the
candidate and of seeds, never of order or time, so that a search over it can be repeated exactly.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kernelsearch.core.types import (
    Config,
    Evidence,
    Measurement,
    Outcome,
    ShapeFact,
    ShapeTime,
    TaskFacts,
    Verdict,
    Word,
    config_key,
    content_digest,
)
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.contract import Proposer, Request, Rewrite
from kernelsearch.trial.evaluator import Evaluator

SPACE = {
    "BLOCK": (128, 256, 512, 1024, 2048),
    "ROWS": (1, 2, 4, 8),
    "num_warps": (1, 2, 4, 8, 16),
    "num_stages": (1, 2, 3, 4),
}
CONFIG = {"BLOCK": 1024, "ROWS": 1, "num_warps": 4, "num_stages": 2}
SEED_KERNEL = """import triton
import triton.language as tl


@triton.jit
def simulated_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)
"""
SHAPES = (("timed:0", "n=1024", 10.0), ("timed:1", "n=65536", 300.0))
"""Key, label and the seed's order of magnitude in microseconds."""


def unit(*parts: object) -> float:
    """A number in [0, 1) that is a function of parts: the landscape's only source of chance."""
    return int(content_digest(*map(str, parts)), 16) / 2.0**64


def task(name: str = "simulated") -> TaskFacts:
    """The task of every landscape: one plain kernel, two timed shapes, 400 configs."""
    shapes = tuple(ShapeFact(key, label, {"n": int(label[2:])}) for key, label, _ in SHAPES)
    return TaskFacts(
        name=name,
        path=f"{name}.py",
        digest=content_digest(name, SEED_KERNEL),
        form="native",
        seed=SEED_KERNEL,
        sites=("simulated_kernel",),
        shapes=shapes,
        test_shapes=(),
        space=SPACE,
        config=CONFIG,
    )


MEASURED = {
    "edits": 28, "invalid": 0.05, "helpful": 0.2, "floor": 0.15, "closes": 0.15, "same": 0.6, "applies": 0.7,
    "idle": ("num_stages",), "tuning": 1.5,
}  # fmt: skip
"""What searches of softmax_wide and attention on an H200 showed: a third of the trials ran machine code that an earlier
one had run, and an edit may keep a better one from being made."""


@dataclass(frozen=True)
class Landscape:
    """Time as structure gain x config gain over a floor, in the seed's units.

    edits is how many rewrites exist; invalid the share that is rejected; helpful the share of the rest
    that gains (half of what remains is neutral, half slower); floor the part of the seed's time that
    stays; interplay the chance that two edits change each other's effect; applies the share of edits that
    apply to the seed (each of the others needs one certain edit before it); closes the chance that an edit keeps
    another one from applying afterwards; same the share of neutral edits that leave the machine code as it is; idle are
    the parameters that change nothing; tuning scales what a bad config costs.
    """

    seed: int = 0
    edits: int = 20
    invalid: float = 0.3
    helpful: float = 0.3
    floor: float = 0.35
    interplay: float = 0.12
    applies: float = 0.6
    closes: float = 0.0
    same: float = 0.0
    idle: tuple[str, ...] = ()
    tuning: float = 1.0

    def names(self) -> tuple[str, ...]:
        return tuple(f"edit_{i:02d}" for i in range(self.edits))

    def applicable(self, structure: frozenset[str]) -> list[str]:
        """The edits that apply to a structure and were not made there yet."""
        names = self.names()
        return [
            e
            for e in names
            if e not in structure
            and not any(unit(self.seed, "closes", made, e) < self.closes for made in structure)
            and (
                unit(self.seed, "applies", e) < self.applies
                or names[int(unit(self.seed, "needs", e) * self.edits)] in structure
            )
        ]

    def rejected(self, structure: frozenset[str]) -> bool:
        """Some edits never work, others only fail on what their parent looks like."""
        always = any(unit(self.seed, "never", e) < self.invalid / 2 for e in structure)
        here = len(structure) > 0 and unit(self.seed, "here", *sorted(structure)) < self.invalid / 2
        return always or here

    def work_of(self, structure: frozenset[str], config: Config) -> tuple[frozenset[str], Config]:
        """The edits and parameters that the machine code depends on."""
        edits = frozenset(e for e in structure if not (self._is_neutral(e) and unit(self.seed, "same", e) < self.same))
        return edits, {n: v for n, v in config.items() if n not in self.idle}

    def _is_neutral(self, edit: str) -> bool:
        return self.helpful <= unit(self.seed, "kind", edit) < (1 + self.helpful) / 2

    def log_gain(self, structure: frozenset[str]) -> float:
        return _log_gain(self, structure)

    def log_penalty(self, structure: frozenset[str], config: Config) -> float:
        """How far a config is from its structure's best one; 0 there, up to about 2."""
        total = 0.0
        for name, values in SPACE.items():
            if name in self.idle:
                continue
            best = unit(self.seed, "best", name) * (len(values) - 1)
            for edit in sorted(structure):
                if unit(self.seed, "moves", edit, name) < 0.3:
                    best += 1.0 if unit(self.seed, "where", edit, name) < 0.5 else -1.0
            best = min(max(best, 0.0), len(values) - 1.0)
            at = values.index(config[name]) if config.get(name) in values else 0
            total += (0.04 + 0.1 * unit(self.seed, "weight", name)) * abs(at - best) ** 1.5
        return self.tuning * total

    def ratio(self, structure: frozenset[str], config: Config) -> float:
        """Time over the time of a seed without penalty."""
        rough = 0.03 * (unit(self.seed, "rough", *sorted(structure), config_key(config)) - 0.5)
        effect = self.log_gain(structure) + self.log_penalty(structure, config) + rough
        return self.floor + (1 - self.floor) * math.exp(effect)


@lru_cache(maxsize=4096)
def _log_gain(land: Landscape, edits: frozenset[str]) -> float:
    total = 0.0
    structure = sorted(edits)  # sums of floats depend on their order, and a set's order on the process
    for edit in structure:
        kind, size = unit(land.seed, "kind", edit), unit(land.seed, "size", edit)
        if kind < land.helpful:
            total -= 0.05 + 0.4 * size
        elif land._is_neutral(edit):
            total += 0.02 * (size - 0.5)
        else:
            total += 0.03 + 0.4 * size
    for one in structure:
        for other in structure:
            if one < other and unit(land.seed, "pair", one, other) < land.interplay:
                total += 0.4 * (unit(land.seed, "pair size", one, other) - 0.5)
    return total


def structure_of(kernel: Kernel) -> frozenset[str]:
    """The edits that made a kernel; a simulated rewrite leaves its name as a module-level constant."""
    return frozenset(c.split(" = ")[0] for c in kernel.constants)


@dataclass(frozen=True)
class SimulatedProposer(Proposer):
    """Proposes the landscape's edits: one that the parent does not have, drawn by the request's weights."""

    landscape: Landscape

    def list_edits(self, kernel: Kernel, task: TaskFacts) -> tuple[str, ...]:
        return tuple(self.landscape.applicable(structure_of(kernel)))

    def propose(self, request: Request, rng: random.Random) -> Rewrite | None:
        if request.edit is not None and "+" in request.edit:
            return self._compose(request)
        names = [e for e in self.landscape.applicable(structure_of(request.parent)) if request.edit in (None, e)]
        while names:
            edit = rng.choices(names, [request.weights.get(e, 1.0) + 1e-9 for e in names])[0]
            names.remove(edit)
            if _child_digest(_Parent(request.parent.digest, request.parent), edit) not in request.seen:
                return Rewrite(_add_edit(request.parent, edit), edit, f"applies {edit}")
        return None

    def _compose(self, request: Request) -> Rewrite | None:
        kernel, made = request.parent, []
        for edit in request.edit.split("+"):
            if edit in self.landscape.applicable(structure_of(kernel)):
                kernel = _add_edit(kernel, edit)
                made.append(edit)
        new = made and kernel.digest not in request.seen
        return Rewrite(kernel, "+".join(made), f"applies {', '.join(made)}") if new else None


def _add_edit(kernel: Kernel, edit: str) -> Kernel:
    return kernel.with_changes(constants=tuple(sorted([*kernel.constants, f"{edit} = tl.constexpr(1)"])), config={})


@dataclass(frozen=True)
class _Parent:
    digest: str
    kernel: Kernel = field(compare=False)


@lru_cache(maxsize=1 << 16)
def _child_digest(parent: _Parent, edit: str) -> str:
    """The digest of an edited kernel, kept: to write one costs a millisecond."""
    return _add_edit(parent.kernel, edit).digest


@dataclass(frozen=True)
class Simulated(Evaluator):
    """The landscape as an evaluator: exact times, rejections where the landscape has them."""

    landscape: Landscape

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        structure = structure_of(kernel)
        if self.landscape.rejected(structure):
            return Outcome(Verdict(Word.WRONG, "judge", "simulated: wrong values at n=1024", error_ratio=40.0))
        structure, config = self.landscape.work_of(structure, config)
        ratio = self.landscape.ratio(structure, config)
        times = tuple(
            ShapeTime(key, scale * ratio * (0.97 + 0.06 * unit(self.landscape.seed, key, config_key(config))))
            for key, _, scale in SHAPES
        )
        work = content_digest(*sorted(structure), config_key(config))
        measurement = Measurement(Evidence.ESTIMATED, "simulated", "simulated", times)
        return Outcome(Verdict(Word.ACCEPT, "judge"), measurement, work=work)


@dataclass(frozen=True)
class Noisy(Evaluator):
    """Multiplies an evaluator's times by log-normal noise of relative size sigma, fixed per machine code."""

    inner: Evaluator
    sigma: float = 0.01
    seed: int = 0

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        outcome = self.inner.evaluate(kernel, config, incumbent)
        if outcome.measurement is None:
            return outcome
        times = tuple(
            replace(t, time_us=t.time_us * math.exp(self.sigma * self._normal(outcome.work, t.shape)))
            for t in outcome.measurement.times
        )
        return replace(outcome, measurement=replace(outcome.measurement, times=times))

    def _normal(self, *parts: str) -> float:
        chance = unit(self.seed, "noise", *parts)
        return statistics.NormalDist().inv_cdf(min(max(chance, 1e-12), 1 - 1e-12))


@dataclass(frozen=True)
class Failing(Evaluator):
    """Rejects a share of an evaluator's candidates, with the words of the contract; the seed's config passes."""

    inner: Evaluator
    rate: float = 0.1
    seed: int = 0
    words: tuple[Word, ...] = (Word.COMPILE, Word.TIMEOUT, Word.CRASH, Word.WRONG)

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        spared = not kernel.constants and config_key(config) == config_key(CONFIG)
        chance = unit(self.seed, "fails", kernel.digest, config_key(config))
        if spared or chance >= self.rate:
            return self.inner.evaluate(kernel, config, incumbent)
        word = self.words[int(chance / self.rate * len(self.words))]
        return Outcome(Verdict(word, "simulated", f"simulated: {word.value}"))


@dataclass(frozen=True)
class Slow(Evaluator):
    """Takes up to most_seconds for a candidate, so that trials finish in another order than they were asked."""

    inner: Evaluator
    most_seconds: float = 0.01
    seed: int = 0

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        time.sleep(self.most_seconds * unit(self.seed, "slow", kernel.digest, config_key(config)))
        return self.inner.evaluate(kernel, config, incumbent)
