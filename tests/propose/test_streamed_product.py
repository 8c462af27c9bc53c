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
    ],
)
def test_products_come_in_one_step(name, config, has):
    nested, only = edit_named("streamed_product").apply(seeds.seed(name), seeds.task(name))
    assert "flatten" not in nested.kernel.code
    assert config.items() <= only.kernel.config.items() and only.edit == "streamed_product"
    assert all(text in only.kernel.code for text in has)
    assert all(only.kernel.config[n] in only.kernel.space[n] for n in config)
    again = edit_named("streamed_product").apply(only.kernel, seeds.task(name))
    assert isinstance(again, NotApplicable) and "descriptors already" in again.reason


def test_a_product_without_descriptors_of_the_host_is_left_alone():
    refused = edit_named("streamed_product").apply(seeds.seed("attention"), seeds.task("attention"))
    assert isinstance(refused, NotApplicable) and "descriptors of the host" in refused.reason


@pytest.mark.parametrize("chain", [("persistent", "tensor_descriptor"), ("tensor_descriptor", "persistent")])
def test_a_loop_that_makes_descriptors_around_another_does_not_run_ahead(chain):
    """Triton 3.6 fails where the inner loop turns once: it cannot predicate the making of a descriptor."""
    kernel, task = seeds.seed("attention"), seeds.task("attention")
    for name in chain:
        kernel = edit_named(name).apply(kernel, task)[name == "tensor_descriptor"].kernel
        if name == chain[0] == "persistent":
            assert "in range(" in kernel.code
    outer, inner = [line for line in kernel.code.splitlines() if line.lstrip().startswith("for ")]
    assert "tl.num_programs(0), num_stages=1)" in outer and "num_stages=None" in inner
