"""Common ways to write a kernel that edits see through: carried pointers, arguments that move, sums by lanes."""

from __future__ import annotations

import edit_seeds as seeds
import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis.carried_pointers import compute_pointers, settle_arguments
from kernelsearch.propose.analysis.lanes import reduce_tiles
from kernelsearch.propose.analysis.view import View
from kernelsearch.propose.edits import EDITS, NotApplicable, edit_named
from turns import take_turn

CARRIED = """
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    cols = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    ks = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + (rows[:, None] * stride_am + ks[None, :] * stride_ak)
    b_tile = b_ptr + ks[:, None] * stride_bk + stride_bn * cols[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i in {loop}:
        a = tl.load(a_tile, mask=ks[None, :] < K - i * BLOCK_K, other=0.0)
        b = tl.load(b_tile, mask=ks[:, None] < K - i * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += {step}
    out_rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    out_cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (out_rows[:, None] < M) & (out_cols[None, :] < N)
    {last}
    c_tile = c_ptr + stride_cm * out_rows[:, None] + stride_cn * out_cols[None, :]
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=mask)
"""


def carried(loop="range(0, tl.cdiv(K, BLOCK_K))", step="BLOCK_K * stride_bk", last="pass") -> Kernel:
    return Kernel.parse(CARRIED.format(loop=loop, step=step, last=last))


def plain(kernel: Kernel) -> str | None:
    function = kernel.functions[0]
    return compute_pointers(function.text, function, "start", "at")


def test_addresses_are_computed_from_the_loops_variable():
    text = plain(carried("tl.range(0, tl.cdiv(K, BLOCK_K), num_stages=3)"))
    assert "for start in tl.range(0, K, BLOCK_K, num_stages=3):\n        at = start + ks\n" in text
    assert "a_tile = a_ptr + (rows[:, None] * stride_am + at[None, :] * stride_ak)" in text
    assert "a = tl.load(a_tile, mask=at[None, :] < K, other=0.0)" in text
    assert "+=" not in text and text.count("b_tile = ") == 1 and "K - " not in text


@pytest.mark.parametrize(
    "kernel",
    [
        carried("range(1, tl.cdiv(K, BLOCK_K))"),
        carried("range(0, tl.cdiv(K, BLOCK_K), 2)"),
        carried("range(0, K)"),
        carried(step="BLOCK_M * stride_bk + BLOCK_K * stride_bk"),
        carried(last="acc += tl.load(a_tile + 0 * stride_ak, mask=mask)"),  # it goes on from where the loop left it
        carried(step="BLOCK_K * stride_bn"),  # along another axis: the columns advance, the rows do not
        seeds.seed("matmul"),
        seeds.seed("softmax"),
    ],
    ids=["from 1", "by 2", "other count", "other step", "used later", "other axis", "computed", "no loop"],
)
def test_what_is_no_walk_over_tiles_is_left_alone(kernel):
    text = plain(kernel)
    assert text is None or "b_tile += BLOCK_M" in text


def variants(edit: str, kernel: Kernel, task) -> list[Kernel]:
    result = edit_named(edit).apply(kernel, task)
    return [] if isinstance(result, NotApplicable) else [rewrite.kernel for rewrite in result]


@pytest.mark.slow
def test_edits_apply_and_stay_right():
    """What edits need the computed form for, and chains of them, against the reference in the evaluator."""
    task, seed = seeds.task("matmul"), carried()
    made = [(edit.name, kernel) for edit in EDITS for kernel in variants(edit.name, seed, task)]
    assert {"peel_tail", "drop_mask", "tensor_descriptor", "split_reduction"} <= {name for name, _ in made}
    kernels = [seed, *(kernel for _, kernel in made)]
    for name, kernel in made:
        kernels += variants("tensor_descriptor" if name != "tensor_descriptor" else "persistent", kernel, task)
    seeds.assert_right("matmul", take_turn(kernels, 3))


LANES = """
import triton
import triton.language as tl


@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, x_stride, y_stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    mean = 0
    lanes = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        lanes += tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    mean = tl.sum(lanes, axis=0) / n_cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        x = tl.where(cols < n_cols, x - mean, 0.0)
        squares += x * x
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * scale * weight + bias
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
"""


def test_arguments_that_change_and_sums_by_lanes_are_seen_through():
    task, seed = seeds.task("layernorm"), Kernel.parse(LANES)
    kernels = {"lanes": seed}
    for name in ("align_rows", "fused_passes", "peel_tail", "rows_2d"):
        kernels[name] = variants(name, seed, task)[0]
    assert "x_ptr_row = x_ptr + row * x_stride" in kernels["align_rows"].code and "lead" in kernels["align_rows"].code
    assert kernels["fused_passes"].code.count("for start") == 2
    both = variants("align_rows", kernels["fused_passes"], task)
    seeds.assert_right("layernorm", [*kernels.values(), *both])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x_ptr += row * x_stride", "before = tl.load(x_ptr)\n    x_ptr += row * x_stride"),  # read before it moves
        ("x_ptr += row * x_stride", "x_ptr += row * x_stride\n    x_ptr += 0"),  # it moves twice
    ],
)
def test_an_argument_with_two_values_keeps_its_name(old, new):
    text = settle_arguments(Kernel.parse(LANES.replace(old, new)).functions[0].text, lambda name: name)
    assert "x_ptr += row * x_stride" in text and "y_ptr_row = y_ptr + row * y_stride" in text


@pytest.mark.parametrize(
    "line",
    [
        "lanes = tl.zeros([BLOCK], dtype=tl.float32)\n    lanes += 1.0",
        "peak = tl.max(lanes, axis=0)",
        "lanes = tl.zeros([BLOCK, 1], dtype=tl.float32)",
    ],
    ids=["another start", "another reduction", "two axes"],
)
def test_lanes_that_are_more_than_a_sum_stay(line):
    plain = "lanes = tl.zeros([BLOCK], dtype=tl.float32)"
    after = "mean = tl.sum(lanes, axis=0) / n_cols"
    text = LANES.replace(after, f"{after}\n    {line}") if line.startswith("peak") else LANES.replace(plain, line)
    kernel = Kernel.parse(text)
    summed = reduce_tiles(View(kernel, kernel.functions[0], seeds.facts(text)))
    assert summed is None or "tl.sum(lanes, axis=0)" in summed.text


ONLINE = """
import triton
import triton.language as tl


@triton.jit
def softmax_wide_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    x_row, y_row = x_ptr + tl.program_id(0) * x_stride, y_ptr + tl.program_id(0) * y_stride
    m = {start}
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        larger = tl.maximum(tl.max(x, axis=0), m)
        shrink = {shrink}
        p = tl.exp2((x - larger) * 1.44269504)
        d = tl.sum(p, axis=0) + shrink * d
        m = larger
        {more}
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols).to(tl.float32)
        y = tl.exp2((x - m) * 1.44269504) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
"""


def online(start="float('-inf')", shrink="tl.exp2((m - larger) * 1.44269504)", more="") -> Kernel:
    return Kernel.parse(ONLINE.format(start=start, shrink=shrink, more=more))


def test_a_rescaled_sum_is_kept_by_lane():
    """Where tiles are aligned as well, its three loops share the lanes; `p` and `shrink` are gone."""
    task, seed = seeds.task("softmax_wide"), online()
    grouped, by_lane = variants("lane_accumulator", seed, task)
    assert "shrink" not in by_lane.render() and by_lane.render().count("tl.sum(") == 1
    assert "shrink" not in grouped.render() and grouped.render().count("tl.sum(") == 2
    aligned = [k for before in variants("align_rows", seed, task) for k in variants("lane_accumulator", before, task)]
    assert aligned and all(k.render().count("m_lanes = m_new") == 3 for k in aligned)
    seeds.assert_right("softmax_wide", [grouped, by_lane, *aligned])


@pytest.mark.parametrize(
    "kernel",
    [
        online(start="0.0"),
        online(shrink="tl.exp2((m - larger) * 1.5)"),
        online(shrink="tl.exp((m - larger) * 1.44269504)"),
        online(shrink="tl.exp2((larger - m) * 1.44269504)"),
        online(more="tl.store(y_row + cols, p.to(y_ptr.dtype.element_ty), mask=cols < n_cols)"),
        online(more="d += 1e-9"),
    ],
    ids=["start", "factor", "function", "sign", "used", "more"],
)
def test_what_is_no_rescaled_sum_is_not_kept_by_lane(kernel):
    assert variants("lane_accumulator", kernel, seeds.task("softmax_wide")) == []
