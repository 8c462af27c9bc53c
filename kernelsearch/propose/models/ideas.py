"""Ideas: one change of a kernel as a sentence, apart from its implementation.

An idea whose first implementation fails stays among the actions and may be tried again (K-Search: "an idea should
survive a buggy first implementation"). Ideas come from the parent's hints, from the summaries of the typed edits that
apply, from a short list of open ones, and from the task's plan (`plan.py`), which has what became of each.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from kernelsearch.core.formats import format_advice
from kernelsearch.core.types import Hint, content_digest
from kernelsearch.propose.edits import EDITS
from kernelsearch.propose.models.repair import clean

OPEN = (
    "Change whatever you think costs the most time.",
    "Do less work for each element: fewer, cheaper or shared operations.",
    "Touch memory less: keep what is used twice, load early, store once.",
    "Change the shape of the work: tile sizes, rows a program, the grid, num_warps, num_stages.",
)
IMPROVE, REWRITE, COMBINE = "improve", "rewrite", "combine"
"""Kinds of ask; a correction is one more (`repair.REPAIR`)."""
IMPROVED = "Improve this kernel where most of its time goes."
REWRITTEN = (
    "Write another kernel from a different idea: another split of the work over programs, order of the passes, "
    "sequence of kernels, or other instructions"
)
COMBINED = "Combine what is best in this kernel and in the others that are shown into one."
SLOWER = (
    "It is slower than the kernel that it was made from. Find out why from its times and from what it takes of the "
    "machine; then write a kernel without that fault, or one from another idea."
)
WHOLE = {IMPROVE: 6.0, REWRITE: 6.0, COMBINE: 3.0}
"""Odds of asks for a whole kernel, by their kinds."""
HINT, FREE, EDIT = 6.0, 2.0, 0.4
"""Odds of an idea by its origin, before anything was tried."""


@dataclass(frozen=True)
class Idea:
    """One action in a sentence, with its first odds; the id marks its implementations; found: a finding asks for it.

    In a plan it has a reason, an expected gain (time before over time after), the id of the idea that it is a step of,
    and who had it.
    """

    action: str
    odds: float
    kind: str = IMPROVE
    found: bool = False
    why: str = ""
    expected: float | None = None
    above: str = ""
    author: str = ""

    @property
    def id(self) -> str:
        return content_digest(self.action)[:8]


def list_ideas(hints: Sequence[Hint], offered: Container[str] = ()) -> list[Idea]:
    """The ideas for a kernel with these hints, to which these typed edits apply; each action once."""
    faults = [h for h in hints if not h.suggestion.startswith("none")]
    every = [Idea(_sentence(h), HINT / (1 + n), found=True) for n, h in enumerate(faults)]
    every += [Idea(action, FREE / (1 + n)) for n, action in enumerate(OPEN)]
    every += [Idea(f"Try this: {e.summary}.", EDIT) for e in EDITS if e.name in offered]
    return list({i.action: i for i in reversed(every)}.values())[::-1]


def list_kernel_ideas(hints: Sequence[Hint], others: bool) -> list[Idea]:
    """The ideas for a whole kernel in place of one with these hints; others: more kernels are shown beside it.

    They follow from the hints, those for which there is no edit as well: a whole kernel may do anything.
    """
    gains = {f"Improve it: {(s := _sentence(h))[0].lower()}{s[1:]}": 1 / (1 - min(h.lost, 0.9)) for h in hints}
    gains = gains or {f"{IMPROVED} Change what costs most.": 1.0}
    improve = [
        Idea(a, WHOLE[IMPROVE] / (1 + n), expected=gain if gain > 1 else None)
        for n, (a, gain) in enumerate(gains.items())
    ]
    fault = next((h for h in hints if "roofline_us" not in h.evidence), None)  # else it is the resource that limits it
    away = f". It does without what holds this one back: {clean(fault.bottleneck, 60)}." if fault else "."
    rewrite = Idea(REWRITTEN + away, WHOLE[REWRITE], REWRITE)
    return [*improve, rewrite, *([Idea(COMBINED, WHOLE[COMBINE], COMBINE)] if others else [])]


def is_general(action: str) -> bool:
    """Whether an action is so open that no try of it says anything of the next."""
    return action in OPEN or action.startswith((IMPROVED, REWRITTEN, COMBINED, SLOWER))


def idea_of_edit(edit: str) -> Idea | None:
    """The idea of the typed edits that a strategy asks for, joined by +; None where no edit has such a name."""
    summaries = {e.name: e.summary for e in EDITS}
    known = [summaries[name] for name in edit.split("+") if name in summaries]
    return Idea(f"Try this: {'; then: '.join(known)}.", EDIT) if known else None


def _sentence(hint: Hint) -> str:
    text = f"{format_advice(hint, edits=False)} (the bottleneck is {hint.bottleneck})."
    return text[:1].upper() + text[1:]
