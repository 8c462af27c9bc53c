"""Targets with the measured rates of the device at hand in place of the datasheet's.

Only hints and percentages use them: `confirm_rules.compute_floor_us` follows from the datasheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kernelsearch.kernel.targets import Target

CEILINGS: Final = {
    "bandwidth_gbps": "copy_gbps",
    "tensor_tflops": "matmul_bf16_tflops",
    "tf32_tflops": "matmul_tf32_tflops",
    "fp32_tflops": "matmul_fp32_tflops",
}
"""Fields of a Target with their names in `ceilings.measure_ceilings`."""


def calibrate_target(target: Target, ceilings: Mapping[str, float]) -> Target:
    """The target with these ceilings (GB/s, TFLOP/s) instead of its own rates; the same where none are known."""
    rates: dict[str, Any] = {field: ceilings[name] for field, name in CEILINGS.items() if ceilings.get(name)}
    return replace(target, **rates)
