"""Hints on blocks that are read once: the last pass over a row has them whole, in however many loops it comes."""

import edit_seeds as seeds
import pytest

from kernelsearch.propose.edits import edit_named

HINT = 'eviction_policy="evict_first"'


@pytest.mark.parametrize(("before", "hints"), [("", 1), ("align_rows", 3), ("peel_tail", 2), ("online+align_rows", 3)])
def test_the_loads_of_the_last_pass_have_the_hint(before, hints):
    kernel, task = seeds.seed("softmax_wide"), seeds.task("softmax_wide")
    for name in filter(None, before.split("+")):
        made = edit_named(name).apply(kernel, task)
        kernel = made[0].kernel if isinstance(made, (list, tuple)) else kernel
    (rewrite,) = edit_named("eviction_hint").apply(kernel, task)
    lines = [line for line in rewrite.kernel.code.splitlines() if "tl.load" in line]
    assert [HINT in line for line in lines] == [False] * (len(lines) - hints) + [True] * hints
