"""Tiles of several rows become one row a program where another edit wants rows, with the results of the kernel."""

import edit_seeds as seeds
import pytest

from kernelsearch.propose.analysis.view import View
from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.propose.edits.one_row import take_one_row

SEED = seeds.seed("row_norms")


def take(kernel):
    return take_one_row(View(kernel, kernel.functions[0], seeds.task("row_norms")))


def test_a_row_has_blocks_of_one_dimension_and_plain_addresses():
    view = take(SEED)
    assert "XBLOCK" not in view.text and "None" not in view.text and "xnumel)" not in view.text
    assert view.kernel.grid == {"row_norms_kernel": "(xnumel, grid(1), grid(2))"}
    assert "r0_index = r0_offset + tl.arange(0, R0_BLOCK)" in view.text
    assert "tl.load(x_ptr + xindex * cols + r0_index, r0_mask, other=0.0)" in view.text
    assert "total += tl.where(r0_mask, tmp1, 0)" in view.text
    assert "mean = tl.sum(total, 0) / cols" in view.text and "tl.store(mean_ptr + xindex, mean)" in view.text
    assert take(view.kernel) is None


@pytest.mark.parametrize("chain", ["align_rows", "align_rows+loop_unroll"])
def test_rows_at_any_address_are_walked_from_an_aligned_one_with_the_same_results(chain):
    kernel = SEED
    for name in chain.split("+"):
        kernel = edit_named(name).apply(kernel, seeds.task("row_norms"))[0].kernel
    assert ("XBLOCK" in kernel.code) is ("align_rows" not in chain)
    config = {**kernel.config, **({} if "align_rows" in chain else {"XBLOCK": 2})}
    seeds.assert_right("row_norms", [kernel], [{**config, "R0_BLOCK": size} for size in (16, 64)], "config")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[XBLOCK, R0_BLOCK], 0", "[XBLOCK, 1], 0"),
        ("/ cols\n", "/ (cols + XBLOCK)\n"),
        ("tl.sum(total, 1)", "tl.sum(total, axis=1)"),
        ("tl.sum(total, 1)", "tl.sum(total)"),
        ("tl.sum(total, 1)[:, None]", "tl.sum(total, 0)[None, :]"),
        ("tl.sum(total, 1)[:, None]", "tl.sum(tl.trans(total), 0)[:, None]"),
        ("mean_ptr + xindex, mean, xmask", "mean_ptr + xindex, mean, xmask & (xindex < cols)"),
    ],
    ids=[
        "a column",
        "the number of rows",
        "a named axis",
        "all",
        "a sum of rows",
        "another form",
        "two bounds of rows",
    ],
)
def test_what_may_mean_something_else_for_one_row_is_left_alone(old, new):
    kernel = seeds.changed(SEED, (old, new))
    try:
        assert take(kernel) is None
    except NotApplicable:
        assert isinstance(edit_named("align_rows").apply(kernel, seeds.task("row_norms")), NotApplicable)


@pytest.mark.parametrize("mask", ["ok & (c < vocab)", "ok"])
def test_a_persons_own_tiles_of_rows_are_taken_too(mask):
    kernel = seeds.drawn(
        f"""r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
ok = r < n_rows
total = tl.zeros([ROWS, BLOCK], tl.float32)
for start in range(0, vocab, BLOCK):
    c = start + tl.arange(0, BLOCK)[None, :]
    total += tl.load(L + r * vocab + c, mask={mask}, other=0.0)
tl.store(H + r, tl.sum(total, 1)[:, None], mask=ok)""",
        "L, H, n_rows, vocab, ROWS: tl.constexpr, BLOCK: tl.constexpr",
    )
    rewrites = edit_named("align_rows").apply(kernel, seeds.facts(kernel.render()))
    if mask == "ok":  # without a mask of columns nothing says where a row ends
        assert isinstance(rewrites, NotApplicable)
        return
    (rewrite,) = rewrites
    assert (
        "ROWS" not in rewrite.kernel.code
        and "total += tl.load(L_base + (start + tl.arange(0, BLOCK)))" in rewrite.kernel.code
    )
    assert rewrite.kernel.grid == {"drawn_kernel": "(n_rows, grid(1), grid(2))"}
