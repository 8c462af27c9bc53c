"""Narrows a task to some of its timed shapes: `--shape`, by number, key or label; of very many, to some far apart."""

from __future__ import annotations

import math
from dataclasses import replace

from kernelsearch.core.errors import TaskError
from kernelsearch.core.timed_shapes import place_shapes
from kernelsearch.core.types import TaskFacts

MOST = 128
"""Timed shapes of a search: a tree serves what lies between them."""


def narrow_to_shapes(facts: TaskFacts, wanted: tuple[str, ...]) -> TaskFacts:
    """The task with only the wanted shapes: numbers (`0`), keys (`timed:0`) or words of labels. Raises TaskError.

    Where none are named it has at most MOST, each as far from those before it as any is.
    """
    if not wanted:
        return facts if len(facts.shapes) <= MOST else _spread_shapes(facts)
    shapes = {}
    for name in wanted:
        words = set(name.split())
        matches = [
            s
            for s in facts.shapes
            if name in (s.key, s.key.removeprefix("timed:")) or (words and words <= set(s.label.split()))
        ]
        if len(matches) != 1:
            labels = "; ".join(f"{s.key.removeprefix('timed:')}: {s.label}" for s in facts.shapes)
            what = "several shapes are" if matches else "no shape is"
            raise TaskError(f"{what} meant by --shape {name!r}; the shapes are {labels}")
        shapes[matches[0].key] = matches[0]
    return replace(facts, shapes=tuple(shapes.values()))


def _spread_shapes(facts: TaskFacts) -> TaskFacts:
    points = place_shapes(facts.shapes)
    chosen, last = set[str](), facts.shapes[0].key
    apart = dict.fromkeys(points, math.inf)
    while len(chosen) < MOST:
        chosen.add(last)
        apart = {key: min(least, math.dist(points[key], points[last])) for key, least in apart.items()}
        last = max(apart, key=apart.__getitem__)
    return replace(facts, shapes=tuple(s for s in facts.shapes if s.key in chosen))
