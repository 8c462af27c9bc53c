"""Inner tiles: programs inside all bounds run without masks, and the results stay those of the kernel."""

import edit_seeds as seeds
import pytest

from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.verify import gate

SEED = seeds.seed("windows")


def apply(kernel):
    return edit_named("inner_tiles").apply(kernel, seeds.facts(kernel.render()))


def test_programs_inside_all_bounds_have_no_masks_and_the_results_are_right():
    (rewrite,) = apply(SEED)
    kernel = rewrite.kernel
    assert gate.check(kernel.render()).accepted
    test, _, branches = kernel.code.partition("    if ")[2].partition(":\n")
    assert test == (
        "(tl.program_id(0) * ROW + ROW <= n_rows) & (tl.program_id(1) * COL + COL <= width - 1)"
    )  # a window of two columns asks for one more than its own
    inner, _, outer = branches.partition("    else:\n")
    assert "tl.load(w_ptr + image % channels)" in inner and "tl.load(w_ptr + image % channels, there)" in outer
    assert inner.count("tl.load(start") == 6 and "above" in inner  # rows of a plane are known to no program
    configs = [{"ROW": row, "COL": col} for row in (1, 2) for col in (2, 8)]
    seeds.assert_right("windows", [kernel], configs, "config")


@pytest.mark.parametrize(
    ("pairs", "part"),
    [
        ([("inside = col < width", "inside = col * col < width")], "inside"),
        ([("there = line < n_rows", "there = line % 8 < n_rows")], "there"),
        ([("    here =", "    col += 0\n    again = col < width\n    here =")], "inside"),  # one text, of two columns
    ],
)
def test_what_is_not_known_of_a_program_keeps_its_mask(pairs, part):
    (rewrite,) = apply(seeds.changed(SEED, *pairs))
    inner = rewrite.kernel.code.partition("    if ")[2].partition("    else:\n")[0]
    stored = next(line for line in inner.splitlines() if "tl.store" in line)
    assert f"{part}_in = " in inner and stored.endswith(f", {part}_in)")


def test_a_kernel_whose_masks_are_of_data_is_left_alone():
    masks = [(mask, "tl.load(w_ptr + col) < width") for mask in ("col < width", "col + 1 < width")]
    kernel = seeds.changed(SEED, ("there = line < n_rows", "there = line * line < n_rows"), *masks)
    assert isinstance(apply(kernel), NotApplicable)


def test_a_loop_that_counts_for_nobody_gets_a_name_that_the_gate_takes():
    kernel = seeds.changed(SEED, ("    here =", "    for _ in range(2):\n        col += 0\n    here ="))
    for rewrite in apply(kernel):
        assert gate.check(rewrite.kernel.render()).accepted


TRIANGLE = """
r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
there = (r < n_rows) & (c < n_cols)
x = tl.load(x_ptr + r * n_cols + c, mask=there, other=0.0)
tl.store(y_ptr + r * n_cols + c, tl.where(r >= c, x, 0.0), mask=there)
tl.atomic_add(z_ptr + c, x, mask=there)
tl.atomic_add(z_ptr + c, x, there, "relaxed")
"""


def test_a_triangle_is_no_bound_and_updates_lose_their_masks_too():
    """Programs above the diagonal are inside all bounds as well; Triton takes no plain `True` as a mask."""
    (rewrite,) = apply(seeds.drawn(TRIANGLE, "x_ptr, y_ptr, z_ptr, n_rows, n_cols, BLOCK: tl.constexpr"))
    test, _, branches = rewrite.kernel.code.partition("    if ")[2].partition(":\n")
    assert test.count("<=") == 2 and ">=" not in test
    inner = branches.partition("    else:\n")[0]
    assert "tl.where(r >= c, x_in, 0.0))" in inner and "there" not in inner and "True" not in inner
    assert "tl.atomic_add(z_ptr + c, x_in)" in inner and "tl.atomic_add(z_ptr + c, x_in, None, 'relaxed')" in inner
