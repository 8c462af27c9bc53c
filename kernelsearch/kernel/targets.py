"""Machine facts: what a kernel is compiled for, and what the static model knows of it.

Sources: NVIDIA's architecture whitepapers and product datasheets (H100 SXM5 and H200: "NVIDIA H100
Tensor Core GPU Architecture"; A100: "NVIDIA A100 Tensor Core GPU Architecture"; L4, L40S and RTX 4090:
"NVIDIA Ada GPU Architecture"; B200: "NVIDIA Blackwell Architecture Technical Brief"), and per-SM limits
from the CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
Rates are dense (no sparsity). They are datasheet numbers, not measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from kernelsearch.core.errors import TargetError


@dataclass(frozen=True)
class Target:
    """One machine: limits per SM and per program, rates in GB/s and TFLOP/s, clock in GHz, sizes in bytes."""

    name: str
    capability: int
    num_sms: int
    clock_ghz: float
    bandwidth_gbps: float
    l2_bytes: int
    l2_bandwidth_gbps: float
    shared_per_program: int
    shared_per_sm: int
    warps_per_sm: int
    programs_per_sm: int
    fp32_tflops: float
    tensor_tflops: float
    tf32_tflops: float
    registers_per_sm: int = 65536
    launch_us: float = 2.0


_TARGETS = {
    t.name: t
    for t in (
        Target("h100", 90, 132, 1.755, 3350, 50 << 20, 5500, 232448, 233472, 64, 32, 66.9, 989.4, 494.7),
        Target("h200", 90, 132, 1.755, 4800, 50 << 20, 5500, 232448, 233472, 64, 32, 66.9, 989.4, 494.7),
        Target("a100", 80, 108, 1.410, 2039, 40 << 20, 4000, 166912, 167936, 64, 32, 19.5, 312.0, 156.0),
        Target("l4", 89, 58, 2.040, 300, 48 << 20, 1500, 101376, 102400, 48, 24, 30.3, 121.0, 60.0),
        Target("l40s", 89, 142, 2.520, 864, 96 << 20, 4000, 101376, 102400, 48, 24, 91.6, 362.0, 183.0),
        Target("rtx4090", 89, 128, 2.520, 1008, 72 << 20, 4500, 101376, 102400, 48, 24, 82.6, 165.2, 82.6),
        Target("b200", 100, 148, 1.965, 8000, 126 << 20, 9000, 232448, 233472, 64, 32, 80.0, 2250.0, 1125.0),
    )
}


def target_by_name(name: str) -> Target:
    """The machine of that name. Raises TargetError, which lists the known ones."""
    if name not in _TARGETS:
        raise TargetError(f"unknown target {name!r}; known are {', '.join(_TARGETS)}, and auto")
    return _TARGETS[name]


def target_for_device(device_name: str, capability: int) -> Target:
    """The machine model of a live device: by its name, else the first of its compute capability."""
    words = device_name.lower().replace("-", " ").split()
    words += [one + two for one, two in pairwise(words)]  # "RTX 4090"
    for name, target in _TARGETS.items():
        if any(word.endswith(name) for word in words):  # a whole word's end: an L40S is no L4, a GH200 holds an H200
            return target
    for target in _TARGETS.values():
        if target.capability == capability:
            return target
    raise TargetError(f"no machine facts for {device_name!r} (compute capability {capability / 10})")
