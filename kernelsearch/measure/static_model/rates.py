"""A target's datasheet rates replaced by what was measured on the device at hand, for judging how near a time is.

Only hints and percentages use it: what a time may not be (`confirm.floor_us`) stays the datasheet's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kernelsearch.kernel.targets import Target

CEILINGS: Final = {
    "bandwidth_gbps": "copy_gbps",
    "tensor_tflops": "matmul_bf16_tflops",
    "tf32_tflops": "matmul_tf32_tflops",
    "fp32_tflops": "matmul_fp32_tflops",
}
"""The fields of a Target that `ceilings.measured` knows better, with its names for them."""


def calibrated(target: Target, ceilings: Mapping[str, float]) -> Target:
    """The target with these ceilings (GB/s, TFLOP/s) instead of its own rates; the same where none are known."""
    return replace(target, **{field: ceilings[name] for field, name in CEILINGS.items() if ceilings.get(name)})
