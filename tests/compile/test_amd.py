"""AMD's and NVIDIA's oldest target are compiled for without a card, and their binaries are read and estimated."""

import pytest
from triton import knobs

from kernelsearch.compile.build import BuildFailure, Built, build, check_binary, make_ttir
from kernelsearch.compile.code import mean_width
from kernelsearch.core.types import TensorFact
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.measure.static_model.estimate import estimate_launch
from kernelsearch.measure.static_model.occupancy import BinaryResources, find_room

SUMS = """import triton
import triton.language as tl

@triton.jit
def k(x, y, n, B: tl.constexpr):
    c = tl.arange(0, B)
    acc = tl.zeros([B], tl.float32)
    for i in range(0, n, B):
        acc += tl.load(x + tl.program_id(0) * n + i + c).to(tl.float32)
    tl.store(y + tl.program_id(0), tl.sum(tl.exp(acc), 0))
"""
DOT = (
    SUMS.partition("    acc")[0]
    + """    acc = tl.zeros([B, B], tl.float32)
    for i in range(0, n, B):
        a = tl.load(x + c[:, None] * n + i + c[None, :])
        acc = tl.dot(a, a, acc)
    tl.store(y + c[:, None] * B + c[None, :], acc)
"""
)


@pytest.fixture(scope="module", autouse=True)
def quiet_compiler(tmp_path_factory):
    with knobs.cache.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path_factory.mktemp("cache"))
        knobs.compilation.disable_line_info = True
        yield


def spec(block=1024, kind="*fp16", name="k", **options):
    signature = (("x", kind), ("y", "*fp32"), ("n", "i32"), ("B", "constexpr"))
    divisible = ("x", "y", "n")[kind[0] != "*" :]
    return Specialisation(name, signature, (("B", block),), divisible, tuple({"num_warps": 4, **options}.items()))


def compiled(code, name, *args, **options):
    target = target_by_name(name)
    return build(code, "k", spec(*args, **options), target.arch, target.shared_per_program)


@pytest.mark.parametrize("name, arch", [("mi300x", "gfx942"), ("mi355x", "gfx950"), ("t4", 75), ("rtx5090", 120)])
def test_a_kernel_is_compiled_and_estimated(name, arch):
    binary, target = compiled(SUMS, name).binary, target_by_name(name)
    assert binary.arch == arch and check_binary(binary) == binary and not binary.unsupported
    assert 8 < binary.registers < 512 and mean_width(binary.mix.loads) >= 8 and binary.mix["special"]
    (loop,) = (b for b in binary.code.blocks if b.loops)
    assert loop.counts["load_bytes"] * target.warp_size * 4 == 2 * 1024 and loop.chain["load"] == 1
    machine = BinaryResources(4, binary.registers, binary.stack_bytes, binary.shared, binary.mix)
    args = {"x": TensorFact("fp16", (4096, 8192), (8192, 1)), "y": TensorFact("fp32", (4096,), (1,)), "n": 8192}
    least = 2 * 4096 * 8192 / (target.bandwidth_gbps * 1e3)
    assert least < estimate_launch(DeviceLaunch("k", machine, binary.code, (4096, 1, 1), args, target)).time_us
    if target.gfx:  # wavefronts have 64 lanes
        room, granules = find_room(machine, target), -(-binary.registers // 8)
        assert room["registers"] == 64 // granules and room["warps"] == 8


@pytest.mark.parametrize("name, instructions", [("mi300x", True), ("a10g", True), ("t4", False)])
def test_products_use_matrix_units_where_triton_knows_them(name, instructions):
    binary = compiled(DOT, name, 64).binary
    macs = max(b.counts.get("mma_macs", 0) for b in binary.code.blocks if b.loops) * 4
    assert bool(binary.mix["mma"]) is instructions and macs == (64**3 if instructions else 0)
    small = compiled(DOT, name, 64, matrix_instr_nonkdim=16).binary
    assert (small.identity != binary.identity) is (name == "mi300x")


def test_names_and_limits_of_amd_binaries():
    renamed = build(SUMS.replace("def k", "def another"), "k", spec(name="another"), "gfx942", 65536).binary
    assert compiled(SUMS, "mi300x").binary.identity == renamed.identity != compiled(SUMS, "mi355x").binary.identity
    assert "the target has 65536" in compiled(DOT, "mi300x", 256).message
    assert "2048 threads" in compiled(SUMS, "mi300x", num_warps=32).message


def test_descriptors_stay_whole_for_the_evaluator():
    code = SUMS.replace("tl.load(x + tl.program_id(0) * n + i + c)", "tl.sum(x.load([tl.program_id(0), i]), 0)")
    described = spec(64, "tensordesc<fp16[32, 64]>")
    assert all("%x: !tt.tensordesc<" in make_ttir(code, "k", described, arch) for arch in (75, 90, "gfx942"))
    assert isinstance(compiled(code, "mi300x", 64, "tensordesc<fp16[32, 64]>"), Built)


def test_8_bit_floats_that_triton_refuses_and_takes():
    assert "v_cvt" in compiled(SUMS, "mi300x", kind="*fp8e4b8").texts.amdgcn
    assert isinstance(failure := compiled(SUMS, "t4", kind="*fp8e4b8"), BuildFailure)
    assert "not supported" in failure.message
    assert "f8E4M3FNUZ" in make_ttir(SUMS, "k", spec(kind="*fp8e4b8"), "gfx942")
