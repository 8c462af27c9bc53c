"""Machine facts: what a kernel is compiled for, and what the static model knows of it.

Sources: NVIDIA's architecture whitepapers and product datasheets (H100 SXM5 and H200: "NVIDIA H100
Tensor Core GPU Architecture"; A100: "NVIDIA A100 Tensor Core GPU Architecture"; L4, L40S and RTX 4090:
"NVIDIA Ada GPU Architecture"; B200: "NVIDIA Blackwell Architecture Technical Brief"; RTX 5090: "NVIDIA RTX Blackwell
GPU Architecture"; T4: "NVIDIA Turing GPU Architecture"; A10G: NVIDIA's datasheet and CUDA's deviceQuery), and per-SM
limits from the CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability". AMD's cards: "AMD
CDNA 3 Architecture" and "AMD CDNA 4 Architecture" with the cards' data sheets; waves, registers and their granules as
in LLVM's AMDGPU back end. Rates are dense (no sparsity), with sums in float32. They are datasheet numbers, not
measurements.

Not published: the L2 rates of RTX 5090 and A10G (scaled from RTX 4090 and L4; T4's is the microbenchmark of Jia et al.,
2019) and of MI355X's Infinity Cache (taken as MI300X's). Of an AMD card an SM is a CU and a warp is a wavefront of 64
lanes; its L2 is the Infinity Cache, which all CUs share (each die has 4 MB of its own before it). Launch times, and the
static model's latencies and shares of these rates, are the H100's for every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from kernelsearch.core.errors import TargetError


@dataclass(frozen=True)
class Target:
    """One machine: limits per SM and per program, rates in GB/s and TFLOP/s, clock in GHz, sizes in bytes.

    capability is what torch reports, also of an AMD card, whose gfx is LLVM's name of its architecture.
    """

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
    gfx: str = ""
    launch_us: float = 2.0

    @property
    def arch(self) -> int | str:
        """What Triton compiles for: the compute capability, or LLVM's name of an AMD architecture."""
        return self.gfx or self.capability

    @property
    def warp_size(self) -> int:
        return 64 if self.gfx else 32

    @property
    def shared_reserved(self) -> int:
        """Bytes of shared memory per program that the system uses."""
        return 1024 if self.capability >= 80 and not self.gfx else 0

    @property
    def issue_cycles(self) -> int:
        """The cycles that an instruction of a warp keeps a scheduler: the 16 lanes of a SIMD take four for 64."""
        return 4 if self.gfx else 1 + (self.capability < 80)

    @property
    def has_copy_engine(self) -> bool:
        """Whether tensor descriptors are more than pointers (TMA)."""
        return not self.gfx and self.capability >= 90

    @property
    def num_stages(self) -> int:
        """Triton's own `num_stages` of a launch that gives none."""
        return 2 if self.gfx else 3

    @property
    def fp8(self) -> tuple[str, ...]:
        """The 8-bit floats that its matrix units take, as torch names them; Triton converts or refuses others."""
        kind = "fnuz" if self.gfx == "gfx942" else ""
        return (f"float8_e4m3{kind or 'fn'}", f"float8_e5m2{kind}") if self.capability >= 89 else ()


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
        Target("rtx5090", 120, 170, 2.407, 1792, 96 << 20, 5700, 101376, 102400, 48, 24, 104.8, 209.5, 104.8),
        Target("a10g", 86, 80, 1.710, 600, 6 << 20, 1700, 101376, 102400, 48, 16, 35.0, 70.0, 35.0),
        Target("t4", 75, 40, 1.590, 320, 4 << 20, 1270, 65536, 65536, 32, 16, 8.1, 65.1, 8.1),
        Target("mi300x", 94, 304, 2.1, 5300, 2**28, 17200, 65536, 65536, 32, 32, 163.4, 1307.4, 653.7, 2**17, "gfx942"),
        Target(
            "mi355x", 95, 256, 2.4, 8000, 2**28, 17200, 163840, 163840, 32, 32, 157.3, 2516.6, 157.3, 2**17, "gfx950"
        ),
    )
}

TARGETS = tuple(_TARGETS)
_BY_NAME_ALONE = ("a10g", "t4")  # others of their architectures are faster: their times would seem impossible


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
    for name, target in _TARGETS.items():
        if target.arch == capability and name not in _BY_NAME_ALONE:
            return target
    raise TargetError(f"no machine facts for {device_name!r} (compute capability {capability / 10})")


def target_for_gfx(gfx: str) -> Target | None:
    """The first machine of an AMD architecture, None where there are no facts."""
    return next((t for t in _TARGETS.values() if gfx and t.gfx == gfx), None)
