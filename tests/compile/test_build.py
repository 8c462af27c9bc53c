"""Real binaries, built with no GPU: what is read from them is what NVIDIA's own tools say."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import triton
from triton import knobs

from kernelsearch.compile.build import (
    BuildFailure,
    Built,
    _extract_message,
    as_live_constant,
    build,
    check_binary,
    make_ttir,
    watch_stages,
)  # fmt: skip
from kernelsearch.compile.code import mean_width
from kernelsearch.compile.complaints import read_complaint
from kernelsearch.compile.elf import read_resources
from kernelsearch.compile.ptx import count_instructions
from kernelsearch.compile.tensor_maps import list_flags, name_parameters
from kernelsearch.core.types import DtypeFact, TensorFact
from kernelsearch.kernel import language
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.measure.static_model.estimate import estimate_launch
from kernelsearch.measure.static_model.occupancy import BinaryResources, find_room

HEAD = "import triton\nimport triton.language as tl\n\n\n"
COPY = (
    HEAD
    + """@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.exp(tl.load(x_ptr + i, mask=i < n, other=0.0)), mask=i < n)
"""
)
DOT = (
    HEAD
    + """@triton.jit
def dot(a_ptr, b_ptr, c_ptr, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.arange(0, BM)
    n = tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        ks = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * k + ks[None, :])
        b = tl.load(b_ptr + ks[:, None] * BN + n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * BN + n[None, :], acc.to(tl.float16))
"""
)
DESCRIBED = (
    HEAD
    + """@triton.jit
def dot(a_desc, n, c_desc, c_ptr, BM: tl.constexpr, BK: tl.constexpr):
    acc = tl.zeros((BM, BM), dtype=tl.float32)
    for start in range(0, n, BK):
        a = a_desc.load([tl.program_id(0) * BM, start])
        acc = tl.dot(a, a.T, acc)
    c_desc.store([tl.program_id(0) * BM, 0], acc)
    made = tl.make_tensor_descriptor(c_ptr, [n, n], [n, 1], [BM, BK])
    made.store([0, 0], tl.zeros([BM, BK], tl.int32))
"""
)
H100 = target_by_name("h100")


def copy_spec(divisible=("x_ptr", "y_ptr", "n"), block=1024, dtype="fp32", **options):
    signature = (("x_ptr", f"*{dtype}"), ("y_ptr", f"*{dtype}"), ("n", "i32"), ("BLOCK", "constexpr"))
    return Specialisation(
        "copy", signature, (("BLOCK", block),), divisible, tuple(sorted({"num_warps": 4, **options}.items()))
    )


def dot_spec(bm=128, bn=128, bk=64, **options):
    pointers = tuple((n, "*fp16") for n in ("a_ptr", "b_ptr", "c_ptr"))
    names = (("BK", bk), ("BM", bm), ("BN", bn))
    signature = (*pointers, ("k", "i32"), *((n, "constexpr") for n, _ in names))
    divisible = ("a_ptr", "b_ptr", "c_ptr", "k")
    return Specialisation(
        "dot", signature, names, divisible, tuple(sorted({"num_warps": 4, "num_stages": 3, **options}.items()))
    )


@pytest.fixture(scope="module", autouse=True)
def quiet_compiler(tmp_path_factory):
    """Line info off, as in the compile workers, and a cache of its own."""
    with knobs.cache.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path_factory.mktemp("cache"))
        knobs.compilation.disable_line_info = True
        yield


@pytest.fixture(scope="module")
def built():
    kept = {}

    def make(code, spec, target=H100, name="k"):
        key = (code, spec, target.name, name)
        if key not in kept:
            kept[key] = build(code, name, spec, target.arch, target.shared_per_program)
        return kept[key]

    return make


def tool(name):
    path = Path(triton.__file__).parent / "backends/nvidia/bin" / name
    if not path.exists():
        pytest.skip(f"this Triton has no {name}")
    return str(path)


SPILLING = replace(copy_spec(block=8192), options=(("maxnreg", 24), ("num_warps", 2)))
USED = [(COPY, copy_spec()), (COPY, copy_spec(block=4096, num_warps=8)), (DOT, dot_spec()), (COPY, SPILLING)]


@pytest.mark.parametrize("code, spec", USED, ids=["copy", "wide", "dot", "spilling"])
def test_resources_are_those_of_cuobjdump(built, tmp_path, code, spec):
    binary = built(code, spec).binary
    file = tmp_path / "k.cubin"
    file.write_bytes(binary.cubin)
    said = subprocess.run([tool("cuobjdump"), "-res-usage", str(file)], capture_output=True, text=True, check=True)
    numbers = dict(re.findall(r"\b(REG|STACK):(\d+)", said.stdout + said.stderr))
    assert binary.registers == int(numbers["REG"])
    assert binary.stack_bytes == int(numbers["STACK"])
    assert read_resources(binary.cubin, binary.name).registers == binary.registers


def test_a_kernel_held_to_few_registers_spills(built):
    assert built(COPY, SPILLING).binary.stack_bytes > 0 == built(COPY, copy_spec()).binary.stack_bytes


IN_FLIGHT = """import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait


@gluon.jit
def square(x_ptr, y_ptr, n):
    tile: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    wide: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    rows = gl.arange(0, 64, gl.SliceLayout(1, tile))
    x = gl.load(x_ptr + rows[:, None] * 64 + gl.arange(0, 64, gl.SliceLayout(0, tile))[None, :])
    s = gl.allocate_shared_memory(gl.bfloat16, [64, 64], gl.NVMMASharedLayout(128, 16, 2), x)
    fence_async_shared()
    acc = gl.zeros([64, 64], gl.float32, wide)
    for i in range(n):
        acc = warpgroup_mma_wait(1, deps=(warpgroup_mma(s, s, acc, is_async=True),))
        acc = acc * 0.5
    acc = warpgroup_mma_wait(0, deps=(acc,))
    rows = gl.arange(0, 64, gl.SliceLayout(1, wide))
    gl.store(y_ptr + rows[:, None] * 64 + gl.arange(0, 64, gl.SliceLayout(0, wide))[None, :], acc)
"""


def test_products_that_wait_for_each_other_are_in_the_binary(built):
    spec = Specialisation("square", (("x_ptr", "*bf16"), ("y_ptr", "*fp32"), ("n", "i32")), (), ("x_ptr", "y_ptr"), ())
    first, again = built(IN_FLIGHT, spec), build(IN_FLIGHT, "k", spec, 90, 232448)  # the second from Triton's cache
    (said,) = first.binary.code.serialised
    assert re.fullmatch(r"C75\d\d .*accumulator registers of a wgmma.*", said) and again.binary.code.serialised == (
        said,
    )
    assert built(IN_FLIGHT.replace("        acc = acc * 0.5\n", ""), spec).binary.code.serialised == ()
    (said,) = built(DOT, dot_spec(256, 128, 64, num_stages=2)).binary.code.serialised  # Triton's own products too
    assert said.startswith("C75") and "insufficient register resources" in said
    assert built(DOT, dot_spec()).binary.code.serialised == ()


def test_no_cubin_is_said():
    with pytest.raises(ValueError, match="not an ELF file"):
        read_resources(b"nothing of the kind" * 10, "k")


def test_another_name_is_not_in_the_cubin(built):
    with pytest.raises(ValueError, match="no kernel 'other'"):
        read_resources(built(COPY, copy_spec()).binary.cubin, "other")


@pytest.mark.parametrize("dtype, divisible, width", [
    ("fp32", ("x_ptr", "y_ptr", "n"), 16), ("bf16", ("x_ptr", "y_ptr", "n"), 16), ("fp32", (), 4), ("bf16", (), 2),
])  # fmt: skip
def test_widths_follow_alignment(built, dtype, divisible, width):
    code = COPY if dtype == "fp32" else COPY.replace("tl.exp(tl.load", "(tl.load")
    mix = built(code, copy_spec(divisible, dtype=dtype)).binary.mix
    assert mean_width(mix.loads) == mean_width(mix.stores) == width
    assert set(mix.loads) == set(mix.stores) == {width}
    assert sum(n * w for w, n in mix.loads.items()) * 128 == 1024 * (4 if dtype == "fp32" else 2)
    assert mix.parameters >= 3 and mix.total > 10


def test_special_instructions_are_counted(built):
    assert built(COPY, copy_spec()).binary.mix["special"] == 8  # 1024 elements over 128 threads


def test_matrix_instructions_by_target(built):
    hopper, ampere = built(DOT, dot_spec()).binary, built(DOT, dot_spec(), target_by_name("a100")).binary
    assert hopper.mix["wgmma"] > 0 and hopper.mix["mma"] == 0
    assert ampere.mix["mma"] > 0 and ampere.mix["wgmma"] == 0
    assert hopper.mix["cp_async"] > 0 and hopper.mix["barrier"] > 0
    assert hopper.arch == 90 and ampere.arch == 80 and hopper.identity != ampere.identity
    assert hopper.num_warps == 4 and hopper.shared > 48 << 10


@pytest.mark.parametrize("name", ["a100", "l4", "h200", "b200"])
def test_other_targets(built, name):
    target = target_by_name(name)
    binary = built(COPY, copy_spec(), target).binary
    assert binary.arch == target.capability and binary.registers > 0
    assert mean_width(binary.mix.loads) == 16


@pytest.mark.parametrize("name", ["mi300x", "mi355x", "t4", "a10g", "rtx5090"])
def test_targets_that_we_have_no_card_of_are_read_and_estimated(built, name):
    target, multiplies = target_by_name(name), name != "t4"  # Triton has no matrix instructions for sm_75
    binary, product = (built(c, s, target).binary for c, s in ((COPY, copy_spec()), (DOT, dot_spec(64, 64))))
    assert binary.arch == target.arch and check_binary(binary) == binary and not binary.unsupported
    assert 8 <= binary.registers < 512 and mean_width(binary.mix.loads) == 16 and binary.mix["special"]
    macs = max(b.counts.get("mma_macs", 0) for b in product.code.blocks if b.loops)  # of one of four warps
    assert bool(product.mix["mma"]) is multiplies and 4 * macs == multiplies * 64**3
    machine = BinaryResources(4, binary.registers, binary.stack_bytes, binary.shared, binary.mix)
    args = dict.fromkeys(("x_ptr", "y_ptr"), TensorFact("fp32", (1 << 24,), (1,))) | {"n": 1 << 24}
    launch, least = DeviceLaunch("copy", machine, binary.code, (1 << 14, 1, 1), args, target), 2 << 26
    assert least / (target.bandwidth_gbps * 1e3) < estimate_launch(launch).time_us
    if target.gfx:  # wavefronts have 64 lanes, and each of four SIMDs 512 registers a lane
        assert find_room(machine, target)["registers"] == 64 // -(-binary.registers // 8)


@pytest.mark.slow
def test_options_names_and_limits_of_amd_binaries(built):
    amd, small = target_by_name("mi300x"), dot_spec(64, 64, matrix_instr_nonkdim=16)
    renamed = build(COPY.replace("copy", "b"), "b", replace(copy_spec(), function="b"), "gfx942", 65536).binary
    assert built(COPY, copy_spec(), amd).binary.identity == renamed.identity
    assert built(DOT, small, amd).binary.identity != built(DOT, dot_spec(64, 64), amd).binary.identity
    assert "the target has 65536" in built(DOT, dot_spec(256, 256), amd).message
    assert "2048 threads" in built(COPY, copy_spec(num_warps=32), amd).message


def test_8_bit_floats_and_descriptors_of_targets_without_them(built):
    amd, small = target_by_name("mi300x"), copy_spec(dtype="fp8e4b8")
    halves = COPY.replace("other=0.0)", "other=0.0).to(tl.float32)")
    assert "v_cvt" in built(halves, small, amd).texts.amdgcn and "f8E4M3FNUZ" in make_ttir(halves, "k", small, amd.arch)
    assert "not supported" in built(halves, small, target_by_name("t4")).message
    kinds = (("a_desc", "tensordesc<fp16[64, 32]>"), ("n", "i32"), ("c_desc", "tensordesc<fp32[64, 64]>"))
    rest = (("c_ptr", "*i32"), ("BM", "constexpr"), ("BK", "constexpr"))
    described = Specialisation("dot", (*kinds, *rest), (("BK", 32), ("BM", 64)), ("c_ptr",), (("num_warps", 4),))
    assert all("%a_desc: !tt.tensordesc<" in make_ttir(DESCRIBED, "k", described, a) for a in (75, 90, "gfx942"))
    assert isinstance(built(DESCRIBED, described, amd), Built)


def test_identity_sees_the_machine_code_and_neither_name_nor_line_nor_comment(built):
    plain = built(COPY, copy_spec()).binary
    moved = built(
        HEAD + "# a comment\n\n\n" + COPY.removeprefix(HEAD).replace("    i =", "\n    # more\n    i ="),
        copy_spec(),
        name="j",
    ).binary
    renamed_spec = replace(copy_spec(), function="another_name")
    renamed = built(COPY.replace("def copy", "def another_name"), renamed_spec).binary
    assert moved.identity == plain.identity == renamed.identity
    assert renamed.name == "another_name" != plain.name
    assert built(COPY.replace("tl.exp(", "tl.log("), copy_spec()).binary.identity != plain.identity
    assert built(COPY, copy_spec(num_warps=8)).binary.identity != plain.identity


def test_params_leave_out_what_became_a_constant(built):
    spec = copy_spec()
    spec = replace(spec, signature=tuple((n, "constexpr" if n == "n" else k) for n, k in spec.signature),
                   constexprs=(("BLOCK", 1024), ("n", 1)), divisible=("x_ptr", "y_ptr"))  # fmt: skip
    binary = built(COPY, spec).binary
    assert binary.params == (("x_ptr", "*fp32"), ("y_ptr", "*fp32"))
    assert built(COPY, copy_spec()).binary.params == (("x_ptr", "*fp32"), ("y_ptr", "*fp32"), ("n", "i32"))


def test_more_shared_memory_than_the_target_has_is_refused(built):
    wide = dot_spec(128, 256, 64, num_warps=8, num_stages=5)
    failure = built(DOT, wide)
    assert isinstance(failure, BuildFailure)
    assert re.fullmatch(r"needs \d+ bytes of shared memory, the target has 232448", failure.message)
    assert (
        isinstance(built(DOT, dot_spec(), target_by_name("l4")), (BuildFailure,))
        or built(DOT, dot_spec(), target_by_name("l4")).binary.shared <= 101376
    )


def test_such_a_compile_ends_before_ptx_is_made():
    stages = {"ptx": lambda source, metadata: f"ptx of {source}", "cubin": None}
    with watch_stages(1000):
        knobs.runtime.add_stages_inspection_hook(None, stages, None, None, 90)
        assert all(isinstance(part, str) for part in knobs.runtime.add_stages_inspection_hook())
    assert stages["ptx"]("enough", {"shared": 1000}) == "ptx of enough"
    with pytest.raises(RuntimeError, match="needs 1001 bytes of shared memory, the target has 1000"):
        stages["ptx"]("too much", {"shared": 1001})
    assert knobs.runtime.add_stages_inspection_hook is None


@pytest.mark.parametrize("old, new, said", [
    ("tl.exp(", "tl.no_such(", "no_such"),
    ("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK - 1)", "power of 2"),
    ("+ i, mask=i < n)\n", "+ j, mask=i < n)\n", "j is not defined"),
    ("tl.exp(", "tl.dot(1, ", ""),
    ("mask=i < n, other", "mask=tl.arange(0, 2) < n, other", "shape"),
])  # fmt: skip
def test_what_the_compiler_refuses_is_a_value(built, old, new, said):
    code = COPY.replace(old, new)
    if "+ j" in new:
        code = COPY.replace("tl.store(y_ptr + i", "tl.store(y_ptr + j")
    failure = built(code, copy_spec())
    assert isinstance(failure, BuildFailure)
    assert said in failure.message and 0 < len(failure.message) <= 600


def test_clusters_are_in_the_binary(built):
    for ctas in (1, 2):
        binary = built(COPY, copy_spec(num_ctas=ctas)).binary
        assert binary.num_ctas == ctas and binary.unsupported == ""


def test_dtype_constants_come_alive():
    assert [str(as_live_constant(DtypeFact(n))) for n in ("bf16", "fp32", "i1", "i64")] == [
        "bf16",
        "fp32",
        "int1",
        "int64",
    ]
    assert as_live_constant(3) == 3


def test_a_mix_of_nothing():
    mix = count_instructions("")
    assert mean_width(mix.loads) == 0.0 and mix["wgmma"] == 0 and mix.total == 0


def test_mix_of_hand_written_ptx():
    mix = count_instructions(
        ".visible .entry k(\n\t.param .u64 a,\n\t.param .u32 b\n)\n{\n"
        "ld.global.v4.b32 {%r1}, [%rd1];\n@%p1 ld.global.L1::evict_first.v2.b64 {%r1}, [%rd1];\n"
        "st.shared.b16 [%r1], %h1;\nst.global.b8 [%rd1], %r1;\n"
        "cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;\n"
        "red.global.add.f32 [%rd1], %f1;\nex2.approx.ftz.f32 %f1, %f2;\nwgmma.mma_async.sync.aligned.m64n64k16 x;\n}\n"
    )
    assert mix.loads == {16: 3} and mix.stores == {1: 1} and mix.shared == {2: 1} and mix.parameters == 2
    assert {k: mix[k] for k in ("atomic", "special", "wgmma", "cp_async")} == {
        "atomic": 1,
        "special": 1,
        "wgmma": 1,
        "cp_async": 1,
    }


TILES = """
import triton
import triton.language as tl


@triton.jit
def total(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr, TMA: tl.constexpr):
    acc = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    if TMA:
        tiles = tl.make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    i = tl.arange(0, BLOCK)
    for start in tl.range(0, cols, BLOCK, num_stages=3):
        if TMA:
            x = tiles.load([0, start])
        else:
            mask = (i[:, None] < rows) & (start + i[None, :] < cols)
            x = tl.load(x_ptr + i[:, None] * cols + start + i[None, :], mask=mask, other=0.0)
        acc = tl.dot(x, x, acc)
    tl.store(y_ptr + i[:, None] * BLOCK + i[None, :], acc)
"""


def test_copies_of_whole_tiles_count_as_what_they_load():
    """One thread starts a descriptor's copy: its bytes and its lead are those of the copies that it stands for."""
    found = {}
    for tma in (False, True):
        pointers, sizes = (("x_ptr", "*bf16"), ("y_ptr", "*fp32")), (("rows", "i32"), ("cols", "i32"))
        signature = (*pointers, *sizes, ("BLOCK", "constexpr"), ("TMA", "constexpr"))
        spec = Specialisation(
            "total", signature, (("BLOCK", 64), ("TMA", tma)), ("x_ptr", "y_ptr", "rows", "cols"), (("num_warps", 4),)
        )
        built = build(TILES, "k", spec, 90, 232_448)
        assert isinstance(built, Built), built
        _, inside = built.binary.code.blocks
        (access,) = [a for a in built.binary.code.accesses if a.kind == "load"]
        assert access.descriptor is tma and bool(built.binary.mix["tma"]) is tma
        found[tma] = (inside.counts["load_bytes"], inside.ahead, inside.counts["wgmma_macs"])
    assert found[True] == found[False] and found[True][0] == 64 * 64 * 2 // 128


BLOCKS = """
import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    x = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (BLOCK,), (0,))
    tl.store(y_ptr + tl.arange(0, BLOCK), tl.load(x, boundary_check=(0,), padding_option="zero"))
"""


@pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")
def test_block_pointers_compile_or_are_refused_in_one_line():
    """A file's own seed is compiled whatever the gate says, so this is what its user reads."""
    found = build(BLOCKS, "k", copy_spec(), 90, 232_448)
    if language.installed_version() <= language.LAST_BLOCK_POINTERS:
        assert isinstance(found, Built), found
    else:
        assert found == BuildFailure(f"tl.make_block_ptr: {language.explain_refusal('make_block_ptr')}")


def test_a_removed_function_is_said_without_the_compilers_listing():
    from triton.compiler.errors import CompilationError

    cause = NotImplementedError("Block pointers have been removed in favor of the tensor descriptor API")
    error = CompilationError("def k():\n    x = tl.make_block_ptr()\n", None, None)
    error.__cause__ = cause
    assert _extract_message(error).startswith("tl.make_block_ptr: Triton ") and "\n" not in _extract_message(error)
    error.__cause__ = NotImplementedError("something else")
    assert "something else" in _extract_message(error) and "tl.make_block_ptr: " not in _extract_message(error)


CAUSES = {
    "tl.dot(x, x, tl.zeros([16, 16], tl.int32))": "AssertionError at `assert acc.type",
    "help(x)": "at `return missing + x`: NameError('missing is not defined')",
    "tl.reshape(x, (3,))": ": Shape element 0 must be a power of 2",
}


@pytest.mark.parametrize("call", CAUSES)
def test_a_refusal_names_the_line_and_the_cause_and_not_the_text_above(call):
    code = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef help(x):\n    return missing + x\n\n\n"
        "@triton.jit\ndef k(x_ptr):\n    x = tl.zeros([16, 16], tl.float16)\n"
        f"    y = {call}\n    tl.store(x_ptr, 1.0)\n"
    )
    refused = build(code, "k", Specialisation("k", (("x_ptr", "*fp32"),), (), (), ()), 90, 232_448)
    assert refused.message.startswith(f"at `y = {call}`") and CAUSES[call] in refused.message, refused
    assert "x_ptr" not in refused.message


CLUSTERED = (
    HEAD
    + """@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    {line}
"""
)


@pytest.mark.parametrize("line", [
    "tl.store(x_ptr + at, tl.sort(tl.load(x_ptr + at)))",
    "a = tl.zeros([64, 64], tl.float16)\n    tl.store(x_ptr, tl.sum(tl.sum(tl.dot(a, a), 0), 0))",
])  # fmt: skip
def test_what_a_pass_says_is_kept(line, capfd):
    """Its sentence is printed by C++; the exception only says that a pass manager failed."""
    signature = (("x_ptr", "*fp32"), ("n", "i32"), ("BLOCK", "constexpr"))
    spec = Specialisation("k", signature, (("BLOCK", 64),), ("x_ptr",), (("num_ctas", 2), ("num_warps", 4)))
    failure = build(CLUSTERED.format(line=line), "t", spec, H100.capability, H100.shared_per_program)
    assert isinstance(failure, BuildFailure)
    assert re.fullmatch(r"PassManager::run failed: \w.{20,} \(in \w+\)", failure.message), failure.message
    assert capfd.readouterr().err == "", "the kernel's listing is not printed"


def test_what_is_printed_elsewhere_still_is(capfd):
    assert isinstance(build(COPY, "t", copy_spec(), H100.capability, H100.shared_per_program), Built)
    print("heard", file=sys.stderr, flush=True)
    assert capfd.readouterr().err == "heard\n"


@pytest.mark.parametrize("text, said", [
    ("loc(0): error: parent layout must have at least rank >= 2\nx\nk.py:5:0: error: Failures have been detected "
     "while processing an MLIR pass pipeline\nk.py: note: Pipeline failed while executing [`PlanCTA` on 'builtin'",
     "parent layout must have at least rank >= 2 (in PlanCTA)"),
    ("python: a.cpp:3: int f(): Assertion `a.ok() && \"Unexpected layout\"' failed.\n", "Unexpected layout"),
    ("python: a.h:3: int f(): Assertion `succeeded( T::verify(a))' failed.\n", "succeeded( T::verify(a))"),
    ("LLVM ERROR: Cannot select: intrinsic\n", "Cannot select: intrinsic"),
    ("warning: nothing\n", ""),
])  # fmt: skip
def test_the_sentence_in_what_a_compiler_prints(text, said):
    assert read_complaint(text) == said


def test_tuples_are_joined():
    signature = (("x_ptr", "*i32"), ("n", "i32"), ("BLOCK", "constexpr"))
    spec = Specialisation("k", signature, (("BLOCK", 64),), ("x_ptr",), (("num_warps", 4),))
    lines = "pair = (n, 2) + (BLOCK,)\n    pair += (n + 5,)\n    tl.store(x_ptr, pair[0] + pair[2] + pair[3])"
    assert isinstance(build(CLUSTERED.format(line=lines), "t", spec, H100.capability, H100.shared_per_program), Built)


@pytest.mark.parametrize("target, names", [
    ("h100", ("a_desc", *(f"a_desc.{i}" for i in range(1, 5)))),
    ("a100", ("a_desc", *(f"a_desc.{i}" for i in range(1, 9 + len(list_flags()))))),
])  # fmt: skip
def test_descriptor_arguments_are_expanded_as_tritons_driver_does(target, names):
    signature = (("a_desc", "tensordesc<bf16[128, 64]>"), ("n", "i32"), ("c_desc", "tensordesc<fp32[128, 128]>"))
    spec = Specialisation(
        "dot",
        (*signature, ("c_ptr", "*i32"), ("BM", "constexpr"), ("BK", "constexpr")),
        (("BK", 64), ("BM", 128)),
        ("c_ptr",),
        (("num_warps", 4),),
    )
    target = target_by_name(target)
    built = build(DESCRIBED, "described", spec, target.capability, target.shared_per_program)
    assert isinstance(built, Built), built
    binary = built.binary
    assert binary.params == (*signature, ("c_ptr", "*i32")) and not binary.unsupported
    described = name_parameters(binary.params, bool(binary.maps))
    assert described[: len(names) + 1] == (*names, "n") and described[-1] == "c_ptr"
    assert binary.mix.parameters == len(described) + 2
    loads = [a for a in binary.code.accesses if a.kind == "load" and a.base == "a_desc"]
    stores = [a for a in binary.code.accesses if a.kind == "store" and len(a.shape) == 2]
    assert [a.shape for a in loads] == [(128, 64)] and loads[0].width == 2 and len(loads[0].loops) == 1
    assert [(a.base, a.shape, a.width) for a in stores] == [("c_desc", (128, 128), 4), ("c_ptr", (128, 64), 4)]
    if binary.arch >= 90:
        assert loads[0].descriptor and stores[0].descriptor
        assert [(m.element_bytes, m.element_type, m.box) for m in binary.maps] == [
            (2, 9, (128, 64)),
            (4, 7, (128, 32)),
        ]  # CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, _FLOAT32; rows of 128 bytes
        assert binary.maps[0].swizzle == 3 and binary.code.accesses[0].loops[0].last == ("arg", "n")
    else:
        assert not binary.maps
