"""Atomics of many rows to one place become one a program; what is added elsewhere stays as it is."""

from __future__ import annotations

import re

import edit_seeds as seeds
import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import NotApplicable, edit_named

NAME = "norm_gradient"


def test_a_program_adds_the_sum_of_its_rows_once():
    (rewrite,) = seeds.applied("summed_atomics", NAME)
    text = rewrite.kernel.render()
    loop, end = re.search(
        r"for row in range\(tl.program_id\(0\), n_programs(.*)\n    tl.atomic_add\((.*)", text, re.DOTALL
    ).groups()
    assert "sums += tl.where(mask, dy * normed, 0.0)" in loop and "atomic" not in loop
    assert end.startswith("dw_ptrs, sums, mask=cols < n_cols)")  # the row's part of the mask is of no row here
    seeds.assert_right(NAME, [rewrite.kernel], [{"WAVES": 1}, {"WAVES": 16}])


HEAD = seeds.HEAD + "@triton.jit\ndef add_kernel(x_ptr, ids_ptr, out_ptr, n, B: tl.constexpr):\n"
LOADED = """    row = tl.program_id(0)
    cols = tl.arange(0, B)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
"""
OTHERS = {
    "a place of each row's own": "    tl.atomic_add(out_ptr + row * n + cols, x, mask=cols < n)\n",
    "a place that is loaded": "    tl.atomic_add(out_ptr + tl.load(ids_ptr + row) * n + cols, x, mask=cols < n)\n",
    "a place that ends where rows end": "    tl.atomic_add(out_ptr + cols, x, mask=cols < row)\n",
    "what was there before is read": "    old = tl.atomic_add(out_ptr, tl.sum(x))\n    tl.store(x_ptr + row, old)\n",
    "a place that ends where rows end, in one condition of two": (
        "    tl.atomic_add(out_ptr + cols, x, mask=(cols >= 0) & (cols < row))\n"
    ),
    "places that move between two additions": (
        "    at = out_ptr + cols\n    tl.atomic_add(at, x, mask=cols < n)\n    at += n\n"
        "    tl.atomic_add(at, x, mask=cols < n)\n"
    ),
    "the last one finishes": (
        "    tl.atomic_add(out_ptr, tl.sum(x))\n    if tl.atomic_add(ids_ptr, 1) == tl.num_programs(0) - 1:\n"
        "        tl.store(x_ptr, tl.load(out_ptr))\n"
    ),
    "what is added to is read": (
        "    tl.atomic_add(out_ptr + cols, x, mask=cols < n)\n    tl.store(x_ptr + row, tl.load(out_ptr))\n"
    ),
    "nothing is added": "    tl.store(x_ptr + row * n + cols, x, mask=cols < n)\n",
}


@pytest.mark.parametrize("why", OTHERS)
def test_what_is_added_elsewhere_stays(why):
    text = HEAD + LOADED + OTHERS[why]
    assert isinstance(edit_named("summed_atomics").apply(Kernel.parse(text), seeds.facts(text)), NotApplicable)


@pytest.mark.parametrize("mask", ["row < n", "(cols < n) & (row < n)"])
def test_one_number_for_each_place_is_a_block_of_sums(mask):
    text = HEAD + LOADED + f"    tl.atomic_add(out_ptr + cols, 1.0, mask={mask})\n"
    (rewrite,) = edit_named("summed_atomics").apply(Kernel.parse(text), seeds.facts(text))
    assert "sums = tl.zeros([B], tl.float32)" in (made := rewrite.kernel.render())
    assert f"sums += tl.where({mask}, 1.0, 0.0)" in made
    assert made.endswith("sums, mask=cols < n)\n" if "&" in mask else "sums)\n")


def test_sums_of_a_column_of_tiles_stay_in_their_column():
    """A grid of tiles: those of one column add to the same place, and only they."""
    body = (
        "    rows = tl.program_id(1) * B + tl.arange(0, B)[:, None]\n"
        "    cols = tl.program_id(0) * B + tl.arange(0, B)\n"
        "    x = tl.load(x_ptr + rows * n + cols[None, :])\n    tl.atomic_add(out_ptr + cols, tl.sum(x, axis=0))\n"
    )
    text = HEAD + body
    (rewrite,) = edit_named("summed_atomics").apply(Kernel.parse(text), seeds.facts(text))
    made = rewrite.kernel.render()
    assert "range(tl.program_id(1), n_programs, tl.num_programs(1))" in made
    assert "GRID = '(grid(0), min(grid(1), num_sms * WAVES), grid(2))'" in made
