"""Odd launchers run without a GPU, and each of their launches is seen with its arguments."""

import textwrap

import pytest
import torch
import triton

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import DtypeFact, TensorFact
from kernelsearch.kernel.launch import make_plan
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks import shipped
from kernelsearch.tasks.facts import describe
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.worker.launcher import opening
from kernelsearch.worker.launcher import trace as tracing
from kernelsearch.worker.launcher.intercept import DISPATCHERS, CompiledStandIn, bind, intercept_launches
from kernelsearch.worker.launcher.standin import poison_empty, pretend_gpu
from traces import trace_launches

H100 = target_by_name("h100")

HEAD = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr, EVEN: tl.constexpr = False):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) + scale, mask=i < n)

@triton.jit
def sum_kernel(y_ptr, s_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(s_ptr, tl.sum(tl.load(y_ptr + i, mask=i < n, other=0.0), axis=0))

def reference(x): return x + 1
def get_inputs(rows=6, cols=50, dtype=torch.float32): return [torch.randn(rows, cols, dtype=dtype)]
TEST_SHAPES = [dict(rows=3, cols=7)]
"""


@pytest.fixture
def task(tmp_path):
    def write(text, head=HEAD):
        path = tmp_path / "odd.py"
        path.write_text(head + textwrap.dedent(text))
        return opening.open_task(path, H100)

    return write


def only(task, key="timed:0"):
    launches = trace_launches(task, key, H100).launches
    assert len(launches) == 1
    return launches[0]


def test_plain_call_with_keywords_and_defaults(task):
    fact = only(
        task("""
        def go(x):
            y = torch.empty_like(x)
            block = tl.constexpr(128)
            add_kernel[(triton.cdiv(x.numel(), 128),)](x, y, n=x.numel(), scale=1.0, BLOCK=block, num_warps=8)
            return y
    """)
    )
    tensor = TensorFact("fp32", (6, 50), (50, 1), True)
    assert fact.args == {"x_ptr": tensor, "y_ptr": tensor, "n": 300, "scale": 1.0, "BLOCK": 128, "EVEN": False}
    assert fact.options == {"num_warps": 8} and fact.grid == (3,)


def test_two_kernels_torch_between_in_place_several_outputs(task):
    found = task("""
        MUTATES = ("x",)
        def reference(x):
            x += 1
            return x.sum(), [x * 2]
        def go(x):
            assert x.is_cuda and x.device.type == "cuda"
            alias = add_kernel
            alias[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x, x.numel(), 1.0, BLOCK=64)
            twice = torch.zeros(x.shape, device="cuda", dtype=x.dtype) + x * 2
            with torch.cuda.device(x.device):
                s = torch.empty((), device=x.device)
                sum_kernel[(1,)](x, s, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
            torch.cuda.synchronize()
            return s, [twice.cuda().contiguous()]
    """)
    first, second = trace_launches(found, "timed:0", H100).launches
    assert (first.site, first.grid) == ("add_kernel", None) and (second.site, second.args["BLOCK"]) == (
        "sum_kernel",
        512,
    )
    live = tracing.run_launcher(found, "timed:0", H100).launches[0]
    assert live.resolve_grid({"BLOCK": 100}) == (3,) and live.resolve_grid(first.args) == (5,)
    facts = describe(found, trace_launches, tracing.describe_outputs)
    assert facts.sites == ("add_kernel", "sum_kernel")
    assert "add_kernel.BLOCK" in facts.space and "sum_kernel.BLOCK" not in facts.space


AUTOTUNED = """
    hooked = []
    def prepare(args): hooked.append((args["BLOCK"], args["num_warps"]))
    @triton.autotune(configs=[triton.Config({"BLOCK": 64, "MODE": "fast"}, pre_hook=prepare),
                              triton.Config({"BLOCK": 256, "MODE": "fast"}, num_warps=8, pre_hook=prepare)], key=["n"])
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    @triton.jit
    def tuned_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, MODE: tl.constexpr, EVEN: tl.constexpr): pass
    def go(x):
        y = torch.empty_like(x)
        tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
        return y
"""


def test_autotune_and_heuristics(task):
    found = task(AUTOTUNED)
    fact = only(found)
    assert "BLOCK" not in fact.args and fact.args["MODE"] == "fast" and fact.args["EVEN"] is False
    launch = tracing.run_launcher(found, "timed:0", H100).launches[0]
    assert launch.meta_defaults == {"BLOCK": 64, "num_warps": 4, "num_stages": 3, "num_ctas": 1}
    assert launch.bind_parameters()["BLOCK"] == 64 and launch.bind_parameters({"BLOCK": 100})["EVEN"] is True
    assert launch.bind_parameters({"tuned_kernel.BLOCK": 50, "other.BLOCK": 7})["BLOCK"] == 50
    assert launch.bind_parameters({"BLOCK": "next_power_of_2(n)"})["BLOCK"] == 512
    assert launch.resolve_options({"num_warps": 2})["num_warps"] == 2
    assert launch.resolve_grid({"BLOCK": 100}) == (3,) and launch.resolve_grid({}) == (5,)
    assert launch.resolve_grid({**launch.args, "tuned_kernel.BLOCK": "next_power_of_2(n) // 4"}) == (3,)
    launch.run_pre_hooks({"BLOCK": 256, "num_warps": 8})
    launch.run_pre_hooks({"BLOCK": 1024})
    assert found.module.hooked == [(256, 8), (1024, 4)]
    facts = describe(found, trace_launches, tracing.describe_outputs)
    assert facts.space["BLOCK"] == (64, 256) and facts.config["BLOCK"] == 64
    assert "MODE" not in facts.space and "EVEN" not in facts.space


def test_heuristics_that_choose_the_warps(task):
    rule = '{"num_warps": lambda args: 16 if args["n"] * args["BLOCK"] > 5000 else 2, "EVEN": lambda args: True}'
    ruled = AUTOTUNED.replace('{"EVEN": lambda args: args["n"] % args["BLOCK"] == 0}', rule)
    found = task(ruled)
    launch = tracing.run_launcher(found, "timed:0", H100).launches[0]
    assert launch.resolve_options({"num_warps": 4})["num_warps"] == 4 and launch.resolve_options()["num_warps"] == 16
    facts = describe(found, trace_launches, tracing.describe_outputs)
    assert "num_warps" not in facts.space and all("num_warps" not in c for (cs,) in [facts.own_configs] for c in cs)
    warps = {key: trace.launches[0].options["num_warps"] for key, trace in facts.traces.items()}
    assert warps == {"timed:0": 16, "test:0": 2}
    plain = ruled[ruled.index("    @triton.heuristics") :].replace(", MODE: tl.constexpr", "")
    facts = describe(task(plain.replace("x.numel())\n", "x.numel(), BLOCK=64)\n")), trace_launches)
    assert facts.config["num_warps"] == 16 and 2 in facts.space["num_warps"]


def test_configs_that_the_launcher_prunes_are_not_its_own(task):
    pruned = (
        AUTOTUNED.replace(
            'key=["n"])',
            """key=["n"], prune_configs_by={"early_config_prune": keep})
    """,
        )
        .replace(
            "    hooked = []",
            """
    def keep(configs, named, n, **rest):
        assert named["x_ptr"].is_cuda and "n" not in named
        return [c for c in configs if c.kwargs["BLOCK"] >= n or n == 300]
    SHAPES = [dict(rows=6, cols=50), dict(rows=2, cols=100)]
    hooked = []""",
        )
        .replace("x, y, x.numel())", "x, y, n=x.numel())")
    )
    facts = describe(task(pruned), trace_launches, tracing.describe_outputs)
    kept = {key: trace.launches[0].kept for key, trace in facts.traces.items()}
    assert kept == {"timed:0": (0, 1), "timed:1": (1,), "test:0": (0, 1)}
    assert facts.config["BLOCK"] == 256 and facts.config["num_warps"] == 8 and facts.own_configs == ()


def test_wrap_triton_and_custom_operator(task):
    found = task("""
        from torch.library import triton_op, wrap_triton
        @triton_op("kernelsearch_test::go", mutates_args={})
        def go(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            wrap_triton(add_kernel)[(1,)](x, y, x.numel(), 1.0, BLOCK=1024)
            return y
    """)
    assert only(found).args["BLOCK"] == 1024


def test_autograd_function(task):
    found = task("""
        class Go(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = torch.empty_like(x)
                add_kernel[(1,)](x, y, x.numel(), 1.0, BLOCK=1024)
                return y
        def go(x): return Go.apply(x)
    """)
    assert only(found).site == "add_kernel" and list(found.kernels()) == ["add_kernel"]


def test_item_needs_values_and_gets_the_tasks_own_or_zeros_for_large_inputs(task, monkeypatch):
    found = task("""
        def go(x):
            y = torch.empty_like(x)
            add_kernel[(1,)](x, y, x.numel(), float(x.max().item()), BLOCK=1024)
            return y
    """)
    assert only(found).args["scale"] == found.build("timed:0").inputs[0].max().item() > 0
    monkeypatch.setattr(tracing, "REAL_ELEMENTS", 299)
    assert only(found).args["scale"] == 0.0


def test_dtype_constexpr_and_unaligned_view(task):
    found = task("""
        @triton.jit
        def cast_kernel(x_ptr, y_ptr, n, TYPE: tl.constexpr): pass
        def go(x):
            y = torch.empty(x.numel(), device="cuda", dtype=torch.bfloat16)
            cast_kernel[(1,)](x.view(-1)[1:], y, None, TYPE=tl.bfloat16)
            return y
        def reference(x): return x.to(torch.bfloat16).view(-1)
    """)
    args = only(found).args
    assert args["TYPE"] == DtypeFact("bf16") and args["n"] is None
    assert args["x_ptr"] == TensorFact("fp32", (299,), (1,), aligned=False) and args["y_ptr"].aligned


TUTORIAL = """
import torch
import triton
import triton.language as tl
from triton.runtime import driver

DEVICE = triton.runtime.driver.active.get_active_torch_device()
properties = driver.active.utils.get_device_properties(DEVICE.index)
NUM_SM = properties["multiprocessor_count"]
SIZE_SMEM = properties["max_shared_mem"]
assert triton.runtime.driver.active.get_current_target().backend == "cuda"
assert torch.cuda.get_device_properties("cuda").multi_processor_count == NUM_SM
assert torch.cuda.get_device_capability()[0] == 9

def naive_softmax(x):
    z = x - x.max(dim=1)[0][:, None]
    return torch.exp(z) / torch.exp(z).sum(dim=1)[:, None]

@triton.jit
def softmax_kernel(output_ptr, input_ptr, input_row_stride, output_row_stride, n_rows, n_cols,
                   BLOCK_SIZE: tl.constexpr, num_stages: tl.constexpr):
    row_start = tl.program_id(0)

def softmax(x):
    n_rows, n_cols = x.shape
    BLOCK_SIZE = triton.next_power_of_2(n_cols)
    y = torch.empty_like(x)
    kernel = softmax_kernel.warmup(y, x, x.stride(0), y.stride(0), n_rows, n_cols, BLOCK_SIZE=BLOCK_SIZE,
                                   num_stages=4, num_warps=8, grid=(1,))
    kernel._init_handles()
    occupancy = 65536 // (kernel.n_regs * 32 * 8)
    occupancy = min(occupancy, SIZE_SMEM // max(1, kernel.metadata.shared))
    num_programs = min(NUM_SM * occupancy, n_rows)
    kernel[(num_programs, 1, 1)](y, x, x.stride(0), y.stride(0), n_rows, n_cols, BLOCK_SIZE, 4)
    return y

def get_inputs(rows=1823, cols=781): return [torch.randn(rows, cols, device=DEVICE)]
TEST_SHAPES = [dict(rows=3, cols=5)]

torch.manual_seed(0)
x = torch.randn(18, 7, device=DEVICE)
assert x.device == DEVICE and x.is_cuda
softmax(x)
"""


def test_a_tutorial_that_asks_the_device_at_import(task):
    found = task("", TUTORIAL)
    assert found.form == "bare"
    fact = only(found)
    assert fact.grid == (1056, 1, 1) and fact.options == {"num_warps": 8}
    assert fact.args["num_stages"] == 4 and fact.args["BLOCK_SIZE"] == 1024


MATMUL = """
import torch
import triton
import triton.language as tl

def is_cuda():
    return triton.runtime.driver.active.get_current_target().backend == "cuda"

def get_autotune_config():
    assert is_cuda()
    return [triton.Config({"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": 64, "GROUP_SIZE_M": 8}, num_stages=s, num_warps=4)
            for m in (64, 128) for s in (3, 4)]

@triton.autotune(configs=get_autotune_config(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak,
                  BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
                  ACTIVATION: tl.constexpr):
    pid = tl.program_id(axis=0)
    x = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    if ACTIVATION == "leaky_relu":
        x = leaky_relu(x)
    tl.store(c_ptr + pid, tl.sum(tl.sum(x, axis=0), axis=0))

@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)

def matmul(a, b, activation=""):
    assert a.shape[1] == b.shape[0], "Incompatible dimensions"
    assert a.is_contiguous(), "Matrix A must be contiguous"
    M, K = a.shape
    K, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=torch.float16)
    grid = lambda META: (triton.cdiv(M, META["BLOCK_SIZE_M"]) * triton.cdiv(N, META["BLOCK_SIZE_N"]), )
    matmul_kernel[grid](a, b, c, M, N, K, a.stride(0), a.stride(1), ACTIVATION=activation)
    return c

def torch_matmul(a, b): return torch.matmul(a, b)
def get_inputs(m=512, n=256, k=128):
    return [torch.randn((m, k), device="cuda", dtype=torch.float16), torch.randn((k, n), device="cuda").half()]

def benchmark(M, N, K, provider):
    return matmul(torch.randn(M, K), torch.randn(K, N))
"""


def test_a_tutorial_matmul(task):
    found = task("", MATMUL)
    facts = describe(found, trace_launches, tracing.describe_outputs)
    assert (found.form, facts.sites) == ("bare", ("matmul_kernel",))
    assert facts.space["BLOCK_SIZE_M"] == (64, 128) and facts.space["num_stages"] == (3, 4)
    assert facts.config["GROUP_SIZE_M"] == 8 and "ACTIVATION" not in facts.space
    fact = facts.traces["timed:0"].launches[0]
    assert fact.args["ACTIVATION"] == "" and fact.args["a_ptr"].dtype == "fp16" and fact.grid is None
    seed = Kernel.parse(facts.seed)
    assert seed.names == ("leaky_relu", "matmul_kernel")
    live = tracing.run_launcher(found, "timed:0", H100).launches[0]
    step = make_plan(seed, facts.sites, facts.config, fact, live.resolve_grid, 132).steps[0]
    assert step.grid == (32, 1, 1) and step.constexprs["BLOCK_SIZE_M"] == 64 and step.options["num_stages"] == 3


BENCH = """
import torch.nn as nn
batch, dim = 4096, 8192
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
    def forward(self, x): return self.norm(x)
def get_inputs(): return [torch.rand(batch, dim, device="cuda")]
def get_init_inputs(): return [dim]
class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
    def forward(self, x):
        assert self.norm.weight.is_cuda
        y = torch.empty_like(x)
        add_kernel[(x.shape[0],)](x, y, x.shape[1], 1.0, BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""


def test_kernelbench_model(task):
    found = task(BENCH, HEAD.replace("def reference(x): return x + 1", "").replace("TEST_SHAPES", "NOTHING"))
    assert found.form == "kernelbench" and only(found).grid == (4096,)
    facts = describe(found, trace_launches, tracing.describe_outputs)
    assert facts.shapes[0].params == {"batch": 4096, "dim": 8192} and facts.config == {"num_warps": 4}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "    if x.numel() < 0: add_kernel[(1,)](x, x, 1, 1.0, BLOCK=1)\n    return x",
            "launches no kernel at rows=6",
        ),
        (
            "    add_kernel[(1,)](x, x, 1, BLOCK=1, scale=undefined)\n    return x",
            "launcher fails at rows=.*NameError.*line",
        ),
        ("    add_kernel[(1,)](x, x, BLOCK=1)\n    return x", None),
        ("    add_kernel[(1,)](x, x, 1, 1.0, object(), BLOCK=1)\n    return x", "got two values for 'BLOCK'"),
        ("    add_kernel[7](x, x, 1, 1.0, BLOCK=1)\n    return x", "grid of add_kernel is 7"),
        ("    add_kernel[(1,)](x, x, 1, object(), BLOCK=1)\n    return x", "'scale' of add_kernel is a object"),
    ],
)
def test_launchers_that_are_wrong(task, body, says):
    found = task(f"\ndef go(x):\n{body}\n")
    if says is None:
        with pytest.raises(TaskError, match="passes no value for 'n' of add_kernel"):
            tracing.run_launcher(found, "timed:0", H100).launches[0].bind_parameters()
        return
    with pytest.raises(TaskError, match=says):
        trace_launches(found, "timed:0", H100)


@pytest.mark.parametrize(
    ("returns", "says"),
    [("y[1:]", r"output 0 is fp32\[3, 7\] from the reference, but fp32\[2, 7\]"),
     ("y, y", "returns 1 tensors, the launcher 2"),     ("y.half()", r"but fp16\[3, 7\] from the launcher")],
)  # fmt: skip
def test_outputs_that_disagree(task, returns, says):
    found = task(f"""
        def go(x):
            y = torch.empty_like(x)
            add_kernel[(1,)](x, y, x.numel(), 1.0, BLOCK=1024)
            return {returns}
    """)
    with pytest.raises(TaskError, match=says):
        describe(found, trace_launches, tracing.describe_outputs)


GIVES = """
    def go(x):
        {first}
        y = torch.empty_like(x)
        add_kernel[(1,)](x, y, x.numel(), 1.0, BLOCK=1024)
        return {returns}
    def reference(x): return {expected}
"""
PLAIN = HEAD.replace("def reference(x): return x + 1", "")


@pytest.mark.parametrize("first", ["", "longest = x.amax().item()"])
@pytest.mark.parametrize(
    ("returns", "expected"),
    [("(y, x.shape[0], None)", "x + 1"), ("y", "(x + 1, 3, 0.5, None, True)"), ("(256, [y], 4)", "(64, [x + 1], 8)")],
)
def test_numbers_beside_tensors_are_no_outputs(task, first, returns, expected):
    found = task(GIVES.format(first=first, returns=returns, expected=expected), PLAIN)
    if first and returns.startswith("(256"):  # they may be what the kernel computed, and nobody would look at them
        with pytest.raises(TaskError, match="both return numbers.*return tensors"):
            describe(found, trace_launches, tracing.describe_outputs)
        return
    describe(found, trace_launches, tracing.describe_outputs)
    case = found.build("test:0", 0, "cpu")
    (output,) = make_expectation(case.reference64, case.reference, case.inputs).outputs
    assert output.shape == (3, 7)


@pytest.mark.parametrize(
    ("returns", "expected"), [("y.sum().item()", "(x + 1).sum().item()"), ("3", "3"), ("None",) * 2]
)
def test_a_task_without_an_output_tensor_is_refused(task, returns, expected):
    found = task(GIVES.format(first="", returns=returns, expected=expected), PLAIN)
    with pytest.raises(TaskError, match="return tensors|returns no tensor"):
        describe(found, trace_launches, tracing.describe_outputs)


def test_everything_is_put_back():
    before = [kind.__dict__["run"] for kind in DISPATCHERS]
    cuda, driver = torch.cuda.is_available, triton.runtime.driver._active
    with pretend_gpu(H100), intercept_launches(lambda launch: None):
        assert torch.cuda.is_available() and torch.empty(3, device="cuda").is_cuda
        assert [kind.__dict__["run"] for kind in DISPATCHERS] != before
    assert [kind.__dict__["run"] for kind in DISPATCHERS] == before
    assert torch.cuda.is_available is cuda and triton.runtime.driver._active is driver
    assert not torch.empty(3).is_cuda


def test_poison_reaches_empty_and_leaves_zeros_alone():
    with poison_empty():
        held = [torch.empty(3), torch.empty_like(torch.ones(2, dtype=torch.bfloat16)), torch.ones(2).new_empty(4),
                torch.empty_strided((2, 2), (1, 2)), torch.empty(2, dtype=torch.float8_e4m3fn).float()]  # fmt: skip
        number, kept = torch.empty(3, dtype=torch.int32), torch.zeros(3)
    assert all(t.isnan().all() for t in held)
    assert number[0] != 0 and (number == number[0]).all() and not kept.any()


def test_a_launch_returns_something_that_can_be_asked(task):
    found = task(
        "def go(x):\n    k = add_kernel[(1,)](x, x, 1, 1.0, BLOCK=1)\n    assert k.n_spills == 0\n    return x\n"
    )
    with intercept_launches(lambda launch: None):
        kernel = found.module.add_kernel
        assert isinstance(kernel[(1,)](1, 2, 3, 4, 5), CompiledStandIn)
    assert bind(kernel, (1, 2), {"num_warps": 2}, [4, 1]).grid == (4, 1)


def test_lazy_zeros_keep_the_layout():
    for model in (
        torch.empty(3, 5, device="meta").t(),
        torch.empty(0, 4, device="meta"),
        torch.empty((), device="meta"),
    ):
        made = tracing.make_lazy_zeros(model)
        assert made.shape == model.shape and made.stride() == model.stride() and not made.any()


@pytest.mark.gpu
@pytest.mark.parametrize("name", shipped.names())
def test_the_stand_in_sees_what_the_device_sees(name):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    live, pretended = opening.open_task(shipped.path(name)), opening.open_task(shipped.path(name), H100)
    for key in live.keys:
        assert trace_launches(live, key, device="cuda") == trace_launches(pretended, key, H100)
