"""An operand that every program of a row of blocks unpacks is unpacked once, and what only looks like one stays."""

from __future__ import annotations

import edit_seeds as seeds
import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis.view import View
from kernelsearch.propose.edits import NotApplicable, edit_named

NAME = "packed_product"
BLOCKS = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2}


def test_the_operand_is_stored_once_in_the_type_of_the_other_one():
    (rewrite,) = seeds.applied("stored_operand", NAME)
    kernel = rewrite.kernel
    assert dict(kernel.scratch) == {"operand_ptr": ("dtype(a_ptr)", "(K, N)")}
    assert kernel.launches["packed_kernel"] == ("packed_kernel_operand", "packed_kernel")
    assert "& 15" not in kernel.function("packed_kernel").text and "program_id(2)" not in kernel.render()
    seeds.assert_right(NAME, [kernel], [BLOCKS, {**BLOCKS, "BLOCK_K": 64}])


def test_the_copy_engine_may_feed_what_is_left():
    """Without a mask along the loop, whose end says where both matrices end."""
    (rewrite,) = seeds.applied("stored_operand", NAME)
    described = edit_named("tensor_descriptor").apply(rewrite.kernel, seeds.task(NAME), "packed_kernel")
    assert isinstance(described, list) and "operand_tiles.load" in described[0].kernel.render()
    seeds.assert_right(NAME, [described[0].kernel], [BLOCKS])


HEAD = (
    seeds.HEAD
    + """@triton.jit
def product(x_ptr, w_ptr, s_ptr, y_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], dtype=tl.float32)
    step = 1.0
    for first in range(0, k, BK):
        deep = first + tl.arange(0, BK)
        x = tl.load(x_ptr + rows[:, None] * k + deep[None, :], mask=rows[:, None] < m, other=0.0)
        w = tl.load(w_ptr + deep[:, None] * n + cols[None, :], mask=cols[None, :] < n, other=0)
        w = w.to(x.dtype) * tl.load(s_ptr)
        total = tl.dot(x, w, total)
    tl.store(y_ptr + rows[:, None] * n + cols[None, :], total, mask=(rows[:, None] < m) & (cols[None, :] < n))
"""
)
OTHERS = {
    "a turn before decides": (
        "        total = tl.dot",
        "        w *= step\n        step = step * 0.5\n        total = tl.dot",
    ),
    "each program has its own": ("* tl.load(s_ptr)", "* tl.load(s_ptr + tl.program_id(0))"),
    "it is loaded as it is": ("        w = w.to(x.dtype) * tl.load(s_ptr)\n", ""),
    "the loop begins elsewhere": ("range(0, k, BK)", "range(BK, k, BK)"),
    "nothing says how many columns there are": ("cols[None, :] < n", "cols[None, :] < 2 * tl.program_id(1)"),
    "another program may change it": ("total = tl.dot", "tl.atomic_add(w_ptr, 1)\n        total = tl.dot"),
}


def test_a_short_kernel_is_taken():
    assert isinstance(edit_named("stored_operand").apply(Kernel.parse(HEAD), seeds.facts(HEAD)), list)


def test_of_two_products_each_operand_is_stored_by_itself():
    more = "        other = tl.load(w_ptr + deep[:, None] * n + cols[None, :], mask=cols[None, :] < n, other=0) * 3.0\n"
    text = HEAD.replace(
        "        total = tl.dot(x, w, total)\n", more + "        total += tl.dot(x, w) + tl.dot(x, other)\n"
    )
    rewrites = edit_named("stored_operand").apply(Kernel.parse(text), seeds.facts(text))
    texts = [rewrite.kernel.function("product").text for rewrite in rewrites]
    assert len(texts) == 2 and all(text.count("operand = tl.load") == 1 for text in texts)
    assert "tl.dot(x, operand) + tl.dot(x, other)" in texts[0] and "tl.dot(x, w) + tl.dot(x, operand)" in texts[1]


@pytest.mark.parametrize("why", OTHERS)
def test_what_is_no_operand_to_store_stays(why):
    old, new = OTHERS[why]
    assert old in HEAD
    text = HEAD.replace(old, new)
    assert isinstance(edit_named("stored_operand").apply(Kernel.parse(text), seeds.facts(text)), NotApplicable)


def test_each_value_of_a_name_gets_a_name_and_a_carried_pointer_may_be_packed():
    kernel, task = seeds.seed(NAME), seeds.task(NAME)
    text = View(kernel, kernel.function("packed_kernel"), task).in_normal_form().text
    assert "for start in range(0, K, BLOCK_K)" in text and "_ptrs +=" not in text
    names = [line.split(" = ")[0].strip() for line in text.splitlines() if line.startswith("        b")]
    assert len(names) == 4 and len(set(names)) == 4 and names[-1] == "b"
