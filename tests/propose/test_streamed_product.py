"""Edits that pay only together come as one step, with a config that is not one of the seed's."""

import edit_seeds as seeds
import pytest

from kernelsearch.propose.edits import NotApplicable, edit_named


@pytest.mark.parametrize(
    ("name", "config", "has"),
    [
        (
            "matmul",
            {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 4, "PARTS": 2, "WAVES": 1},
            ("flatten=True", "c_tiles.store", "tl.swizzle2d", "in tl.static_range(PARTS)"),
        ),
        ("linear_gelu", {"BLOCK_N": 256, "GROUP": 8}, ("flatten=True", "primitive_bitwidth == 16")),
        (
            "attention",
            {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 4, "num_stages": 2, "WAVES": 1},
            ("warp_specialize=K_TMA and V_TMA", "tl.exp2", "tl.make_tensor_descriptor"),
        ),
    ],
)
def test_products_come_in_one_step(name, config, has):
    *nested, only = edit_named("streamed_product").apply(seeds.seed(name), seeds.task(name))
    assert len(nested) == ("flatten=True" in has) and all("flatten" not in one.kernel.code for one in nested)
    assert config.items() <= only.kernel.config.items() and only.edit == "streamed_product"
    assert all(text in only.kernel.code for text in has)
    assert all(only.kernel.config[n] in only.kernel.space[n] for n in config)
    again = edit_named("streamed_product").apply(only.kernel, seeds.task(name))
    assert isinstance(again, NotApplicable) and "descriptors already" in again.reason


SUMS = """
acc = tl.zeros((BLOCK, BLOCK), tl.float32)
row_sum = tl.zeros((BLOCK,), tl.float32)
for start in range(0, n_cols, BLOCK):
    p = tl.load(x_ptr + tl.arange(0, BLOCK)[:, None] * n_cols + tl.arange(0, BLOCK)[None, :])
    row_sum = row_sum + tl.sum(p, 1){lines}
    acc = tl.dot(p, p, acc)
tl.store(y_ptr + tl.arange(0, BLOCK)[:, None] * n_cols + tl.arange(0, BLOCK)[None, :], acc / row_sum[:, None])
"""


@pytest.mark.parametrize(
    ("lines", "moves"), [("", True), ("\n    p = p * 2.0", False), ("\n    acc = acc * row_sum[:, None]", False)]
)
def test_sums_come_late_where_nothing_until_then_needs_them(lines, moves):
    result = edit_named("late_sums").apply(seeds.drawn(SUMS.format(lines=lines)), seeds.task("softmax"))
    assert isinstance(result, NotApplicable) is not moves
    if moves:
        code = result[0].kernel.code
        assert code.index("acc = tl.dot(p, p, acc)") < code.index("row_sum = row_sum + tl.sum(p, 1)\n")
        assert code.count("tl.sum") == 1
