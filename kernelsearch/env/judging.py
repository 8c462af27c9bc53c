"""A proposed kernel against its parent: the compilers, the referee, the clock or the static model."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernelsearch.core.types import (
    LAUNCH_OPTIONS,
    WHOLE,
    Config,
    Outcome,
    Proposal,
    ProposalKind,
    TaskFacts,
    Trial,
    Verdict,
)
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import find_broken_constraint, is_name_of
from kernelsearch.propose.grammar import STAGES as LOCAL
from kernelsearch.propose.grammar import Answer, WholeKernel
from kernelsearch.record.rows import geometric_mean
from kernelsearch.trial import Evaluation, referee
from kernelsearch.trial.evaluator import Evaluator

STAGES = (*LOCAL, "compiles", "right", "faster")
MOST_CONFIGS = 16
"""Configs at which a parent is timed again, before a faster answer is believed."""
NOTICED = 0.995
"""A time over the parent's below which a proposal counts as faster."""


@dataclass(frozen=True)
class Parent:
    """The kernel that a model is asked about, as it was judged."""

    kernel: Kernel
    config: Config
    outcome: Outcome

    @property
    def trial(self) -> Trial:
        return Trial(0, Proposal(ProposalKind.SEED), self.kernel.digest, self.config, self.outcome, 1.0)

    def config_for(self, kernel: Kernel, edit: str, facts: TaskFacts) -> Config:
        """The config of a kernel made from this one: its own over the parent's; a whole kernel has only its own."""
        inherited = {} if edit == WHOLE else self.config
        return {**inherited, **referee.config_of(kernel, facts), **kernel.config}

    def adopt(self, config: Config) -> Config:
        """This kernel's config with the values of another kernel's that it can take."""
        taken = {n: v for n, v in config.items() if n in LAUNCH_OPTIONS or is_name_of(n, self.kernel)}
        return {**self.config, **taken}

    def adopt_numbers(self, kernel: Kernel, config: Config, facts: TaskFacts) -> Iterator[Config]:
        """Configs of this kernel with another kernel's numbers, by whatever name, those in its code too."""
        shared, space = self.adopt(config), {**facts.space, **self.kernel.space}
        said = {int(n) for n in re.findall(r"(?<![\w.])\d+(?![\w.])", kernel.render())} | {*config.values()}
        free = [n for n in space if n not in config and n not in LAUNCH_OPTIONS and is_name_of(n, self.kernel)]
        values = [[v for v in space[name] if v in said or v == shared.get(name)] for name in free]
        possible = (dict(zip(free, chosen, strict=True)) for chosen in itertools.product(*values))
        yield from itertools.islice(({**shared, **chosen} for chosen in possible), MOST_CONFIGS)


@dataclass(frozen=True)
class Judged:
    """How far a kernel got: the stages that it passed, the one that refused it and why, and its time over the parent's.

    outcome is there once the referee was asked.
    """

    passed: tuple[str, ...]
    refused: str = ""
    reason: str = ""
    ratio: float | None = None
    outcome: Outcome | None = None


def judge_parent(
    evaluation: Evaluation, facts: TaskFacts, text: str | None, say: Callable[[str], None] = lambda text: None
) -> Parent:
    """The verdict and times of a kernel file's text, or of the task's own kernel."""
    kernel = evaluation.bench.seed
    if text is not None:
        read = WholeKernel(kernel, facts.sites).read(text)
        kernel = read.kernel if isinstance(read, Answer) else Kernel.parse(text)
    config = referee.config_of(kernel, evaluation.facts) if text is not None else dict(facts.config)
    say(f"{facts.name}: judging the parent {kernel.digest[:8]} first")
    return Parent(kernel, config, evaluation.evaluate(kernel, config))


def judge_kernel(
    evaluation: Evaluation, parent: Parent, kernel: Kernel, config: Config, until: str = STAGES[-1]
) -> Judged:
    """Takes a kernel that passed the local stages as far as `until`, at `screen` depth."""
    verdict = evaluation.try_compile(kernel, config)
    if not verdict.accepted:
        return _stop((), "compiles", verdict)
    if until == "compiles":
        return Judged(("compiles",))
    outcome = evaluation.evaluate(kernel, config, parent.outcome.measurement)
    if outcome.measurement is None:
        return _stop(("compiles",), "right", outcome.verdict)
    ratio = compare_times(outcome, parent.outcome)
    right = ("compiles", "right")
    if until == "right":
        return Judged(right, ratio=ratio, outcome=outcome)
    if ratio >= NOTICED:
        return Judged(right, "faster", f"{ratio:.3f} of the parent's time", ratio, outcome)
    return Judged((*right, "faster"), ratio=ratio, outcome=outcome)


def compare_with_config(
    evaluator: Evaluator, parent: Parent, outcome: Outcome, kernel: Kernel, config: Config, facts: TaskFacts
) -> float:
    """A right kernel's time over the parent's at the better of the parent's config and this one's numbers.

    What the parent gains by the same settings is the tuner's and not the change's.
    """
    ratio = compare_times(outcome, parent.outcome)
    for own in parent.adopt_numbers(kernel, config, facts):
        if ratio > NOTICED:
            break
        if own != dict(parent.config) and find_broken_constraint(parent.kernel, own, facts) is None:
            tuned = evaluator.evaluate(parent.kernel, own, parent.outcome.measurement)
            ratio = ratio if tuned.measurement is None else max(ratio, compare_times(outcome, tuned))
    return ratio


def compare_times(outcome: Outcome, other: Outcome) -> float:
    """Time over the other's, geometric mean over the shapes that both have."""
    assert outcome.measurement is not None and other.measurement is not None  # both were accepted
    times = [(t.time_us, other.measurement.time_us(t.shape)) for t in outcome.measurement.times]
    return geometric_mean([time / base for time, base in times if base]) or 1.0


def _stop(passed: tuple[str, ...], stage: str, verdict: Verdict) -> Judged:
    return Judged(passed, stage, f"{verdict.word.value}: {verdict.reason}")
