"""AMD's and NVIDIA's oldest target are compiled for without a card, and their binaries are read and estimated."""

import pytest
from triton import knobs

from kernelsearch.compile.amdgcn import read_resources
from kernelsearch.compile.build import BuildFailure, Built, build, check_binary, make_ttir
from kernelsearch.compile.code import mean_width
from kernelsearch.core.types import TensorFact
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.measure.static_model.estimate import estimate_launch
from kernelsearch.measure.static_model.occupancy import BinaryResources, find_room

HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
SUMS = (
    HEAD
    + """def k(x, y, n, B: tl.constexpr):
    c = tl.arange(0, B)
    acc = tl.zeros([B], tl.float32)
    for i in range(0, n, B):
        acc += tl.load(x + tl.program_id(0) * n + i + c).to(tl.float32)
    tl.store(y + tl.program_id(0), tl.sum(tl.exp(acc), 0))
"""
)
DOT = (
    HEAD
    + """def k(x, y, n, B: tl.constexpr):
    c = tl.arange(0, B)
    acc = tl.zeros([B, B], tl.float32)
    for i in range(0, n, B):
        a = tl.load(x + c[:, None] * n + i + c[None, :])
        acc = tl.dot(a, a, acc)
    tl.store(y + c[:, None] * B + c[None, :], acc)
"""
)
KINDS = {"fp16": "*fp16", "fnuz": "*fp8e4b8"}


@pytest.fixture(scope="module", autouse=True)
def quiet_compiler(tmp_path_factory):
    with knobs.cache.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path_factory.mktemp("cache"))
        knobs.compilation.disable_line_info = True
        yield


def spec(block=1024, kind="fp16", **options):
    signature = (("x", KINDS[kind]), ("y", "*fp32"), ("n", "i32"), ("B", "constexpr"))
    return Specialisation("k", signature, (("B", block),), ("x", "y", "n"), tuple({"num_warps": 4, **options}.items()))


def compiled(code, name, *args, **options):
    target = target_by_name(name)
    return build(code, "k", spec(*args, **options), target.arch, target.shared_per_program)


def launched(binary, name, rows=4096, n=8192):
    machine = BinaryResources(binary.num_warps, binary.registers, binary.stack_bytes, binary.shared, binary.mix)
    args = {"x": TensorFact("fp16", (rows, n), (n, 1)), "y": TensorFact("fp32", (rows,), (1,)), "n": n}
    return DeviceLaunch("k", machine, binary.code, (rows, 1, 1), args, target_by_name(name))


@pytest.mark.parametrize("name, arch", [("mi300x", "gfx942"), ("mi355x", "gfx950"), ("t4", 75), ("rtx5090", 120)])
def test_a_kernel_is_compiled_and_estimated(name, arch):
    binary, target = compiled(SUMS, name).binary, target_by_name(name)
    assert binary.arch == arch and check_binary(binary) == binary and not binary.unsupported
    assert 8 < binary.registers < 512 and mean_width(binary.mix.loads) >= 8 and binary.mix["special"]
    (loop,) = (b for b in binary.code.blocks if b.loops)
    assert loop.counts["load_bytes"] * target.warp_size * 4 == 2 * 1024 and loop.chain["load"] == 1
    least = 2 * 4096 * 8192 / (target.bandwidth_gbps * 1e3)
    assert least < estimate_launch(launched(binary, name)).time_us < 20 * least


def test_a_wavefront_has_64_lanes():
    one = launched(compiled(SUMS, "mi300x").binary, "mi300x")
    room = find_room(one.machine, one.target)
    granules = -(-one.machine.registers // 8) * 8
    assert room["registers"] == 4 * 512 * 64 / (granules * 64 * 4) and room["warps"] == 8
    assert isinstance(compiled(SUMS, "mi300x", num_warps=32), BuildFailure)  # 2048 threads
    assert not isinstance(compiled(SUMS, "t4", num_warps=16), BuildFailure)


@pytest.mark.parametrize("name, instructions", [("mi300x", True), ("a10g", True), ("t4", False)])
def test_products_use_matrix_units_where_triton_knows_them(name, instructions):
    binary = compiled(DOT, name, 64).binary
    assert bool(binary.mix["mma"]) is instructions
    macs = max(b.counts.get("mma_macs", 0) for b in binary.code.blocks if b.loops) * 4
    assert macs == (64**3 if instructions else 0)
    small = compiled(DOT, name, 64, matrix_instr_nonkdim=16).binary
    assert (small.identity != binary.identity) is (name == "mi300x")


def test_other_options_and_names_of_amd_binaries():
    plain, renamed = (build(SUMS.replace("def k", f"def {n}"), n, s, "gfx942", 65536).binary for n, s in (
        ("k", spec()), ("another", Specialisation("another", *list(vars(spec()).values())[1:]))
    ))  # fmt: skip
    assert plain.identity == renamed.identity != compiled(SUMS, "mi355x").binary.identity
    failure = compiled(DOT, "mi300x", 256)
    assert isinstance(failure, BuildFailure) and "the target has 65536" in failure.message
    with pytest.raises(KeyError):
        read_resources("\ts_endpgm\n")


def test_descriptors_stay_whole_for_the_evaluator():
    kinds = (("x", "tensordesc<fp16[32, 64]>"), ("y", "*fp32"), ("n", "i32"), ("B", "constexpr"))
    code = SUMS.replace("tl.load(x + tl.program_id(0) * n + i + c)", "tl.sum(x.load([tl.program_id(0), i]), 0)")
    described = Specialisation("k", kinds, (("B", 64),), ("y",), (("num_warps", 4),))
    for arch in (75, 90, "gfx942"):
        assert "%x: !tt.tensordesc<" in make_ttir(code, "k", described, arch)
    assert isinstance(build(code, "k", described, "gfx942", 65536), Built)


def test_8_bit_floats_that_triton_refuses_and_takes():
    assert "v_cvt" in (built := compiled(SUMS, "mi300x", kind="fnuz")).texts.amdgcn and built.binary.mix["load"]
    assert "not supported" in compiled(SUMS, "t4", kind="fnuz").message
    assert "f8E4M3FNUZ" in make_ttir(SUMS, "k", spec(kind="fnuz"), "gfx942")
