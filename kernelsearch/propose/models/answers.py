"""An engine's text as a value: the kernel that it makes, or the first stage that it does not pass and why.

A model's text is data. It is compared with the grammar here, whatever the engine promised; it becomes source only by
the grammar's own reader, and that source is executed nowhere before the gate has read it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from kernelsearch.core.types import Verdict
from kernelsearch.propose.engines.base import CUT, Sample
from kernelsearch.propose.grammar import STAGES, Answer, Grammar, Rejection

SEEN, KERNEL = "new", "kernel"
LOCAL_STAGES = (*STAGES, SEEN, KERNEL)
"""What an answer passes here, in order; one that reaches `kernel` is a structure that the run does not have yet."""

MAX_CHARACTERS = 64 * 1024
"""Longer answers are not read: no grammar's sentence is that long."""

Gate = Callable[[str], Verdict]


@dataclass(frozen=True)
class Fate:
    """How far one answer came: the stage that refused it (or `kernel`), why, and what it makes."""

    sample: Sample
    stage: str
    reason: str = ""
    answer: Answer | None = None

    @property
    def good(self) -> bool:
        return self.stage == KERNEL


def fate(sample: Sample, grammar: Grammar, gate: Gate, seen: Container[str] = ()) -> Fate:
    """Every local check of one answer; seen are digests of kernels that are not new."""
    if not sample.text.strip():
        return Fate(sample, "stopped", "an empty answer")
    if len(sample.text) > MAX_CHARACTERS:
        return Fate(sample, "grammar", f"an answer of {len(sample.text):,} characters")
    text = _plain(sample.text, grammar) if sample.finish != CUT else sample.text
    made = grammar.apply(text, stopped=sample.finish != CUT, gate=gate)
    if isinstance(made, Rejection):
        return Fate(sample, made.stage, made.reason)
    if made.kernel.digest == grammar.parent.digest:
        said = "only settings, which the tuner tries anyway" if made.config else "the parent again"
        return Fate(sample, SEEN, said, made)
    if made.kernel.digest in seen:
        return Fate(sample, SEEN, "a kernel that this run has already", made)
    return Fate(sample, KERNEL, "", made)


def again(known: Fate, seen: Container[str]) -> Fate:
    """A good answer that was kept, looked at again now that the run has more kernels."""
    if known.good and known.answer.kernel.digest in seen:
        return replace(known, stage=SEEN, reason="a kernel that this run has already")
    return known


def _plain(text: str, grammar: Grammar) -> str:
    """The answer as the grammar has it, with a model's habits taken off: white space around it, a code fence."""
    forms = [text, text.strip(), text.strip() + "\n"]
    if "```" in text:
        inner = text.split("```")[1].partition("\n")[2].strip()
        forms += [inner, inner + "\n"]
    return next((form for form in dict.fromkeys(forms) if grammar.accepts(form)), text)
