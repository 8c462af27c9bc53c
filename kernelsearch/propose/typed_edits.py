"""The proposer without a model: draws a typed edit by weight, then the first of its variants that is new.

Where a launcher has several functions, and it is known what each took, those are changed first that take most.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from kernelsearch.core.formats import format_count
from kernelsearch.core.types import TaskFacts, content_digest
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.contract import Proposer, Request, Rewrite
from kernelsearch.propose.edits import EDITS, Edit, Failed, NotApplicable
from kernelsearch.tune.blocks import share_of_changed, share_parts

COLD = 0.02
"""A change of functions that take less than this share of a kernel's time is drawn where nothing else is left."""
CACHE_SIZE = 4096
"""The number of pairs of an edit and a parent whose variants are cached."""


class TypedEdits(Proposer):
    """Draws edits without replacement by the request's weights; the same request and rng give the same rewrite.

    An edit with weight 0 is never drawn. With `request.edit` only that edit is tried; an unknown name gives None.
    Several names joined by + are a composition: each edit is applied to the result of those before it, and one that
    does not apply is left out.
    """

    name = "edits"

    def __init__(self, edits: Sequence[Edit] = EDITS) -> None:
        self.edits = tuple(edits)
        self._cache: dict[tuple[str, str, str], list[Rewrite]] = {}
        self._failed: dict[str, list[str]] = {}
        self._say: Callable[[str], None] = lambda text: None

    def propose(self, request: Request, rng: random.Random) -> Rewrite | None:
        """A rewrite whose digest is neither the parent's nor in `request.seen`, or None if there is none."""
        if request.edit is not None and "+" in request.edit:
            return self._compose(request, request.edit.split("+"))
        odds = {e: max(0.0, request.weights.get(e.name, 1.0)) for e in self.edits}
        if request.edit is not None:
            odds = {e: 1.0 for e in self.edits if e.name == request.edit}
        parts, cold = _shares_of(request), None
        while sum(odds.values()) > 0:
            edit = rng.choices(list(odds), list(odds.values()))[0]
            del odds[edit]
            variants = self._variants(edit, request.parent, request.task)
            ranked = _rank_by_time([v for v in variants if _is_new(v.kernel, request)], request.parent, parts)
            if ranked and ranked[0][0] >= COLD:
                return ranked[0][1]
            cold = cold or (ranked[0][1] if ranked else None)
        return cold

    def list_edits(self, kernel: Kernel, task: TaskFacts) -> tuple[str, ...]:
        return tuple(e.name for e in self.edits if self._variants(e, kernel, task))

    def list_usual_gains(self) -> Mapping[str, float]:
        return {e.name: e.usual_gain for e in self.edits}

    def list_failures(self) -> list[str]:
        return [
            f"edit {name} failed on {format_count(len(reasons), 'kernel')}, and was skipped there: {reasons[0]}"
            for name, reasons in self._failed.items()
        ]

    def send_sentences_to(self, say: Callable[[str], None]) -> None:
        self._say = say

    def _note_failure(self, name: str, reason: str) -> None:
        """Notes that a user's own edit failed on another kernel; says so the first time."""
        if name not in self._failed:
            self._say(f"edit {name} is skipped where it fails: {reason}")
        self._failed.setdefault(name, []).append(reason)

    def _compose(self, request: Request, names: Sequence[str]) -> Rewrite | None:
        """The first variant of each edit of a composition, applied in order; None if the result is not new."""
        kernel, rewrites, parts = request.parent, [], _shares_of(request)
        for name in names:
            edit = next((e for e in self.edits if e.name == name), None)
            variants = _rank_by_time(self._variants(edit, kernel, request.task), kernel, parts) if edit else []
            if variants:
                rewrites.append(variants[0][1])
                kernel = rewrites[-1].kernel
        if not _is_new(kernel, request):
            return None
        return Rewrite(kernel, "+".join(r.edit for r in rewrites), " ".join(r.rationale for r in rewrites))

    def _variants(self, edit: Edit, parent: Kernel, task: TaskFacts) -> list[Rewrite]:
        """The variants that the edit makes of the parent; cached, because good parents are drawn again and again."""
        key = (edit.name, task.digest, content_digest(parent.render()))
        if key not in self._cache:
            variants = edit.apply(parent, task)
            if isinstance(variants, Failed):
                self._note_failure(edit.name, variants.reason)
            self._cache[key] = [] if isinstance(variants, NotApplicable) else variants
            if len(self._cache) > CACHE_SIZE:
                self._cache.pop(next(iter(self._cache)))
        return self._cache[key]


def _shares_of(request: Request) -> dict[str, float]:
    """The share of the parent's time that each of its functions took; {} where that is not known."""
    measurement = request.trial.outcome.measurement if request.trial else None
    return share_parts(measurement, measurement.by_shape) if measurement else {}


def _rank_by_time(
    variants: Sequence[Rewrite], parent: Kernel, parts: Mapping[str, float]
) -> list[tuple[float, Rewrite]]:
    """Each with the share of the time that it changes, the largest first; 1 where that is not known."""
    ranked = [(share_of_changed(parent, v.kernel, parts) if parts else 1.0, v) for v in variants]
    return sorted(ranked, key=lambda pair: -pair[0])


def _is_new(kernel: Kernel, request: Request) -> bool:
    return kernel.digest not in request.seen and kernel.digest != request.parent.digest
