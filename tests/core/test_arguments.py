"""What a script passes as options is taken in one form, and a count that is none is one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernelsearch.api.measurement import MeasureOptions
from kernelsearch.api.optimize_options import OptimizeOptions
from kernelsearch.core.errors import KernelsearchError


@pytest.mark.parametrize("given", [{"trials": "40"}, {"trials": 0}, {"trials": True}, {"window": 0}, {"kernels": 1.5}])
def test_a_count_that_is_none_is_one_sentence(given):
    ((name, value),) = given.items()
    for make in (OptimizeOptions, lambda **fields: replace(OptimizeOptions(), **fields)):
        with pytest.raises(KernelsearchError) as caught:
            make(**given)
        assert str(caught.value) == f"{name} is a whole number of at least 1, not {value!r}"


def test_paths_and_single_values_are_taken():
    options = OptimizeOptions(edits="mine.py", starts=[Path("a.py"), "b.py"], db=Path("x.db"), out=Path("y.py"))
    assert (options.edits, options.starts, options.db, options.out) == (("mine.py",), ("a.py", "b.py"), "x.db", "y.py")
    assert MeasureOptions(shapes="rows=7", db=Path("x.db")) == MeasureOptions(shapes=("rows=7",), db="x.db")
    assert OptimizeOptions().window is None
