"""Integers of other draws of a task: what they range over, and those draws whose integers are rare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import torch

from kernelsearch.core.types import TaskFacts
from kernelsearch.kernel.targets import Target
from kernelsearch.verify.domains import is_whole
from kernelsearch.verify.drawn_integers import choose_draws, draw_integers
from kernelsearch.verify.regime_words import CHOSEN, REACHING
from kernelsearch.worker.launcher import trace
from kernelsearch.worker.messages.jobs import JudgedCase

CHOSEN_OF, CHOSEN_OF_LARGE = 256, 16
"""Draws among which some are chosen; of large tensors, and where floats are drawn with the integers."""
MOST_TIMED = 8
"""Timed shapes, the last ones, that say how far integers reach."""
FEWEST_DRAWS, MOST_DRAWS, DRAWN_ELEMENTS, FEW_DRAWN = 3, 64, 2**17, 4
"""Draws of a task's inputs that show the range of an integer, as many as have so many elements in all; at so many
shapes they are kept."""


class IntegerDraws:
    """The integers of one task; build makes its case at a shape by a seed, on the judge's device, first by seed 0."""

    def __init__(
        self,
        task: Any,
        facts: TaskFacts,
        target: Target,
        build: Callable[[str, int], Any],
        first: Callable[[str], Any],
    ) -> None:
        self.task, self.facts, self.target, self.build, self.first = task, facts, target, build, first
        self.draw_several = lru_cache(FEW_DRAWN)(self._draw_several)
        self.find_largest = lru_cache(None)(self._find_largest)
        self.draw_timed = lru_cache(None)(self._draw_timed)

    def choose(self, shape: str, seed: int, most: int, *, whole: bool = False) -> list[int]:
        """Seeds of draws of the task whose integers are rare at a shape; none where all are alike.

        whole: of few draws, which have their floats too; none where a GPU has no room for them.
        """

        def draw(seed: int) -> Sequence[Any]:
            return [v.cpu() for v in self.build(shape, seed).inputs if is_whole(v)] if whole else self.draw(shape, seed)

        if not any(map(is_whole, self.draw(shape, seed))):
            return []
        with suppress(torch.OutOfMemoryError):
            draws = [draw(seed + n) for n in range(FEWEST_DRAWS)]
            if not choose_draws(draws, most):
                return []
            made = sum(v.numel() for v in draws[0] if isinstance(v, torch.Tensor) and not v.is_meta)
            number = CHOSEN_OF_LARGE if whole or made > DRAWN_ELEMENTS else CHOSEN_OF
            draws += [draw(seed + n) for n in range(FEWEST_DRAWS, number)]
            return [seed + n for n in choose_draws(draws, most)]
        return []

    def draw(self, shape: str, seed: int) -> list[Any]:
        """The inputs of a draw whose integers have values, if the task makes them without its floats."""
        return list(trace.build_formal(self.task, shape, self.target, whole=True, seed=seed).inputs)

    def redraw(self, case: JudgedCase, numbers: Sequence[float]) -> list[Any]:
        """The inputs of a case with the integers of its regime; numbers are the reference's own."""
        if case.regime == CHOSEN:
            made = zip(self.first(case.shape).inputs, self.draw(case.shape, case.seed), strict=True)
            return [drawn.to(v.device) if is_whole(drawn) and not drawn.is_meta else v for v, drawn in made]
        own = self.build(case.shape, case.seed)
        fixed = [self.task.domain.get(name) == "fixed" for name in own.names]
        elsewhere = self.draw_timed() if case.regime == REACHING else ()
        draws = [*self.draw_several(case.shape), own.inputs]
        return draw_integers(draws, fixed, case.regime, case.seed, numbers, elsewhere)

    def _find_largest(self, shape: str) -> int:
        """The largest integer of a draw of the task at a shape; 0 where there are none."""
        whole = (v for v in self.draw(shape, 0) if is_whole(v) and not v.is_meta)
        return max((int(v.long().max()) for v in whole), default=0)

    def _draw_timed(self) -> list[list[Any]]:
        """Draws at timed shapes, of whose inputs the integers have values."""
        return [self.draw(shape.key, 0) for shape in self.facts.shapes[-MOST_TIMED:]]

    def _draw_several(self, shape: str) -> list[Any]:
        """Inputs that the task draws at a shape by other seeds, which show the range of its integers."""
        elements = sum(v.numel() for v in self.first(shape).inputs if isinstance(v, torch.Tensor))
        number = min(MOST_DRAWS, max(FEWEST_DRAWS, DRAWN_ELEMENTS // max(1, elements)))
        return [self.build(shape, seed).inputs for seed in range(number)]


def move_marks(value: Any, marks: Mapping[int, int]) -> Any:
    """A tensor of integers with other ones for those that mark something, such as labels of -100; all else as it is."""
    if is_whole(value):
        for old, new in marks.items():
            value = value.masked_fill(value == old, new)
    return value
