"""Packages whose results are not one tensor of floats: integers alone, integers beside floats, several, none."""

import math
from importlib import resources

import pytest
import torch
from gated_record import run_own_tests
from test_export_forms import HEAD, IN_PLACE, TWO_OUT, exported

from kernelsearch.verify.expectation import Output
from kernelsearch.verify.pieces import encode

MIXED = (
    HEAD
    + """
def reference(x):
    return {result}

def get_inputs(rows=8, cols=64):
    return [torch.randn(rows, cols)]

SHAPES = [dict(rows=64, cols=128)]
TEST_SHAPES = [dict(rows=5, cols=33)]

@triton.jit
def largest_kernel(x_ptr, at_ptr, m_ptr, n_cols, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=float("-inf"))
    tl.store(at_ptr + row, tl.argmax(x, axis=0).to(tl.int64))
    tl.store(m_ptr + row, tl.max(x, axis=0))

def {name}(x):
    at = torch.empty(x.shape[0], device=x.device, dtype=torch.int64)
    m = torch.empty(x.shape[0], device=x.device)
    largest_kernel[(x.shape[0],)](x, at, m, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return {answer}
"""
)


def task(name, result, answer):
    return MIXED.replace("{name}", name).replace("{result}", result).replace("{answer}", answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("where_largest", task("where_largest", "x.argmax(-1)", "at")),
        ("largest_first", task("largest_first", "(x.argmax(-1), x.amax(-1))", "at, m")),
    ],
)
def test_a_package_with_integers_among_its_results_passes_its_own_tests(tmp_path, name, text):
    out = exported(tmp_path, name, text).out
    done = run_own_tests(out, f"form_{name}")
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize(
    ("name", "text", "call"),
    [
        ("where_largest", task("where_largest", "x.argmax(-1)", "at"), "y = form_where_largest.where_largest(x)"),
        ("one_in_tuple", task("one_in_tuple", "(x.amax(-1),)", "(m,)"), "(y,) = form_one_in_tuple.one_in_tuple(x)"),
        ("two_out", TWO_OUT, "y0, y1 = form_two_out.two_out(x, bias)"),
        ("in_place", IN_PLACE, "form_in_place.in_place(x, bias, scale)"),
    ],
)
def test_the_readmes_call_shows_every_result(tmp_path, name, text, call):
    assert f"\n{call}\n" in (exported(tmp_path, name, text).out / "README.md").read_text()


def test_a_package_judges_whole_numbers_and_floats_of_8_bits_as_the_judge_does():
    text = (resources.files("kernelsearch.export") / "templates/tests/test_package.py.txt").read_text()
    names = {"math": math, "torch": torch, "encode": encode}
    exec(text[text.index("def error_ratio") : text.index("def runs_kernels")], names)
    for dtype in (torch.int32, torch.float8_e4m3fn):
        right, near, wrong = (torch.tensor([1.0, value]).to(dtype) for value in (7, 8, 10))
        everywhere = torch.ones(2, dtype=torch.bool)
        codes, also = encode(right, dtype), (encode(right, dtype), encode(near, dtype))
        output = Output((2,), dtype, codes, codes, everywhere, everywhere, also=also)
        assert [names["error_ratio"](output, got) for got in (right, near, wrong)] == [0, 0, math.inf]
