"""Edits keep what a kernel does: for each fact on which that depends a kernel where it holds, and one where not."""

from __future__ import annotations

from dataclasses import replace

import edit_seeds as seeds
import pytest

from kernelsearch.core.types import Fill, LaunchFact, TensorFact, Trace
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import NotApplicable, edit_named


def apply(edit: str, kernel: Kernel):
    return edit_named(edit).apply(kernel, seeds.facts(kernel.render()))


def test_constant_sizes_ask_no_number_for_a_method_in_a_helper():
    for value, applies in (("n + 1", True), ("n.to(tl.float32)", False)):
        helper = f"@triton.jit\ndef widen(n):\n    return {value}\n\n\n"
        kernel = seeds.drawn("tl.store(y_ptr, widen(n_cols), mask=x_stride < n_cols)")
        kernel = Kernel.parse(kernel.render().replace("@triton.jit", helper + "@triton.jit"))
        assert isinstance(apply("constant_sizes", kernel), list) is applies


FILLED = """
row = tl.program_id(0)
cols = tl.arange(0, BLOCK)
length = tl.load(n_ptr + row)
{line}
x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
{store}
"""


@pytest.mark.parametrize(
    ("line", "store", "applies"),
    [
        ("last = length - 1", "tl.store(y_ptr + row * n_cols + cols, x + last, mask=cols < n_cols)", True),
        ("if row >= n_cols:\n    return", "tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)", True),
        ("if row >= length:\n    return", "tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)", False),
        ("inside = cols < length", "tl.store(y_ptr + row * n_cols + cols, x, mask=inside & (cols < n_cols))", False),
        ("to = row + length", "tl.store(y_ptr + to * n_cols + cols, x, mask=cols < n_cols)", False),
        ("last = length - 1", "if last > 2:\n    tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)", False),
        ("last = length - 1", "(y_ptr + row * n_cols + cols).atomic_add(x, mask=cols < n_cols)", False),
    ],
)
def test_a_fill_is_spare_where_no_data_says_what_is_stored(line, store, applies):
    kernel = seeds.drawn(FILLED.format(line=line, store=store), "x_ptr, y_ptr, n_ptr, n_cols, BLOCK: tl.constexpr")
    launch = LaunchFact("drawn_kernel", {}, fills={"y_ptr": (Fill("task.py", 9, 20),)})
    task = replace(seeds.facts(kernel.render()), traces={"timed:0": Trace("timed:0", (launch,))})
    assert isinstance(edit_named("spare_fill").apply(kernel, task), list) is applies


FOLDED = """
row = tl.program_id(0)
cols = tl.arange(0, BLOCK)
s = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf")) * x_stride
top = tl.max(s, axis=0)
e = tl.exp(s - top)
{line}
tl.store(y_ptr + row * n_cols + cols, e, mask=cols < n_cols)
"""


@pytest.mark.parametrize(
    ("line", "variants"),
    [
        ("e = e * 2.0", 2),
        ("if top > 2.0:\n    e = e * 2.0", 1),
        ("while top > 2.0:\n    top = top - 1.0", 1),
        ("for k in range(0, top):\n    e = e * 2.0", 1),
    ],
)
def test_what_a_branch_or_loop_asks_stays_in_its_units(line, variants):
    assert len(apply("exp2", seeds.drawn(FOLDED.format(line=line)))) == variants


DIVIDED = """
cols = tl.arange(0, BLOCK)
x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0)
scale = tl.load(y_ptr)
q = {quotient}
{line}
tl.store(y_ptr + cols, q, mask=cols < n_cols)
"""


@pytest.mark.parametrize(
    ("quotient", "line", "dtype", "applies"),
    [
        ("x / scale", "q = q * 2.0", "fp32", True),
        ("x / scale", "q = q * 2.0", "i32", False),  # 49 times 1/49 is less than 1
        ("x.to(tl.float32) / scale", "q = q * 2.0", "i32", True),
        ("tl.exp(x) / scale", "q = q.to(tl.float16)", None, True),
        ("x / scale", "q = q * 2.0", None, False),
        ("cols / n_cols", "q = q * 2.0", "fp32", False),
        ("x / scale", "q = tl.floor(q)", "fp32", False),
        ("x / scale", "q = q.to(tl.int32)", "fp32", False),
        ("x / scale", "q = tl.where(q > 1.0, 1.0, 0.0)", "fp32", False),
        ("x / scale", "q = q - x * x", "fp32", False),  # what cancels leaves the rounding
        ("x / scale", "q -= x * x", "fp32", False),
    ],
)
def test_a_reciprocal_where_rounding_stays_small(quotient, line, dtype, applies):
    kernel = seeds.drawn(DIVIDED.format(quotient=quotient, line=line))
    passed = {"x_ptr": TensorFact(dtype, (64,), (1,)), "y_ptr": TensorFact("fp32", (64,), (1,)), "n_cols": 64}
    traces = {"timed:0": Trace("timed:0", (LaunchFact("drawn_kernel", passed),))} if dtype else {}
    result = edit_named("reciprocal").apply(kernel, replace(seeds.facts(kernel.render()), traces=traces))
    assert isinstance(result, list) is applies


ROW_SUMS = """
row = tl.program_id(0)
count = 0.0
total = 0.0
for start in range(0, n_cols, BLOCK):
    cols = start + {range}
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=0.0)
    count += tl.sum((cols < n_cols).to(tl.float32), axis=0)
    {more}
    total += tl.sum(x, axis=0)
tl.store(y_ptr + row, total / count)
"""


@pytest.mark.parametrize(
    ("filled", "made"),
    [
        ({}, "count = tl.full([1, 1], 0.0, tl.float32)"),  # of all rows alike
        ({"range": "tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK), BLOCK), BLOCK)"},
         "cols = start + tl.arange(0, BLOCK)[None, :]"),  # a hint has one number for each axis
        ({"more": "x += tl.full([BLOCK], row, tl.int32)"}, "x += tl.broadcast_to(row, [ROWS, BLOCK]).to(tl.int32)"),
        ({"more": "x += x.sum(0)"}, "x += tl.sum(x, axis=1, keep_dims=True)"),
        ({"more": "tl.assume(row < n_cols)"}, None),
        ({"more": "if count > 4:\n        total += 1.0"}, None),
    ],
)  # fmt: skip
def test_rows_2d_gives_axes_to_all_that_need_them(filled, made):
    body = ROW_SUMS.format(**{"range": "tl.arange(0, BLOCK)", "more": "x += 0.0", **filled})
    result = apply("rows_2d", seeds.drawn(body))
    assert isinstance(result, NotApplicable) if made is None else made in result[0].kernel.code
