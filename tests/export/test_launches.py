"""Generated launch code follows the plan of `launch.bind_launch`: functions, grids, arguments, constexprs, scratch."""

import pytest
import torch
from gated_record import CONFIG, OTHER, SPLIT, run_python
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelsearch.core.types import TensorFact
from kernelsearch.export import ExportError
from kernelsearch.export.launches import Site, write_launch_function
from kernelsearch.kernel.launch import TRITON_DTYPES, Passed, Scratch, bind_launch
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.worker.launcher import intercept, standin

H100 = target_by_name("h100")


def launched(package, task, case, digest, config):
    """The launches of the shipped launcher at a case, nothing launched."""
    found = []
    with standin.pretend_gpu(H100, "meta"):
        inputs = task.inputs(case, device="meta")
        with intercept.intercept_launches(found.append):
            package._launch.run(task.launcher, inputs, (task.launches[digest], config))
    return found


@pytest.mark.parametrize("config", [CONFIG, OTHER], ids=["expression", "numbers"])
@pytest.mark.parametrize("key", ["timed:0", "timed:1", "test:0", "test:1"])
def test_generated_code_launches_what_the_plan_says(package, examined, key, config):
    package = package[1]
    task = package._dispatch.TASKS["gated_sum"]
    kernel, seed = Kernel.parse(SPLIT), Kernel.parse(examined.facts.seed)
    case = next(c for c in task.cases if c.key == key)
    got = launched(package, task, case, kernel.digest, config)
    launches = []
    with standin.pretend_gpu(H100, "meta"):
        inputs = examined.task.build(key, 0, "meta")
        with intercept.intercept_launches(launches.append):
            inputs.launch(*inputs.inputs)
    facts = examined.facts.traces[key].launches
    plans = [
        bind_launch(
            kernel, config, seed, examined.facts.config, examined.facts.sites, fact, launch.resolve_grid, H100.num_sms
        ).plan
        for fact, launch in zip(facts, launches, strict=True)
    ]
    steps = [(plan, step, fact) for plan, fact in zip(plans, facts) for step in plan.steps]
    assert (
        [g.site for g in got]
        == [step.function for _, step, _ in steps]
        == ["part_kernel", "sums_kernel", "shift_kernel"]
    )
    for mine, (plan, step, fact) in zip(got, steps, strict=True):
        assert (*mine.grid, 1, 1)[:3] == step.grid
        assert dict(mine.options) == dict(step.options)
        for name, value in step.constexprs.items():
            assert mine.args[name] == value
        for name, value in step.args.items():
            said = mine.args[name]
            if isinstance(value, Scratch):
                assert tuple(said.shape) == plan.scratch[name].shape
                assert TRITON_DTYPES[str(said.dtype).removeprefix("torch.")] == plan.scratch[name].dtype
            elif isinstance(value, Passed):
                wanted = fact.args[value.name]
                if isinstance(wanted, TensorFact):
                    assert (tuple(said.shape), tuple(said.stride())) == (wanted.shape, wanted.stride)
                else:
                    assert said == wanted
            else:
                assert said == value


def test_the_found_kernel_computes_the_reference_in_the_interpreter(package):
    """The whole path of a call (dispatch, launcher, generated launches, scratch) with real values, on the CPU."""
    done, _ = package
    code = """
import torch, fast_gated
from fast_gated import _dispatch as dispatch
from fast_gated._dispatch import TASKS
task = TASKS["gated_sum"]
entries = task.tables["NVIDIA H100 80GB HBM3"].entries
for case in task.cases:
    x, gate, twice = task.inputs(case, seed=3)
    for entry in entries:
        task.forget()
        task.choose = lambda inputs, entry=entry: task.take(entry)
        dispatch._current_device = lambda: None  # inputs on the CPU have no device number
        got = task.public(x, gate, twice)
        torch.testing.assert_close(got, task.reference(x, gate, twice), rtol=1e-4, atol=1e-4)
print("kernels ran")
"""
    ran = run_python(code, done.out, TRITON_INTERPRET="1")
    assert ran.returncode == 0 and "kernels ran" in ran.stdout, ran.stderr


def test_a_traced_call_is_made_of_wrapped_kernels(package):
    """The operator as torch.compile sees it on a GPU: three launches, shared scratch; also symbolic sizes."""
    from torch._functorch.aot_autograd import aot_export_module
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    fast = package[1]
    names = fast._dispatch._NAMES
    names.update({torch.device("cuda", 0): "NVIDIA H100 80GB HBM3"})

    class Call(torch.nn.Module):
        def forward(self, x, gate):
            return (fast.gated_sum(x, gate, True),)

    mode = FakeTensorMode(shape_env=ShapeEnv())

    def fake(shape, dynamic):
        made = torch.empty(shape, device="meta")
        kind = StatelessSymbolicContext([DimDynamic.DYNAMIC if dynamic else DimDynamic.STATIC] * 2)
        like = mode.from_tensor(made, symbolic_context=kind)
        with mode:
            return like.new_empty(like.shape, device="cuda:0")

    standin.install_driver(H100)  # the wrapper compiles to TTIR, to see which arguments are written
    for dynamic in (False, True):
        graph, _ = aot_export_module(Call(), [fake((33, 17), dynamic), fake((17, 33), dynamic)], trace_joint=False)
        assert graph.code.count("torch.ops.higher_order.triton_kernel_wrapper_functional(") == 3, graph.code
        assert "aten.mul" not in graph.code  # nothing of the reference


HEAD = "import triton\nimport triton.language as tl\n"
SITE = Site("k", ("x_ptr", "n", "BLOCK"), frozenset({"x_ptr", "n", "BLOCK"}), {}, "x_ptr")


def launch_generated(package, kernel, steps, configs, config):
    """(Function, grid, keywords) of every launch by the generated code under a config, whose launcher has BLOCK=32."""
    seen = []

    class Recorded:
        def __init__(self, name):
            self.name = name

        def __getitem__(self, grid):
            return lambda *args, **keywords: seen.append((self.name, grid, keywords))

    scope = {**vars(package[1]._launch), **{name: Recorded(name) for name in steps}}
    exec(write_launch_function(SITE, kernel, steps, configs), scope)
    scope["launch_k"](config, lambda meta: (meta["BLOCK"],), "x", 64, BLOCK=32)
    return seen


def test_values_that_two_steps_see_differently_are_kept_apart(package):
    """Step one sees the launcher's BLOCK, step two a tuned one: neither may get the other's."""
    kernel = Kernel.parse(
        f"""{HEAD}
LAUNCHES = {{"k": ["first", "k"]}}
GRID = {{"first": "(cdiv(n, BLOCK), grid(0))", "k": "(cdiv(n, BLOCK),)"}}

@triton.jit
def first(x_ptr, n, BLOCK: tl.constexpr): ...

@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr): ...
"""
    )
    config = {"first.BLOCK": 8}
    seen = launch_generated(package, kernel, ("first", "k"), [config], config)
    assert [(name, grid, kw["BLOCK"]) for name, grid, kw in seen] == [("first", (8, 8), 8), ("k", (2,), 32)]


def test_a_config_of_a_site_reaches_every_step_there(package):
    """As in `launch.make_plan`: the function's own dotted name, then the site's, then the plain one."""
    kernel = Kernel.parse(
        f"""{HEAD}
LAUNCHES = {{"k": ["k_partial", "k"]}}
GRID = {{"k_partial": "(2,)"}}

@triton.jit
def k_partial(x_ptr, n, BLOCK: tl.constexpr): ...

@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr): ...
"""
    )
    configs = [{"k.BLOCK": 8, "k.num_warps": 2}, {"k.BLOCK": 16, "k.num_warps": 4, "k_partial.BLOCK": 64}]
    for tuned, sizes in (({}, (8, 8)), ({"k.BLOCK": 16, "k_partial.BLOCK": 64}, (64, 16))):
        able = [c for c in configs if ("k_partial.BLOCK" in c) == bool(tuned)]
        whole = {"k.BLOCK": 8, "k.num_warps": 2, **tuned}
        seen = launch_generated(package, kernel, ("k_partial", "k"), able, whole)
        launches = [(name, kw["BLOCK"], kw["num_warps"]) for name, _, kw in seen]
        assert launches == [("k_partial", sizes[0], 2), ("k", sizes[1], 2)]


def test_expressions_read_names_of_the_config_that_no_kernel_takes(package):
    """As in `launch.make_plan`; bits, floats and shifts are Python's own."""
    kernel = Kernel.parse(
        f"""{HEAD}
GRID = "(cdiv(n, BLOCK) | 1, PARTS << 1, int(n / 6), num_warps)"

@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr): ...
"""
    )
    for prefix in ("", "k."):
        config = {"BLOCK": 16, f"{prefix}PARTS": 3, "num_warps": 8}
        ((_, grid, keywords),) = launch_generated(package, kernel, ("k",), [config], config)
        assert grid == (4 | 1, 6, 10, 8) and keywords["num_warps"] == 8 and keywords["BLOCK"] == 16


def test_a_kernel_that_makes_descriptors_is_given_their_memory(package):
    from triton.runtime import _allocation

    launch = package[1]._launch
    kernel = Kernel.parse(
        HEAD
        + """
ARGS = {"X_TMA": "aligned(x_ptr) and n % 16 == 0"}

@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr, X_TMA: tl.constexpr):
    if X_TMA:
        tiles = tl.make_tensor_descriptor(x_ptr, [n, n], [n, 1], [BLOCK, BLOCK])
        tiles.store([0, 0], tiles.load([0, 0]) * 2.0)
"""
    )
    text = write_launch_function(SITE, kernel, ("k",), [{"BLOCK": 16}])
    seen = []

    class Seen:
        def __getitem__(self, grid):
            return lambda *args, X_TMA, **rest: seen.append((X_TMA, _allocation._allocator.get()))

    scope = {**vars(launch), "k": Seen()}
    exec(text, scope)
    before = _allocation._allocator.get()
    whole = torch.empty(33 * 32)
    for offset in (0, 1, 4):
        scope["launch_k"]({"BLOCK": 16}, (1,), whole[offset : offset + 32 * 32].view(32, 32), 32, BLOCK=16)
    assert seen == [(True, launch._workspace), (False, launch._workspace), (True, launch._workspace)]
    assert _allocation._allocator.get() is before


DESCRIBED = """
ARGS = {"m": "shape(x_ptr, 0)"}
DESCRIPTORS = {"x_desc": ("x_ptr", "(m, n)", "(stride(x_ptr, 0), 1)", "(BLOCK, BLOCK * 2)", None)}

@triton.jit
def k(x_desc, m, n, BLOCK: tl.constexpr): ...
"""


def launch_seen(package, kernel, site, *args):
    """(The function that launches `k`, the arguments that it gives the kernel)."""
    seen = []

    class Seen:
        def __getitem__(self, grid):
            return lambda *args, **rest: seen.append(args)

    scope = {**vars(package[1]._launch), "k": Seen()}
    exec(write_launch_function(site, kernel, ("k",), [{"BLOCK": 16}]), scope)
    for given in args:
        scope["launch_k"]({"BLOCK": 16}, (1,), *given, BLOCK=64)
    return scope["launch_k"], seen


def test_scratch_has_the_type_of_an_argument(package):
    kernel = Kernel.parse(
        f"""{HEAD}
SCRATCH = {{"part_ptr": ("dtype(x_ptr)", "(n, BLOCK)")}}

@triton.jit
def k(x_ptr, part_ptr, n, BLOCK: tl.constexpr): ...
"""
    )
    given = torch.empty(32, 32, dtype=torch.float16), torch.empty(32, 32, dtype=torch.bfloat16)
    _, seen = launch_seen(package, kernel, SITE, *((x, 32) for x in given))
    assert [(a[1].dtype, tuple(a[1].shape)) for a in seen] == [(x.dtype, (32, 16)) for x in given]


def test_descriptors_are_made_of_what_the_launcher_passes(package):
    whole = torch.empty(33 * 32)
    views = [whole[: 32 * 32].view(32, 32), whole[1 : 1 + 32 * 32].view(32, 32), whole[: 31 * 30].view(31, 30)]
    launch, seen = launch_seen(package, Kernel.parse(HEAD + DESCRIBED), SITE, *((x, x.shape[1]) for x in views))
    assert launch.describes and [a[1:] for a in seen] == [(32, 32), (32, 32), (31, 30)]
    assert seen[0][0] == TensorDescriptor(views[0], [32, 32], [32, 1], [16, 32])
    assert seen[1][0] is None and seen[2][0] is None  # an address and rows of no multiple of 16 bytes
    gluon = Kernel.parse("LANGUAGE = 'gluon'\n" + DESCRIBED.replace("triton.jit", "gluon.jit").replace("tl.", "gl."))
    assert "(BLOCK, BLOCK * 2), in_gluon=True)" in write_launch_function(SITE, gluon, ("k",), [{"BLOCK": 16}])
    strict = Kernel.parse(HEAD + DESCRIBED.replace(", None)", ")"))
    with pytest.raises(ExportError, match="there is no 'x_desc'; give it a fifth item None"):
        write_launch_function(SITE, strict, ("k",), [{"BLOCK": 16}])
    own = Kernel.parse(HEAD + DESCRIBED.replace("x_ptr", "x_desc").replace(", None)", ")"))
    site = Site("k", ("x_desc", "n", "BLOCK"), SITE.passed - {"x_ptr"} | {"x_desc"}, {}, "x_desc.base",
                described=frozenset({"x_desc"}))  # fmt: skip
    _, ((given, m, n),) = launch_seen(package, own, site, (TensorDescriptor(views[0], [32, 24], [32, 1], [1, 4]), 24))
    assert given == TensorDescriptor(views[0], [32, 24], [32, 1], [16, 32]) and (m, n) == (32, 24)


def test_an_unchanged_descriptor_is_made_once_and_keeps_no_memory(package):
    launch = package[1]._launch

    class OnGpu:
        is_cuda, dtype = True, torch.bfloat16

        def __init__(self, address):
            self.address = address

        def data_ptr(self):
            return self.address

        def element_size(self):
            return 2

    x, sizes = OnGpu(4096), ((256, 128), (128, 1), (64, 64))
    made = launch.described(x, *sizes)
    assert made is launch.described(OnGpu(4096), *sizes) and made.base is not x and made.base.data_ptr() == 4096
    assert launch.described(OnGpu(8192), *sizes) is not made and launch.described(OnGpu(4098), *sizes) is None
    assert launch.described(x, (255, 128), *sizes[1:]) is not made
    gluon = launch.described(x, *sizes, in_gluon=True)
    assert gluon is launch.described(x, *sizes, in_gluon=True) and gluon.layout.swizzle_byte_width == 128
    assert (gluon.shape, gluon.block_shape, gluon.base.data_ptr()) == ([256, 128], [64, 64], 4096)


def test_a_launch_with_its_own_config_says_what_it_takes(package):
    def launch_k(tuned, grid):
        return tuned, grid

    launch_k.describes = True
    own = package[1]._launch.with_config(launch_k, {"BLOCK": 16})
    assert own.describes and own({"BLOCK": 64}, (3,)) == ({"BLOCK": 16}, (3,))
