"""Warp specialisation stands only where Triton 3.6 acts on it and where it was seen to be right."""

from __future__ import annotations

import edit_seeds as seeds
import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import is_possible
from kernelsearch.propose.edits import NotApplicable, edit_named


def through(name: str, chain: str) -> Kernel | NotApplicable:
    """The seed after each edit of the chain, `edit:variant`; or the reason why the last one does not apply."""
    kernel, task, steps = seeds.seed(name), seeds.task(name), chain.split("+")
    for step in steps:
        edit, _, at = step.partition(":")
        result = edit_named(edit).apply(kernel, task)
        if isinstance(result, NotApplicable):
            assert step == steps[-1], result.reason
            return result
        kernel = result[int(at or 0)].kernel
    return kernel


@pytest.mark.parametrize("chain", ["persistent+warp_specialize", "warp_specialize+persistent"])
def test_it_takes_four_warps_and_counts_its_consumers(chain):
    kernel = through("attention", f"tensor_descriptor:1+{chain}")
    assert "warp_specialize=K_TMA and V_TMA)" in kernel.code
    assert kernel.space["num_warps"] == (4,) and kernel.config["num_warps"] == 4
    product = through("matmul", "tensor_descriptor:1+warp_specialize")
    config = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 4}
    assert is_possible(product, config) and not is_possible(seeds.seed("matmul"), config)


@pytest.mark.parametrize(
    ("name", "chain", "reason"),
    [
        ("matmul", "warp_specialize", "does not go through a tensor descriptor"),
        ("matmul", "tensor_descriptor:3+warp_specialize", "descriptors of the host"),
        ("matmul", "tensor_descriptor:1+persistent+flatten_loops+warp_specialize", "flattened"),
        ("matmul", "tensor_descriptor:1+persistent+warp_specialize+flatten_loops", "no loop holds"),
        ("linear_gelu", "tensor_descriptor:1+warp_specialize", "tl.erf"),
        ("linear_gelu", "tensor_descriptor:1+short_functions+warp_specialize", "tl.erf"),
        ("softmax_wide", "warp_specialize", "no innermost loop with a dot"),
    ],
)
def test_it_is_refused(name, chain, reason):
    refused = through(name, chain)
    assert isinstance(refused, NotApplicable) and reason in refused.reason


def test_what_is_carried_stays_float32():
    kernel = through("attention", "tensor_descriptor:1")
    rounded = Kernel.parse(kernel.render().replace("row_max = new_max", "row_max = new_max.to(tl.bfloat16)"))
    result = edit_named("warp_specialize").apply(rounded, seeds.task("attention"))
    assert isinstance(result, NotApplicable) and "is rounded" in result.reason


@pytest.mark.parametrize("chain", ["persistent+tensor_descriptor:1", "tensor_descriptor:1+persistent"])
def test_a_loop_that_makes_descriptors_around_another_does_not_run_ahead(chain):
    """Triton 3.6 fails where the inner loop turns once: it cannot predicate the making of a descriptor."""
    outer, inner = [line for line in through("attention", chain).code.splitlines() if line.lstrip().startswith("for ")]
    assert "tl.num_programs(0), num_stages=1)" in outer and "num_stages=None" in inner
    assert "in range(" in through("attention", "persistent").code
