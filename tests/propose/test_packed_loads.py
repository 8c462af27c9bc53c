"""A word of several values is loaded once; what is no whole number of words a block stays as it was."""

from __future__ import annotations

import edit_seeds as seeds
import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench

NAME = "packed_product"
BLOCKS = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2}


def test_the_words_of_a_product_are_loaded_once():
    (rewrite,) = seeds.applied("packed_loads", NAME)
    text = rewrite.kernel.render()
    assert "(start // 8 + tl.arange(0, BLOCK_K // 8))[:, None] * stride_bk" in text
    seeds.assert_right(NAME, [rewrite.kernel], [BLOCKS, {**BLOCKS, "BLOCK_K": 16}])


HALVES = """
import torch, triton, triton.language as tl

def reference(words, rows, cols):
    high, low = words >> 4, words & 15
    return torch.stack([low, high], -1).reshape(rows, -1)[:, :cols].to(torch.int32)

def get_inputs(rows=64, cols=1000):
    return [torch.randint(0, 256, (rows, (cols + 1) // 2), dtype=torch.uint8), rows, cols]

SHAPES = [dict(rows=64, cols=1000)]
TEST_SHAPES = [dict(rows=3, cols=33), dict(rows=9, cols=64)]

@triton.jit
def halves_kernel(w_ptr, y_ptr, rows, cols, stride, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    col = tl.program_id(1) * C + tl.arange(0, C)
    on = (row[:, None] < rows) & (col[None, :] < cols)
    words = tl.load(w_ptr + row[:, None] * stride + (col >> 1)[None, :], mask=on, other=0)
    half = (words >> ((col % 2) * 4)[None, :].to(tl.uint8)) & 15
    tl.store(y_ptr + row[:, None] * cols + col[None, :], half.to(tl.int32), mask=on)

def halves(words, rows, cols):
    y = torch.empty(rows, cols, dtype=torch.int32, device=words.device)
    grid = lambda meta: (triton.cdiv(rows, meta["R"]), triton.cdiv(cols, meta["C"]))
    halves_kernel[grid](words, y, rows, cols, words.stride(0), R=4, C=16)
    return y
"""


def test_a_block_may_end_within_a_word(tmp_path, borrowing):
    """The word is loaded where its first value lies inside, and the lanes behind the end hold what they held."""
    (tmp_path / "halves.py").write_text(HALVES)
    with Bench.open(tmp_path / "halves.py", "h100") as bench:
        (rewrite,) = edit_named("packed_loads").apply(bench.seed, bench.facts)
        assert "tl.arange(0, C // 2)" in rewrite.kernel.render() and "tl.where" in rewrite.kernel.render()
        assert Evaluation(bench).verify(rewrite.kernel, bench.facts.config).accepted
        wrong = seeds.changed(
            rewrite.kernel, ("words_once[:, :, None]", "words_once[:, None, :]"), ("C // 2, 2", "2, C // 2")
        )
        assert not Evaluation(bench).verify(wrong, bench.facts.config).accepted


@pytest.mark.parametrize(
    "old, new",
    [
        ("tl.program_id(1) * C", "tl.program_id(1) * C + 1"),  # blocks begin within words
        ("(col >> 1)", "(col >> row)"),
        ("(col >> 1)[None, :]", "(col >> 1)[None, :] + col[None, :]"),  # each lane has a word of its own
        ("(col >> 1)", "(col // 3)"),
    ],
)
def test_what_holds_no_whole_words_stays(old, new):
    text = seeds.HEAD + HALVES[HALVES.index("@triton.jit") : HALVES.index("def halves(")].replace(old, new)
    assert new in text
    assert isinstance(edit_named("packed_loads").apply(Kernel.parse(text), seeds.facts(text)), NotApplicable)


def test_a_part_of_a_split_loop_begins_at_a_whole_word_too():
    """Its share is whole blocks, which only the names before the loop say."""
    (split,) = seeds.applied("split_reduction", NAME)
    done = edit_named("packed_loads").apply(split.kernel, seeds.task(NAME), "packed_kernel_partial")
    assert isinstance(done, list), done
    assert "tl.arange(0, BLOCK_K // 8)" in done[0].kernel.function("packed_kernel_partial").text
    seeds.assert_right(NAME, [done[0].kernel], [{**BLOCKS, "SPLIT": 2}])
