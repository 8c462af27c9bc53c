"""Findings, and the changes that they suggest by the names of the edits.

A suggestion reads `word: sentence`. The word is an edit's name, a launch option, `tile size` (the kernel's block
constexprs) or `none`; a test compares this table with the registry of edits, which this room may not import.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kernelsearch.core.types import LAUNCH_OPTIONS, Hint, Trial, is_gain

CHANGES: Final = {
    "align_rows": "begin each row's tiles at an aligned address, so that loads move 16 bytes a thread",
    "peel_tail": "do full tiles without a mask and one masked tile at the end, so that loads move 16 bytes a thread",
    "sliding_columns": "load whole vectors once, and take neighbouring columns from registers",
    "rows_2d": "take a two-dimensional tile, so that neighbouring lanes read neighbouring addresses",
    "split_reduction": "share each long reduction among several programs, so that every SM has work",
    "loop_stages": "pipeline the loop, so that the next tiles load while this one is used",
    "loop_unroll": "unroll the loop, so that several loads are under way at once",
    "lane_accumulator": "accumulate per lane and reduce once behind the loop",
    "online": "compute maximum and sum in one pass over the row",
    "fused_passes": "compute mean and variance in one pass over the row",
    "share_rows": "share each row among many programs, so that it is still in L2 when it is read again",
    "grouped_order": "let programs that run together share operands in L2",
    "dot_precision": "allow tf32 operands, where the task's precision does, so that tensor cores are used",
    "tensor_descriptor": "load tiles through tensor descriptors, so that the copy engine feeds the matrix units",
    "streamed_product": "let the copy engine feed the matrix units in a persistent loop, with large tiles",
    "gluon_product": "write the product in Gluon, with a warp that loads and others that multiply",
    "gluon_attention": "write attention in Gluon, with a warp that loads and others that multiply",
    "exp2": "compute exponentials in base two",
    "reciprocal": "divide once and multiply",
    "persistent": "start a few programs per SM that loop over the work",
    "num_warps": "",
    "num_stages": "",
    "maxnreg": "",
    "tile size": "",
    "none": "",
}
"""Each word with its usual sentence; empty for words that are no edits, whose sentence depends on the numbers."""

NOT_EDITS = frozenset(word for word, sentence in CHANGES.items() if not sentence)


BOTTLENECKS = (
    *"memory bandwidth/memory latency/occupancy/issue/tensor core/shared-memory banks/launch/tail wave".split("/"),
    *("spills", "contention"),
)

MEMORY = "memory traffic is all that it waits for"
"""What the gain of a fault in memory traffic takes for granted."""


@dataclass(frozen=True)
class Finding:
    """A hint and, in order, the suggestions to make instead where its own edit does not apply to the kernel."""

    hint: Hint
    others: tuple[str, ...] = ()

    @property
    def lost(self) -> float:
        return self.hint.lost


def make_finding(
    lost: float, bottleneck: str, name: str, why: str, *advice: str, assuming: str = MEMORY, **evidence: float
) -> Finding:
    """A finding; advice is words of `CHANGES`, or `word: sentence`, the best first, the last one no edit.

    Whether an edit applies is found out later; the last one can always be followed. At most four numbers.
    """
    if bottleneck not in BOTTLENECKS or len(evidence) > 4:
        raise ValueError(f"no such finding: {bottleneck!r} with {len(evidence)} numbers")
    if advice[-1].partition(":")[0] not in NOT_EDITS:
        raise ValueError(f"the last advice of {name!r} may not apply: {advice[-1]}")
    parts = (text.partition(": ") for text in advice)
    first, *others = (format_suggestion(word, sentence) for word, _, sentence in parts)
    numbers = {k: round_for_people(v) for k, v in evidence.items()}
    return Finding(Hint(bottleneck, numbers, first, name, why, lost, assuming), tuple(others))


def round_for_people(value: float) -> float:
    """Three significant digits, whole numbers kept whole."""
    if value == 0 or not math.isfinite(value):
        return value
    if float(value).is_integer():
        return int(value)
    return float(f"{value:.3g}")


def format_suggestion(word: str, sentence: str = "") -> str:
    """The text of a suggestion. Raises KeyError for a word that is not in the table."""
    usual_sentence = CHANGES[word]
    return f"{word}: {sentence or usual_sentence}"


def word_of(hint: Hint) -> str:
    """The first word of a hint's suggestion."""
    return hint.suggestion.partition(":")[0]


def withdraw_tried(hints: Iterable[Hint], kernel: str, trials: Sequence[Trial]) -> tuple[Hint, ...]:
    """The hints about a kernel's best trial; what the run has tried there in vain is promised no more."""
    own = [t for t in trials if t.kernel == kernel]
    best = min((t for t in own if t.score is not None), key=lambda t: (t.score, t.number), default=None)

    def is_vain(best: Trial, hint: Hint) -> bool:
        word, asked = word_of(hint), re.search(r": (\d+)\b", hint.suggestion)
        if word not in NOT_EDITS:
            scores = [t.score for t in trials if t.edit == word and kernel in t.proposal.parents]
            return bool(scores) and not any(s and is_gain((best.score or s) / s) for s in scores)
        changed = [(n.rpartition(".")[2], v) for t in own for n, v in t.config.items() if v != best.config.get(n)]
        if word in LAUNCH_OPTIONS:
            return any(n == word and (not asked or v == int(asked[1])) for n, v in changed)
        return word != "none" and any(n not in LAUNCH_OPTIONS for n, _ in changed)

    vain = " This run has tried that, in vain."
    return tuple(replace(h, lost=0.0, why=h.why + vain) if best and is_vain(best, h) else h for h in hints)


def list_suggested_edits(hints: Iterable[Hint]) -> tuple[str, ...]:
    """The edits that these hints name, most important first, each once."""
    words = dict.fromkeys(word_of(h) for h in hints)
    return tuple(w for w in words if w in CHANGES and w not in NOT_EDITS)
