"""Which of a task's timed shapes a command is about: `--shape`, by number, key or label."""

from __future__ import annotations

from dataclasses import replace

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import TaskFacts


def narrow_to_shapes(facts: TaskFacts, wanted: tuple[str, ...]) -> TaskFacts:
    """The task with only the wanted timed shapes: numbers (`0`), keys (`timed:0`) or words of labels. Raises TaskError."""
    if not wanted:
        return facts
    kept = []
    for name in wanted:
        found = [s for s in facts.shapes if name in (s.key, s.key.removeprefix("timed:")) or name in s.label.split()]
        found = found or [s for s in facts.shapes if name.split() and set(name.split()) <= set(s.label.split())]
        if len(found) != 1:
            labels = "; ".join(f"{s.key.removeprefix('timed:')}: {s.label}" for s in facts.shapes)
            what = "no shape is" if not found else "several shapes are"
            raise TaskError(f"{what} meant by --shape {name!r}; the shapes are {labels}")
        kept += [s for s in found if s not in kept]
    return replace(facts, shapes=tuple(kept))
