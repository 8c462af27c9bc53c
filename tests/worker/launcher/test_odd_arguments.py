"""Launch arguments that are no plain tensors or numbers: reinterpreted pointers, keywords that heuristics read."""

import textwrap
from dataclasses import replace

import pytest
import torch
import triton.language as tl
from triton import reinterpret

from kernelsearch.compile.build import as_live_constant
from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import DescriptorFact, DtypeFact, TensorFact
from kernelsearch.kernel.launch import make_plan
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks.facts import describe
from kernelsearch.worker.launcher import opening
from kernelsearch.worker.launcher import trace as tracing
from traces import trace_launches

H100 = target_by_name("h100")
HEAD = """
import torch, triton, triton.language as tl

def reference(x): return x * 1
def get_inputs(rows=6, cols=50): return [torch.randint(-9, 9, (rows, cols), dtype=torch.int8)]
TEST_SHAPES = [dict(rows=3, cols=7)]
"""


@pytest.fixture
def task(tmp_path):
    def write(text):
        path = (
            tmp_path / str(len(list(tmp_path.iterdir()))) / "odd.py"
        )  # Python takes one of the same second for the last
        path.parent.mkdir()
        path.write_text(HEAD + textwrap.dedent(text))
        return opening.open_task(path, H100)

    return write


def launches(task, device=None):
    return tracing.run_launcher(task, "timed:0", H100, device).launches


COPY = """
@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr): pass
def go(x):
    y = torch.empty_like(x)
    copy_kernel[(1,)](POINTER, y, x.numel(), BLOCK=64)
    return y
"""


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize(
    ("pointer", "dtype", "aligned"),
    [
        ("triton.reinterpret(x, tl.float8e5)", "fp8e5", True),
        ("triton.reinterpret(x, tl.float8e4nv)", "fp8e4nv", True),
        ("triton.reinterpret(triton.reinterpret(x, tl.float8e5), tl.uint8)", "u8", True),
        ("triton.reinterpret(x, torch.uint8)", "u8", True),
        ("triton.reinterpret(x[1:], tl.float8e5)", "fp8e5", False),
        ("triton.reinterpret(x > 0, tl.int8)", "i8", True),
        ("triton.reinterpret(x.to(torch.int32), tl.uint32)", "u32", True),
        ("triton.reinterpret(x.to(torch.int16), tl.bfloat16)", "bf16", True),
    ],
)
def test_a_reinterpreted_pointer_is_the_same_memory_in_the_other_dtype(task, device, pointer, dtype, aligned):
    (launch,) = launches(task(COPY.replace("POINTER", pointer)), device)
    fact = tracing.as_launch_fact(launch).args["x_ptr"]
    assert isinstance(fact, TensorFact) and (fact.dtype, fact.aligned) == (dtype, aligned)


def test_it_shares_its_storage():
    from kernelsearch.worker.launcher.intercept import _as_tensor

    x = torch.arange(8, dtype=torch.int8)
    _as_tensor(reinterpret(x[2:], tl.float8e5), "x").view(torch.uint8)[0] = 77
    assert x[2] == 77


BUFFER = """
class Buffer:  # an object of a launcher's own, as libraries have that generate their launchers
    def __init__(self, base, offset): self._base, self.dtype, self.offset = base, base.dtype, offset
    def data_ptr(self): return self._base.data_ptr() + self.offset * self.dtype.itemsize
"""


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_an_object_with_a_pointer_of_its_own(task, device):
    (launch,) = launches(task(BUFFER + COPY.replace("POINTER", "Buffer(x.view(-1)[2:], 14)")), device)
    tensor = launch.args["x_ptr"]
    assert tensor.dtype is torch.int8 and tensor.storage_offset() == 16 and tensor.shape == (284,)


@pytest.mark.parametrize(
    ("pointer", "says"),
    [
        ("triton.reinterpret(x, tl.float16)", "'x_ptr' of copy_kernel is int8 that is read as fp16: only dtypes of"),
        ("triton.reinterpret(x, tl.float8e4b15)", "is int8 that is read as fp8e4b15: only dtypes of PyTorch"),
        ("type('Bare', (), {'data_ptr': lambda self: 0})()", "is a Bare that holds no tensor: pass a tensor"),
    ],
)
def test_what_is_not_supported_is_said(task, pointer, says):
    with pytest.raises(TaskError, match=says):
        launches(task(COPY.replace("POINTER", pointer)), "cpu")


HEURISTIC = """
@ABOVE
@triton.heuristics({"CAPS": lambda args: bool(args["CAPS"]), "SCALES": lambda args: args["n"] > 5 and args["SCALES"]})
@triton.heuristics({"BOTH": lambda args: args["CAPS"] and args["SCALES"]})
@BELOW
@triton.jit
def cap_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, CAPS: tl.constexpr, SCALES: tl.constexpr = False,
               BOTH: tl.constexpr = 7): pass
def go(x):
    y = torch.empty_like(x)
    cap_kernel[(1,)](x, y, x.numel(), PASSED)
    return y
"""
TUNE = 'triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])'


@pytest.mark.parametrize(
    ("above", "below", "block"), [("", "", "BLOCK=64, "), (TUNE, "", ""), ("", TUNE, "")], ids=["no", "above", "below"]
)
def test_heuristics_read_what_the_launcher_passes_for_them(task, above, below, block):
    text = HEURISTIC.replace("@ABOVE\n", f"@{above}\n" if above else "")
    text = text.replace("@BELOW\n", f"@{below}\n" if below else "").replace("PASSED", f"{block}CAPS=1, SCALES=True")
    (launch,) = launches(task(text))
    bound = launch.bind_parameters()
    assert (bound["CAPS"], bound["SCALES"], bound["BOTH"], bound["BLOCK"]) == (True, True, True, 64)
    assert tracing.as_launch_fact(launch).args["CAPS"] is True
    assert launch.bind_parameters({"CAPS": False, "BOTH": 3})["BOTH"] == 3


def test_a_heuristic_reads_a_keyword_that_is_passed_by_position(task):
    text = HEURISTIC.replace("@ABOVE\n", "").replace("@BELOW\n", "").replace("PASSED", "64, 0, False")
    assert launches(task(text))[0].bind_parameters()["CAPS"] is False


def test_every_dtype_of_the_language_as_a_constant():
    for dtype in (v for v in vars(tl).values() if type(v) is tl.dtype and v.name != "void"):
        assert as_live_constant(DtypeFact(dtype.name)) is dtype


DESCRIBED = """
from triton.tools.tensor_descriptor import TensorDescriptor
def set_tiles(args): args["x_desc"].block_shape = [args["ROWS"], 2 * args["COLS"]]
@triton.autotune([triton.Config({"COLS": 16}, pre_hook=set_tiles), triton.Config({"COLS": 8})], key=[])
@triton.jit
def copy_kernel(x_desc, y_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr): pass
def get_inputs(rows=6, cols=48): return [torch.randint(-9, 9, (rows, cols), dtype=torch.int8)]
TEST_SHAPES = [dict(rows=3, cols=32)]
def go(x):
    y = torch.empty_like(x)
    copy_kernel[(1,)](TensorDescriptor.from_tensor(x[:, :32], [4, 16]), y, x.numel(), ROWS=4, COLS=16)
    return y
"""
HOOKED = DESCRIBED.replace(", COLS=16)\n", ")\n")
FIXED = "\n".join(line for line in DESCRIBED.splitlines() if not line.startswith(("@triton.autotune", "def set_tiles")))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_tritons_own_descriptors_are_facts_with_the_tile_that_a_config_gives_them(task, device):
    view = DescriptorFact("i8", (6, 32), (48, 1), True, (4, 16))
    assert tracing.as_launch_fact(launches(task(FIXED), device)[0]).args["x_desc"] == view
    hooked = launches(task(HOOKED), device)
    for config, columns in ((None, 32), ({"COLS": 64}, 128), ({"copy_kernel.COLS": 16}, 32)):
        (fact,) = tracing.make_trace("timed:0", hooked, config).launches
        assert fact.args["x_desc"] == replace(view, block=(4, columns), hooked=True)


def test_tiles_of_the_launchers_descriptors_are_tuned_where_their_constexprs_are_plain(task):
    described = describe(task(FIXED), lambda t, key: trace_launches(t, key, H100))
    (spec,) = Kernel.parse(described.seed).descriptors.values()
    assert spec == ("x_desc", "(shape(x_desc, 0), shape(x_desc, 1),)", "(stride(x_desc, 0), stride(x_desc, 1),)",
                    "(ROWS, COLS,)")  # fmt: skip
    fact = described.traces["timed:0"].launches[0]
    plan = make_plan(Kernel.parse(described.seed), ("copy_kernel",), {"COLS": 32}, fact, lambda meta: (1,), 132)
    assert plan.steps[0].args["x_desc"].block == (4, 32)
    literal = describe(task(FIXED.replace("[4, 16]", "[4, 32]")), lambda t, key: trace_launches(t, key, H100))
    assert Kernel.parse(literal.seed).descriptors["x_desc"][3] == "(ROWS, 32,)"
    unclear = task(FIXED.replace("ROWS=4", "ROWS=16").replace("[4, 16]", "[16, 16]"))
    unclear = describe(unclear, lambda t, key: trace_launches(t, key, H100))
    assert not Kernel.parse(unclear.seed).descriptors
    hooked = describe(task(HOOKED), lambda t, key: trace_launches(t, key, H100))
    assert not Kernel.parse(hooked.seed).descriptors
    said = [f for f in (described, literal, unclear, hooked) if "gives x_desc the tile (16, 16)" in "".join(f.notes)]
    assert said == [unclear]
