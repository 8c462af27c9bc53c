"""What stands in a kernel for Inductor's runtime helpers, which a task file should not depend on."""

from __future__ import annotations

RENAMED = {
    "triton_helpers.maximum": "tl.maximum",
    "triton_helpers.minimum": "tl.minimum",
    "triton_helpers.max2": "tl.max",
    "triton_helpers.min2": "tl.min",
    "triton_helpers.any": "any_of",
    "triton_helpers.prod": "product",
    "triton_helpers.welford_reduce": "welford_add",
    "triton_helpers.welford_combine": "welford_merge",
    "triton_helpers.welford": "welford_along",
    "triton_helpers.online_softmax_combine": "online_add",
    "triton_helpers.online_softmax_combine_with_sum": "online_merge",
    "triton_helpers.online_softmax_reduce": "online_along",
    "triton_helpers.max_with_index": "max_and_index",
    "triton_helpers.min_with_index": "min_and_index",
    "triton_helpers.maximum_with_index": "larger_and_index",
    "triton_helpers.minimum_with_index": "smaller_and_index",
    "triton_helpers.select_one": "pick_one",
    "triton_helpers.div_floor_integer": "divide_down",
    "triton_helpers.remainder_integer": "modulo",
}
"""Inductor's helpers and what stands for them: functions of `tl`, or those of `analysis/device_functions.py`."""

IN_TL = frozenset("abs ceil cos erf exp exp2 floor fma log log2 rsqrt sigmoid sin sqrt".split())
"""Functions of libdevice and of Inductor's `tl_math` that `tl` has under the same name."""
