"""Narrows a task to some of its timed shapes: `--shape`, by number, key or label."""

from __future__ import annotations

from dataclasses import replace

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import TaskFacts


def narrow_to_shapes(facts: TaskFacts, wanted: tuple[str, ...]) -> TaskFacts:
    """The task with only the wanted shapes: numbers (`0`), keys (`timed:0`) or words of labels. Raises TaskError."""
    if not wanted:
        return facts
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
