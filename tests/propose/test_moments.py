"""Mean and variance in one pass and in parts, however the two passes are written; results stay right.

The evaluator's shapes have one tile and three parts (so that two are empty), an odd last tile, and a single element.
"""

from __future__ import annotations

import itertools

import edit_seeds as seeds
import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.verify import gate
from turns import take_turn

STYLES = ("column_moments", "column_moments_counted", "column_moments_while")
CHAINS = (
    "fused_passes", "split_reduction", "fused_passes+split_reduction", "fused_passes+fused_passes+split_reduction",
    "split_reduction+loop_stages", "fused_passes+drop_mask+split_reduction", "split_reduction+drop_mask",
)  # fmt: skip


CODE = seeds.seed("column_moments").code


def apply(edit: str, kernel: Kernel) -> list[Kernel]:
    result = edit_named(edit).apply(kernel, seeds.facts(kernel.render()))
    return [] if isinstance(result, NotApplicable) else [rewrite.kernel for rewrite in result]


def chained(chain: str, kernel: Kernel) -> list[Kernel]:
    """Every kernel that the edits of a chain make one after the other."""
    kernels = [kernel]
    for edit in chain.split("+"):
        kernels = list(itertools.chain.from_iterable(apply(edit, k) for k in kernels))
    return kernels


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_moments_are_fused_and_split_in_any_style(style):
    seed, made = seeds.seed(style), []
    for chain in CHAINS:
        kernels = chained(chain, seed)
        assert kernels, chain
        made += kernels
    fused = apply("fused_passes", seed)
    assert [k.code.count("for ") for k in fused] == [1, 1]
    assert any("_lanes" in k.code for k in fused), "no variant keeps moments by lane"
    for kernel in made:
        assert gate.check(kernel.render()).accepted
    seeds.assert_right(style, take_turn(made, 3))


def test_a_split_has_one_pass_over_the_rows_and_hands_on_mean_and_squares():
    for kernel in apply("split_reduction", seeds.seed("column_moments")):
        first, second = kernel.functions
        assert first.text.count("tl.load(x_ptr") == 1 and "x_ptr +" not in second.text.partition("for ")[2]
        assert len(kernel.scratch) == 2 and kernel.launches


@pytest.mark.parametrize("mean", ["total * (1.0 / rows)", "total / rows.to(tl.float32)", "(1.0 / rows) * total"])
def test_a_mean_may_be_written_as_a_product(mean):
    kernel = Kernel.parse(seeds.HEAD + CODE.partition("\n\n\n")[2].replace("total / rows", mean))
    assert len(apply("fused_passes", kernel)) == len(apply("split_reduction", kernel)) == 2


def test_two_accumulators_of_one_loop_are_split_and_kept_by_lane():
    seed = seeds.seed("column_sums")
    made = [*chained("split_reduction", seed), *chained("lane_accumulator+split_reduction", seed)]
    assert len(made) >= 3 and all(len(k.scratch) == 2 for k in made)
    seeds.assert_right("column_sums", made)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mean = total / rows", "mean = total / (rows + 1)"),  # another divisor
        ("mean = total / rows", "mean = total / cols"),
        ("x - mean[None, :]", "x - 2 * mean[None, :]"),
        ("x - mean[None, :]", "x + mean[None, :]"),
        ("centred = tl.where(mask, x - mean[None, :], 0.0)", "centred = tl.where(mask, x - mean[None, :], 1.0)"),
        ("centred = tl.where(mask, x - mean[None, :], 0.0)", "centred = x - mean[None, :]"),  # past the end it counts
        ("squares += tl.sum(centred * centred, axis=0)", "squares += tl.sum(centred * x, axis=0)"),
        ("(r[:, None] < rows)", "(r[:, None] < rows - 1)"),  # the last row is left out
        ("(r[:, None] < rows)", "(r[:, None] + 1 < rows)"),
        ("(r[:, None] < rows) & inside[None, :]", "(r[:, None] < rows) & (x_ptr + r[:, None] < mean_ptr)"),
        ("other=0.0", "other=1.0"),
        ("range(0, rows, BLOCK_ROWS)", "range(1, rows, BLOCK_ROWS)"),
        ("tl.arange(0, BLOCK_ROWS)", "tl.arange(0, BLOCK_COLS)"),
        ("    var = squares / rows", "    var = squares / rows + total"),  # the sum itself is needed
        ("    var = squares / rows", "    var = squares / rows\n    rows = 1"),
        ("    squares = tl.zeros", "    tl.store(x_ptr + c, mean, mask=inside)\n    squares = tl.zeros"),
        ("    squares = tl.zeros", "    c = c + mean.to(tl.int32)\n    squares = tl.zeros"),
    ],
)
def test_what_is_no_mean_and_variance_is_left_alone(old, new):
    kernel = Kernel.parse(seeds.HEAD + CODE.partition("\n\n\n")[2].replace(old, new))
    assert kernel.digest != seeds.seed("column_moments").digest
    assert not apply("fused_passes", kernel) and not apply("split_reduction", kernel)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("shift * (1.0 / seen)", "shift * (1.0 / (seen + 1.0))"),
        ("seen += 1.0", "seen += 2.0"),
        ("apart * apart", "apart"),
    ],
)
def test_another_recurrence_is_not_taken_for_moments(old, new):
    lanes = next(k for k in apply("fused_passes", seeds.seed("column_moments")) if "_lanes" in k.code)
    changed = Kernel.parse(lanes.code.replace(old, new))
    assert changed.digest != lanes.digest
    assert apply("split_reduction", lanes) and not apply("split_reduction", changed)


@pytest.mark.parametrize("chain", ["split_reduction+loop_unroll", "fused_passes+loop_unroll+split_reduction"])
def test_no_unrolled_loop_ends_below_its_start(chain):
    """Of more parts than tiles the last are empty, and Triton 3.6 counts an unrolled loop's iterations unsigned."""
    kernels = chained(chain, seeds.seed("column_moments"))
    assert kernels
    for kernel in kernels:
        code = kernel.code
        assert "tl.range(begin, end, BLOCK_ROWS, loop_unroll_factor=UNROLL)" in code or "tl.maximum(end, begin)" in code
        assert "end = tl.maximum(tl.minimum(begin + share, rows), begin)" in code
