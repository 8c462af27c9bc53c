"""The local checks of an engine's text: it gives a kernel, or the first stage that refuses it and why.

A model's text is data. It is compared with the grammar here, whatever the engine promised. It becomes source only by
the grammar's own reader, and the gate reads that source before anything executes it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from kernelsearch.core.model_calls import AnswerRecord, ModelCall
from kernelsearch.core.types import Verdict
from kernelsearch.propose.contract import Rewrite
from kernelsearch.propose.engines.base import CUT, REFUSAL, STOP, Sample, shorten
from kernelsearch.propose.grammar import Answer, AnswerRejection, Grammar, WholeKernel
from kernelsearch.propose.models.repair import clean

SEEN, KERNEL = "new", "kernel"
"""Stages after the grammar's own: an answer that reaches `kernel` is a structure that the run does not have yet."""

MAX_CHARACTERS = 1 << 20
"""Longer answers are refused unread, thinking included."""

Form = Grammar | WholeKernel
Gate = Callable[[str], Verdict]


@dataclass(frozen=True)
class CheckedAnswer:
    """The result of the checks of one answer: the stage that refused it (or `kernel`), why, and the kernel."""

    sample: Sample
    stage: str
    reason: str = ""
    answer: Answer | None = None

    @property
    def good(self) -> bool:
        return self.stage == KERNEL


def check_answer(sample: Sample, form: Form, gate: Gate, seen: Container[str] = ()) -> CheckedAnswer:
    """Makes every local check of one answer; seen are digests of kernels that are not new."""
    if not sample.text.strip():
        said = "" if sample.finish == STOP else f" ({sample.finish})"
        return CheckedAnswer(sample, "stopped", f"an empty answer{said}")
    if sample.finish == REFUSAL:
        return CheckedAnswer(sample, "stopped", f"the model refused: {shorten(sample.text)}")
    if len(sample.text) > MAX_CHARACTERS:
        return CheckedAnswer(sample, "grammar", f"an answer of {len(sample.text):,} characters")
    stopped = sample.finish != CUT
    text = form.tidy(sample.text) if stopped and isinstance(form, Grammar) else sample.text
    result = form.apply(text, stopped=stopped, gate=gate)
    if isinstance(result, AnswerRejection):
        return CheckedAnswer(sample, result.stage, result.reason)
    if result.kernel.digest == form.parent.digest:
        reason = "only settings, which the tuner tries anyway" if result.config else "the parent again, with no change"
        return CheckedAnswer(sample, SEEN, reason, result)
    if result.kernel.digest in seen:
        return CheckedAnswer(sample, SEEN, "a kernel that this run has already", result)
    return CheckedAnswer(sample, KERNEL, "", result)


def record_answer(checked: CheckedAnswer) -> AnswerRecord:
    """A checked answer as the record has it."""
    sample, kernel = checked.sample, checked.answer.kernel.digest if checked.answer and checked.good else ""
    return AnswerRecord(sample.text, sample.finish, sample.tokens, checked.stage, clean(checked.reason), kernel)


def list_rewrites(call: ModelCall, form: Form, gate: Gate, seen: Container[str]) -> list[Rewrite]:
    """The answers of a call that make new kernels, each kernel once."""
    unique: dict[str, Rewrite] = {}
    for answer in call.answers:
        checked = check_answer(Sample(answer.text, answer.finish, answer.tokens), form, gate, seen)
        if checked.good and (made := checked.answer):
            kernel = made.kernel
            why = clean(made.why) or call.action
            unique.setdefault(kernel.digest, Rewrite(kernel, call.arm, why, call.parent))
    return list(unique.values())


def take_new(waiting: list[Rewrite], seen: Container[str]) -> Rewrite | None:
    """Takes answers out of a queue up to the first whose kernel is still new."""
    while waiting:
        rewrite = waiting.pop(0)
        if rewrite.kernel.digest not in seen:
            return rewrite
    return None
