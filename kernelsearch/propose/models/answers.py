"""The local checks of an engine's text: it gives a kernel, or the first stage that refuses it and why.

A model's text is data. It is compared with the grammar here, whatever the engine promised. It becomes source only by
the grammar's own reader, and the gate reads that source before anything executes it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from kernelsearch.core.types import Verdict
from kernelsearch.propose.engines.base import CUT, Sample
from kernelsearch.propose.grammar import Answer, AnswerRejection, Grammar

SEEN, KERNEL = "new", "kernel"
"""Stages after the grammar's own: an answer that reaches `kernel` is a structure that the run does not have yet."""

MAX_CHARACTERS = 64 * 1024
"""Longer answers are refused unread: no grammar's sentence is that long."""

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


def check_answer(sample: Sample, grammar: Grammar, gate: Gate, seen: Container[str] = ()) -> CheckedAnswer:
    """Makes every local check of one answer; seen are digests of kernels that are not new."""
    if not sample.text.strip():
        return CheckedAnswer(sample, "stopped", "an empty answer")
    if len(sample.text) > MAX_CHARACTERS:
        return CheckedAnswer(sample, "grammar", f"an answer of {len(sample.text):,} characters")
    text = _plain(sample.text, grammar) if sample.finish != CUT else sample.text
    result = grammar.apply(text, stopped=sample.finish != CUT, gate=gate)
    if isinstance(result, AnswerRejection):
        return CheckedAnswer(sample, result.stage, result.reason)
    if result.kernel.digest == grammar.parent.digest:
        reason = "only settings, which the tuner tries anyway" if result.config else "the parent again"
        return CheckedAnswer(sample, SEEN, reason, result)
    if result.kernel.digest in seen:
        return CheckedAnswer(sample, SEEN, "a kernel that this run has already", result)
    return CheckedAnswer(sample, KERNEL, "", result)


def _plain(text: str, grammar: Grammar) -> str:
    """The answer without a model's habits, if the grammar then accepts it: white space around it, a code fence."""
    forms = [text, text.strip(), text.strip() + "\n"]
    if "```" in text:
        inner = text.split("```")[1].partition("\n")[2].strip()
        forms += [inner, inner + "\n"]
    return next((form for form in dict.fromkeys(forms) if grammar.accepts(form)), text)
