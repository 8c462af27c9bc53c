"""Strides of inputs: a kernel is judged where each is larger by itself, if the task's own kernel is right there."""

from dataclasses import replace

import pytest

from kernelsearch.core.types import Word
from kernelsearch.tasks.load import load
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.coverage import describe_coverage, format_coverage
from kernelsearch.trial.referee import verify_text
from kernelsearch.trial.without_gpu import NOT_RIGHT
from kernelsearch.verify.regime_words import PADDED

TASK = """
import torch, triton, triton.language as tl

@triton.jit
def add_kernel(x_ptr, x_row, y_ptr, y_row, at_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + c, mask=c < cols)
    y = tl.load(y_ptr + tl.load(at_ptr + row) * y_row + c, mask=c < cols)
    tl.store(out_ptr + row * cols + c, x + y, mask=c < cols)

def add(x, y, at):
    out = torch.empty(x.shape, device=x.device)
    add_kernel[(x.shape[0],)](x, x.stride(0), y, y.stride(0), at, out, x.shape[1],
                              BLOCK=triton.next_power_of_2(x.shape[1]))
    return out

def reference(x, y, at): return x + y[at]

def get_inputs(rows=64, cols=256, gap=0):
    return [torch.randn(rows, cols + gap)[:, :cols], torch.randn(rows, cols + gap)[:, :cols], torch.randperm(rows)]

SHAPES = [dict(rows=1, cols=256), dict(rows=16, cols=256), dict(rows=300, cols=512, gap=64)]
"""
"""At one row, as serving has it first, `at` holds zeros alone; at 300 rows both inputs have the same gap."""

COPY = """
import torch, triton, triton.language as tl

@triton.jit
def copy_kernel(k_ptr, k_token, v_ptr, v_token, out_ptr, n, BLOCK: tl.constexpr):
    token, c = tl.program_id(0), tl.arange(0, BLOCK)
    k = tl.load(k_ptr + token * k_token + c, mask=c < n)
    v = tl.load(v_ptr + token * v_token + c, mask=c < n)
    tl.store(out_ptr + token * n + c, k + v, mask=c < n)

def copy(k, v):
    out, n = torch.empty(k.shape, device=k.device), k.shape[1] * k.shape[2]
    copy_kernel[(k.shape[0],)](k, k.stride(0), v, v.stride(0), out, n, BLOCK=triton.next_power_of_2(n))
    return out

def reference(k, v): return k + v

def get_inputs(tokens=64, heads=4, size=32):
    qkv = torch.randn(tokens, 3, heads, size)
    return [qkv[:, 1], qkv[:, 2]]

TEST_SHAPES = [dict(tokens=1, heads=2, size=3), dict(tokens=9, heads=3, size=20)]
"""
"""The last axes are one: rows in a head may not lie apart, tokens may. The first test shape has one token."""

STRIDES = ("k.stride(0)", "v.stride(0)")


@pytest.fixture
def path(tmp_path):
    (tmp_path / "rows.py").write_text(TASK)
    return tmp_path / "rows.py"


def test_made_shapes_have_several_rows(path):
    assert all(params["rows"] > 2 for _, params in load(path).test_shapes)


@pytest.mark.slow
def test_the_tasks_own_kernel_is_right_and_one_that_takes_the_other_inputs_rows_is_not(path):
    with Bench.open(path, "h100", compile_workers=1) as bench:
        seed = bench.seed.code
        assert verify_text(bench, seed).accepted
        verdict = verify_text(bench, seed.replace("* y_row", "* x_row"))
        assert verdict.word is Word.MEMORY and "(with a larger x.stride(0))" in verdict.reason
        verdict = verify_text(bench, seed.replace("row * x_row", "row * y_row"))
        assert verdict.word is Word.MEMORY and "(with a larger y.stride(0))" in verdict.reason


@pytest.mark.slow
def test_where_rows_may_not_lie_apart_an_outer_axis_may(tmp_path):
    (tmp_path / "copy.py").write_text(COPY)
    with Bench.open(tmp_path / "copy.py", "h100", compile_workers=1) as bench:
        seed = bench.seed.code
        verdict = verify_text(bench, seed)
        judged = describe_coverage(verdict, bench)
        assert verdict.accepted and judged["strides"] == [*STRIDES, " and ".join(STRIDES)]
        heads = [stride.replace("0", "1") for stride in (*STRIDES, " and ".join(STRIDES))]
        assert verdict.detail[NOT_RIGHT] == [PADDED, *(f"a larger {stride}" for stride in heads)]
        said = format_coverage(replace(verdict, detail={**verdict.detail, "judged": judged}))
        assert (
            "; 3 larger strides (k.stride(0), ...)" in said
            and f"Not judged: {PADDED}, larger k.stride(1), v.stride(1) (" in said
        )
        verdict = verify_text(bench, seed.replace("* v_token", "* k_token"))
        assert verdict.word is Word.MEMORY and "(with a larger k.stride(0))" in verdict.reason
