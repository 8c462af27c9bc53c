"""A product's tile is stored in parts: what its columns need comes along, what needs the whole tile is refused."""

from __future__ import annotations

import edit_seeds as seeds
import pytest
from test_edits_right import chained

from kernelsearch.propose.edits import NotApplicable, edit_named

HEAD = """
rows = tl.arange(0, BLOCK_M)
cols = {start}tl.arange(0, BLOCK_N)
factor = tl.load(f_ptr + cols)
acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
for k in range(0, n, BLOCK_K):
    ks = k + tl.arange(0, BLOCK_K)
    a = tl.load(x_ptr + rows[:, None] * n + ks[None, :])
    b = tl.load(x_ptr + ks[:, None] * n + cols[None, :])
    acc = tl.dot(a, b, acc)
{lines}
tl.store(y_ptr + rows[:, None] * n + cols[None, :], {value})
"""
PARAMS = "x_ptr, y_ptr, f_ptr, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr"


def split(value="acc", lines="", start="", params=PARAMS):
    kernel = seeds.drawn(HEAD.format(value=value, lines=lines, start=start), params)
    return edit_named("split_epilogue").apply(kernel, seeds.task("matmul"))


def test_values_of_the_columns_come_along():
    (only,) = split("y * factor[None, :]", "y = acc * 2.0", start="tl.program_id(0) * BLOCK_N + ")
    code = only.kernel.code
    loop = code.partition("for part in tl.static_range(PARTS):")[2]
    assert "factor_part = tl.load(f_ptr + cols_part)" in loop and "y = acc_part * 2.0" in loop
    assert (
        "cols_part = tl.program_id(0) * BLOCK_N + (part * (BLOCK_N // PARTS) + tl.arange(0, BLOCK_N // PARTS))" in loop
    )
    assert loop.index("cols_part =") < loop.index("factor_part =") and "factor = " not in loop
    assert only.kernel.space["PARTS"] == (1, 2, 4) and only.kernel.config["PARTS"] == 2


def test_a_pointer_moves_once():
    (only,) = split("y", "y = acc.to(y_ptr.dtype.element_ty)\ny_ptr += n * 2\ny_ptr += n")
    before, _, loop = only.kernel.code.partition("for part in tl.static_range(PARTS):")
    assert "y_ptr += n * 2\n    y_ptr += n\n" in before and "+=" not in loop and "y_ptr" in loop


@pytest.mark.parametrize(
    ("value", "lines", "reason"),
    [
        ("acc", "tl.store(f_ptr + cols, 1.0)\nf_ptr += 1", "before it goes on"),
        ("acc", "tl.atomic_add(f_ptr + rows, 1.0)", "every part"),
        ("acc * tl.atomic_add(f_ptr, 1.0)", "", "every part"),
        ("acc / tl.sum(acc, 1)[:, None]", "", "calls tl.sum"),
        ("tl.cumsum(acc, 1)", "", "calls tl.cumsum"),
        ("acc.T", "", "uses .T"),
        ("tl.softmax(acc)", "", "calls tl.softmax"),
        ("acc", "for i in range(3):\n    acc = acc * 2.0", "more than assignments"),
        ("acc", "if n > 3:\n    acc = acc * 2.0", "more than assignments"),
        ("acc * tl.zeros((BLOCK_M, BLOCK_N), tl.float32)", "", "calls tl.zeros"),
    ],
)
def test_what_needs_the_whole_tile_is_left_alone(value, lines, reason):
    result = split(value, lines)
    assert isinstance(result, NotApplicable) and reason in result.reason


def test_rows_and_columns_of_one_name_are_left_alone():
    params = PARAMS.replace("BLOCK_M: tl.constexpr, ", "")
    kernel = seeds.drawn(HEAD.format(value="acc", lines="", start="").replace("BLOCK_M", "BLOCK_N"), params)
    result = edit_named("split_epilogue").apply(kernel, seeds.task("matmul"))
    assert isinstance(result, NotApplicable) and "a constexpr of their own" in result.reason


def test_a_value_loaded_before_another_store_stays_there():
    stored = HEAD.replace("acc = tl.zeros", "tl.store(f_ptr, 0.0)\nacc = tl.zeros")
    kernel = seeds.drawn(stored.format(value="acc * factor[None, :]", lines="", start=""), PARAMS)
    result = edit_named("split_epilogue").apply(kernel, seeds.task("matmul"))
    assert isinstance(result, NotApplicable) and "before another store" in result.reason


@pytest.mark.parametrize("chain", ["tensor_descriptor+split_epilogue", "split_epilogue+tensor_descriptor"])
def test_descriptors_are_as_wide_as_a_part(chain):
    kernel, task = seeds.seed("matmul"), seeds.task("matmul")
    for name in chain.split("+"):
        kernel = edit_named(name).apply(kernel, task)[-1].kernel
    assert kernel.descriptors["c_tiles"][3] == "(BLOCK_M, BLOCK_N // PARTS)"
    assert "BLOCK_N // PARTS >= 16" in kernel.args["matmul_kernel"]["C_TMA"]
    assert "c_tiles.store([pid_m * BLOCK_M, pid_n * BLOCK_N + part * (BLOCK_N // PARTS)]" in kernel.code
    assert kernel.descriptors["b_tiles"][3] == "(BLOCK_K, BLOCK_N)"


def test_it_applies_among_the_other_edits_of_a_product():
    """`test_edits_right.py` runs such a chain, in four parts."""
    _, done, _ = chained("linear_gelu", "grouped_order+tensor_descriptor+split_epilogue+persistent+flatten_loops")
    assert done.count("+") == 4, "each edit applies after those before it"
