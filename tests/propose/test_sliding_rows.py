"""Rows that slide: the loads that rows share are made once, and the results stay those of the kernel."""

import edit_seeds as seeds
import pytest

from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.verify import gate

SEED = seeds.seed("windows")


def apply(kernel):
    return edit_named("sliding_rows").apply(kernel, seeds.facts(kernel.render()))


def count_loads(kernel):
    return kernel.code.count("tl.load(x_ptr") + kernel.code.count("tl.load(start")


def test_shared_rows_are_loaded_once_and_the_results_are_right():
    (rewrite,) = apply(SEED)
    kernel = rewrite.kernel
    assert gate.check(kernel.render()).accepted
    assert count_loads(SEED) == 6 and count_loads(kernel) == 2
    loop = kernel.code.index("for step")
    assert kernel.code.index("w_ptr + ") < loop < kernel.code.index("tl.load(start")
    configs = [{"ROWS": rows, "ROW": row} for rows in (1, 2, 4) for row in (1, 4)]
    seeds.assert_right("windows", [SEED, kernel], configs, "config")


def test_the_grid_has_a_program_for_each_group_of_rows():
    (rewrite,) = apply(SEED)
    grid = rewrite.kernel.grid["windows_kernel"]
    assert grid == "(cdiv(cdiv(n_rows, height) * cdiv(height, ROWS), ROW), grid(1), grid(2))"


def test_a_comparison_may_be_the_other_way_round():
    (rewrite,) = apply(seeds.changed(SEED, ("there = line < n_rows", "there = n_rows > line")))
    assert count_loads(rewrite.kernel) == count_loads(apply(SEED)[0].kernel)


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ([("(y - 1) * width", "(y - 1) * 2 * width")], ""),  # of three rows two are left, which share as before
        ([("(y - 1) * width", "(y * y) * width"), ("(y + 1) * width", "(y * 3) * width"),
          ("(1 + y) * width", "(y * 3) * width")], "no row's load"),
        ([("& above", ""), ("& below", "")], "no row's load"),
        ([(", there & inside)", ", inside)")], "a store has no mask"),
        ([("most * weight", "most * tl.sum(weight, 0)")], "may combine rows"),
        ([("there = line < n_rows", "there = line != n_rows")], "no mask"),
    ],
)  # fmt: skip
def test_only_the_same_load_one_row_further_down_is_kept(pairs, why):
    result = apply(seeds.changed(SEED, *pairs))
    if why:
        assert isinstance(result, NotApplicable) and why in result.reason
    else:
        assert count_loads(result[0].kernel) == 4
