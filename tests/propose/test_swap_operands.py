"""A product with few rows is computed as its transpose, however its sum is spelled; others stay."""

from __future__ import annotations

import edit_seeds as seeds
import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench

NAME = "packed_product"


def test_an_operand_that_is_computed_is_turned_inside_out():
    (rewrite,) = seeds.applied("swap_operands", NAME)
    text = rewrite.kernel.render()
    assert "tl.zeros((BLOCK_N, BLOCK_M)" in text and "accumulator = tl.trans(accumulator)" in text
    blocks = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2}
    seeds.assert_right(NAME, [rewrite.kernel], [blocks, {**blocks, "BLOCK_N": 64}])


SCALED = """
import torch, triton, triton.language as tl

def reference(x, w, scale_x, scale_w):
    blocks = [x[:, a : a + 32].float() @ w[:, a : a + 32].float().T * scale_x[:, a // 32, None] * scale_w[:, a // 32]
              for a in range(0, x.shape[1], 32)]
    return sum(blocks)

def get_inputs(rows=40, cols=96, deep=128):
    x, w = torch.randn(rows, deep), torch.randn(cols, deep)
    return [x, w, 0.5 + torch.rand(rows, deep // 32), 0.5 + torch.rand(cols, deep // 32)]

SHAPES = [dict(rows=40, cols=96, deep=128)]
TEST_SHAPES = [dict(rows=3, cols=33, deep=64), dict(rows=17, cols=16, deep=32)]
SPACE = {"R": [16, 32, 64], "C": [16, 32, 64], "num_warps": [4]}

@triton.jit
def scaled_kernel(x_ptr, w_ptr, sx_ptr, sw_ptr, y_ptr, rows, cols, deep, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    col = tl.program_id(1) * C + tl.arange(0, C)
    k = tl.arange(0, 32)
    y = tl.zeros([R, C], tl.float32)
    for a in range(0, deep, 32):
        x = tl.load(x_ptr + row[:, None] * deep + a + k[None, :], mask=row[:, None] < rows, other=0.0)
        w = tl.load(w_ptr + col[:, None] * deep + a + k[None, :], mask=col[:, None] < cols, other=0.0)
        sx = tl.load(sx_ptr + row * (deep // 32) + a // 32, mask=row < rows, other=0.0)
        sw = tl.load(sw_ptr + col * (deep // 32) + a // 32, mask=col < cols, other=0.0)
        y += tl.dot(x, tl.trans(w), input_precision="ieee") * sx[:, None] * sw[None, :]
    tl.store(y_ptr + row[:, None] * cols + col[None, :], y, mask=(row[:, None] < rows) & (col[None, :] < cols))

def scaled(x, w, scale_x, scale_w):
    (rows, deep), cols = x.shape, w.shape[0]
    y = torch.empty(rows, cols, device=x.device)
    grid = lambda meta: (triton.cdiv(rows, meta["R"]), triton.cdiv(cols, meta["C"]))
    scaled_kernel[grid](x, w, scale_x, scale_w, y, rows, cols, deep, R=16, C=16, num_warps=4)
    return y
"""


def test_scales_of_rows_and_of_columns_change_places(tmp_path, borrowing):
    (tmp_path / "scaled.py").write_text(SCALED)
    with Bench.open(tmp_path / "scaled.py", "h100") as bench:
        (rewrite,) = edit_named("swap_operands").apply(bench.seed, bench.facts)
        text = rewrite.kernel.render()
        assert 'tl.dot(w, tl.trans(x), input_precision="ieee") * sx[None, :] * sw[:, None]' in text.replace("'", '"')
        assert rewrite.kernel.config["C"] == 64
        assert Evaluation(bench).verify(rewrite.kernel, rewrite.kernel.config).accepted
        wrong = seeds.changed(rewrite.kernel, ("* sx[None, :]", "* sx[:, None]"))
        assert not Evaluation(bench).verify(wrong, {**bench.facts.config, "C": 16}).accepted


KERNEL = seeds.HEAD + SCALED[SCALED.index("@triton.jit") : SCALED.index("def scaled(")]
UPDATE = 'y += tl.dot(x, tl.trans(w), input_precision="ieee") * sx[:, None] * sw[None, :]'
SPACE = {"R": (16, 32), "C": (16, 32)}


DOT = "tl.dot(x, tl.trans(w))"


@pytest.mark.parametrize("update", [f"y += {DOT}", f"y = y + {DOT}", f"y = {DOT[:-1]}, y)", f"y = {DOT[:-1]}, acc=y)"])
def test_how_the_sum_is_spelled_is_the_same(update):
    assert UPDATE in KERNEL
    text = KERNEL.replace(UPDATE, update)
    (rewrite,) = edit_named("swap_operands").apply(Kernel.parse(text), seeds.facts(text, space=SPACE))
    assert "tl.dot(w, tl.trans(x)" in rewrite.kernel.render()


@pytest.mark.parametrize(
    "old, new, space",
    [
        (UPDATE, UPDATE, {"R": (64, 128), "C": (64, 128)}),  # the rows fill the matrix unit
        (UPDATE, f"{UPDATE}\n        y = tl.where(y > 0, y, 0.0)", SPACE),  # a turn reads what was added up
        (UPDATE, f"{UPDATE}\n        tl.store(y_ptr, y)", SPACE),
        (UPDATE, "y += x", SPACE),
        ("    y = tl.zeros([R, C], tl.float32)\n    for", "    for", SPACE),
    ],
)
def test_what_is_no_sum_of_few_rows_stays(old, new, space):
    assert old in KERNEL
    text = KERNEL.replace(old, new)
    done = edit_named("swap_operands").apply(Kernel.parse(text), seeds.facts(text, space=space))
    assert isinstance(done, NotApplicable)
