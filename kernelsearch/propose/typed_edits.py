"""The model-free proposer: a typed edit drawn by weight, then one of its variants, until one is new."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence

from kernelsearch.core.types import TaskFacts, content_digest
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.contract import Proposer, Request, Rewrite
from kernelsearch.propose.edits import EDITS, Edit, NotApplicable

KEPT = 4096
"""Applications of an edit to a parent whose variants are remembered."""


class TypedEdits(Proposer):
    """Draws edits without replacement by the request's weights; the same request and rng give the same rewrite.

    An edit with weight 0 is never drawn. With `request.edit` only that edit is tried; an unknown name gives None.
    Several names joined by + are composed: each is applied to what the ones before it made, and one that does not
    apply drops out.
    """

    name = "edits"

    def __init__(self, edits: Sequence[Edit] = EDITS) -> None:
        self.edits = tuple(edits)
        self._applied: OrderedDict[tuple[str, str, str], list[Rewrite] | NotApplicable] = OrderedDict()

    def propose(self, request: Request, rng: random.Random) -> Rewrite | None:
        """A rewrite whose digest is neither the parent's nor in `request.seen`, or None when there is none."""
        if request.edit is not None and "+" in request.edit:
            return self._composed(request, rng)
        left = [e for e in self.edits if request.edit in (None, e.name)]
        weights = [max(0.0, request.weights.get(e.name, 1.0)) for e in left]
        if request.edit is not None:
            weights = [1.0] * len(left)
        while left and sum(weights) > 0:
            at = rng.choices(range(len(left)), weights)[0]
            edit = left.pop(at)
            weights.pop(at)
            new = self._new(edit, request)
            if new:
                return new[rng.randrange(len(new))]
        return None

    def _composed(self, request: Request, rng: random.Random) -> Rewrite | None:
        """The edits of a composition in their order, a variant of each; None when nothing new comes of them."""
        kernel, made = request.parent, []
        for name in request.edit.split("+"):
            edit = next((e for e in self.edits if e.name == name), None)
            found = self._variants(edit, kernel, request.task) if edit else []
            if not isinstance(found, NotApplicable) and found:
                made.append(found[rng.randrange(len(found))])
                kernel = made[-1].kernel
        if not made or kernel.digest in request.seen or kernel.digest == request.parent.digest:
            return None
        return Rewrite(kernel, "+".join(m.edit for m in made), " ".join(m.rationale for m in made))

    def _variants(self, edit: Edit, parent: Kernel, task: TaskFacts) -> list[Rewrite] | NotApplicable:
        """What the edit makes of the parent; good parents are asked again and again, and an edit costs milliseconds."""
        key = (edit.name, task.digest, content_digest(parent.render()))
        if key not in self._applied:
            self._applied[key] = edit.apply(parent, task)
            if len(self._applied) > KEPT:
                self._applied.popitem(last=False)
        return self._applied[key]

    def _new(self, edit: Edit, request: Request) -> list[Rewrite]:
        found = self._variants(edit, request.parent, request.task)
        if isinstance(found, NotApplicable):
            return []
        return [v for v in found if v.kernel.digest not in request.seen and v.kernel.digest != request.parent.digest]

    def reasons(self, request: Request) -> dict[str, str]:
        """For each edit that gives nothing for the parent, why: one clause by edit name."""
        applied = {e.name: self._variants(e, request.parent, request.task) for e in self.edits}
        return {name: found.reason for name, found in applied.items() if isinstance(found, NotApplicable)}
