"""The model-free proposer: a typed edit drawn by weight, then one of its variants, until one is new."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kernelsearch.propose.edits import EDITS, Edit, NotApplicable
from kernelsearch.protocols import Request, Rewrite


class TypedEdits:
    """Draws edits without replacement by the request's weights; the same request and rng give the same rewrite.

    An edit with weight 0 is never drawn. With `request.edit` only that edit is tried; an unknown name gives None.
    """

    name = "edits"

    def __init__(self, edits: Sequence[Edit] = EDITS) -> None:
        self.edits = tuple(edits)

    def propose(self, request: Request, rng: random.Random) -> Rewrite | None:
        """A rewrite whose digest is neither the parent's nor in `request.seen`, or None when there is none."""
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

    @staticmethod
    def _new(edit: Edit, request: Request) -> list[Rewrite]:
        found = edit.apply(request.parent, request.task)
        if isinstance(found, NotApplicable):
            return []
        return [v for v in found if v.kernel.digest not in request.seen and v.kernel.digest != request.parent.digest]

    def reasons(self, request: Request) -> dict[str, str]:
        """For each edit that gives nothing for the parent, why: one clause by edit name."""
        applied = {e.name: e.apply(request.parent, request.task) for e in self.edits}
        return {name: found.reason for name, found in applied.items() if isinstance(found, NotApplicable)}
