"""Of very many timed shapes a search times some that lie apart; of a few it times all, or those that are named."""

import itertools
from dataclasses import dataclass

import pytest

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import ShapeFact
from kernelsearch.tasks.narrowing import MOST, narrow_to_shapes


@dataclass(frozen=True)
class Facts:
    shapes: tuple


def facts(number, **fixed):
    sizes = [{"cols": 8 * n, **fixed} for n in range(1, number + 1)]
    labels = [" ".join(f"{name}={value}" for name, value in params.items()) for params in sizes]
    return Facts(tuple(ShapeFact(f"timed:{n}", label, p) for n, (label, p) in enumerate(zip(labels, sizes))))


def test_a_few_shapes_are_all_timed():
    assert narrow_to_shapes(facts(MOST), ()) == facts(MOST)


def test_of_a_thousand_shapes_those_that_lie_apart_are_timed():
    known = facts(1000, rows=64)
    chosen = narrow_to_shapes(known, ()).shapes
    cols = [s.params["cols"] for s in chosen]
    assert len(set(cols)) == MOST and cols == sorted(cols) and all(s in known.shapes for s in chosen)
    assert (cols[0], cols[-1]) == (8, 8000)
    assert max(after / before for before, after in itertools.pairwise(cols[8:])) < 1.15
    assert narrow_to_shapes(known, ()) == narrow_to_shapes(known, ())


def test_named_shapes_are_those():
    known = facts(1000)
    assert [s.key for s in narrow_to_shapes(known, ("999", "cols=16")).shapes] == ["timed:999", "timed:1"]
    with pytest.raises(TaskError, match="no shape is meant by --shape '1000'"):
        narrow_to_shapes(known, ("1000",))
