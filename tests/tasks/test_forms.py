"""The three forms of a task file, and what is said when something is missing."""

import math
import sys
import textwrap

import pytest
import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks.load import FORMS, load
from kernelsearch.tasks.shrink import choose_base, keep_by_shape, shrink_shape, spread_sizes
from kernelsearch.tasks.tried_inputs import count_input_elements
from kernelsearch.worker.launcher.standin import pretend_gpu

HEAD = """
import torch
import triton
import triton.language as tl

"""
KERNEL = """
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) * 2, mask=i < n)

def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""
REFERENCE = """
def reference(x): return x * 2
"""
INPUTS = """
def get_inputs(rows=4096, cols=1024, dtype=torch.float32): return [torch.randn(rows, cols, dtype=dtype)]
"""
WHOLE = HEAD + KERNEL + REFERENCE + INPUTS
BENCH = """
import torch.nn as nn
batch = 4096
dim = 8192
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
    def forward(self, x): return x * self.weight
def get_inputs(): return [torch.rand(batch, dim)]
def get_init_inputs(): return [dim]
"""
BENCH_NEW = """
class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.extra = nn.Parameter(torch.zeros(3))
        self.weight = nn.Parameter(torch.zeros(features))
    def forward(self, x): return scale(x) * 0 + x * self.weight
"""


@pytest.fixture
def write(tmp_path):
    def write(*parts, name="scale.py"):
        path = tmp_path / name
        path.write_text("".join(textwrap.dedent(p) for p in parts))
        return path

    return write


@pytest.fixture
def opened(write):
    """The task of a file made of these parts, after HEAD and KERNEL."""
    return lambda *parts: load(write(HEAD, KERNEL, *parts))


def test_inputs_are_what_can_be_sent_to_a_worker(run, tmp_path):
    """A dtype can; an input of another kind is named."""
    own = HEAD + KERNEL.replace("def scale(x)", "def scale(x, kind)").replace(
        "empty_like(x)", "empty_like(x, dtype=kind)"
    )
    own += "def reference(x, kind): return (x * 2).to(kind)\n"
    own += "def get_inputs(n=99): return [torch.randn(n), torch.float16]\nTEST_SHAPES = [dict(n=9)]\n"
    (tmp_path / "task.py").write_text(own)
    assert run("verify", "task.py").json["verdict"] == "accept"
    (tmp_path / "task.py").write_text(own.replace("torch.float16]", "slice(3)]"))
    known = "only tensors, numbers, words, dtypes and lists of these can be inputs"
    assert run("verify", "task.py").err == f"kernelsearch: task.py: the input kind has a slice: {known}\n"


def test_native(opened):
    shapes = "SHAPES = [dict(rows=8)]\nTEST_SHAPES = [dict(rows=3, cols=5)]\nMUTATES = 'x'\n"
    task = opened(REFERENCE, INPUTS, shapes)
    assert (task.form, task.name, task.keys) == ("native", "scale", ("timed:0", "test:0"))
    assert task.params("timed:0") == dict(rows=8, cols=1024, dtype=torch.float32)
    assert list(task.kernels()) == ["scale_kernel"]
    assert (task.precision, task.mutates, task.bytes_moved("timed:0")) == ("ieee", ("x",), None)
    case = task.build("test:0", seed=3)
    torch.manual_seed(3)
    assert torch.equal(case.inputs[0], torch.randn(3, 5))
    assert case.names == ("x",) and torch.equal(case.reference(*case.inputs), case.inputs[0] * 2)
    assert case.reference64(case.inputs[0].double()).dtype == torch.float64
    assert task.build("timed:0", device="meta").inputs[0].is_meta


@pytest.mark.parametrize(
    "reference",
    [
        "def reference(x): return x * (torch.arange(x.shape[1], device=x.device) < 5)",
        "def reference(x): return x + torch.bincount((x > 0).int().view(-1))[0]",  # not on meta tensors
    ],
)
def test_test_shapes_are_made_where_a_stand_in_is_the_gpu(write, reference):
    path = write(HEAD, KERNEL, reference, INPUTS)
    with pretend_gpu(target_by_name("h100"), "cpu"):
        task = load(path)
    assert [(p["rows"], p["cols"]) for _, p in task.test_shapes] == [(37, 70), (64, 32)]


def test_test_shapes_are_made_when_the_file_has_none(write):
    task = load(write(HEAD, KERNEL, REFERENCE, INPUTS))
    assert [dict(p, dtype=0) for _, p in task.test_shapes] == [
        dict(rows=37, cols=70, dtype=0),
        dict(rows=64, cols=32, dtype=0),
    ]


def test_a_file_without_sizes_is_judged_as_it_is(write):
    task = load(write(HEAD, KERNEL, REFERENCE, "def get_inputs(): return [torch.randn(9)]\n"))
    assert task.test_shapes == (("test:0", {}),) and "add TEST_SHAPES" in task.notes[0]


def test_main_never_runs(write):
    load(write(HEAD, KERNEL, REFERENCE, INPUTS, 'if __name__ == "__main__":\n    raise SystemExit("ran")\n'))


def test_launcher_by_name_and_by_parameters(write):
    two = KERNEL + "def scale_too(x):\n    return scale_kernel[(1,)](x, x, 1, BLOCK=1)\n"
    with pytest.raises(TaskError, match='LAUNCHER = "'):
        load(write(HEAD, two, REFERENCE, INPUTS, name="other.py"))
    named = load(write(HEAD, two, REFERENCE, INPUTS, 'LAUNCHER = "scale_too"\n', name="other.py"))
    assert named.roots[0].__name__ == "scale_too"
    assert load(write(HEAD, two, REFERENCE, INPUTS)).roots[0].__name__ == "scale"  # the file bears its name
    wrapped = KERNEL + "def outer(x):\n    return scale(x)\n"
    assert load(write(HEAD, wrapped, REFERENCE, INPUTS, name="x.py")).roots[0].__name__ == "outer"


def test_the_launcher_is_the_apply_of_an_autograd_function(write):
    kept = """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = torch.empty_like(x)
                scale_kernel[(1,)](x, y, 64, BLOCK=64)
                return y
        double = Scale.apply
    """
    apart = kept.replace("ctx, x", "x").replace(
        "        double", "            def setup_context(ctx, i, o): pass\n        double"
    )
    kernel = KERNEL[: KERNEL.index("def scale(x)")]
    for text in (kept, apart):
        task = load(write(HEAD, kernel, text, REFERENCE, INPUTS, name="x.py"))
        assert task.roots[0].__self__.__name__ == "Scale" and task.kernels().keys() == {"scale_kernel"}
    both = load(write(HEAD, kernel, kept, "def wrap(x): return Scale.apply(x)\n", REFERENCE, INPUTS, name="x.py"))
    assert both.roots[0].__name__ == "wrap"


def test_kernelbench(write):
    task = load(write(HEAD, KERNEL, BENCH, BENCH_NEW))
    assert (task.form, task.params("timed:0")) == ("kernelbench", dict(batch=4096, dim=8192))
    assert [p for _, p in task.test_shapes] == [dict(dim=37, batch=70), dict(dim=64, batch=32)]
    case = task.build("test:0", seed=1)
    assert case.inputs[0].shape == (70, 37) and case.reference(*case.inputs).shape == (70, 37)
    assert case.reference64(case.inputs[0].double()).dtype == torch.float64
    assert task.module.dim == 8192  # what a shape overrides is put back


def test_attributes_are_no_shape_parameters(write):
    text = BENCH.replace("return [torch.rand(batch, dim)]", "return [torch.rand(batch, 4 + torch.ones(2, 2).dim())]")
    text = text.replace("return [dim]", "return [6]")
    assert load(write(HEAD, KERNEL, text, BENCH_NEW)).params("timed:0") == dict(batch=4096)


GPT = """
import torch.nn as nn
batch, seq, width, heads = 128, 512, 768, 12
class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
    def forward(self, x): return self.attention(x, x, x)[0]
def get_inputs(): return [torch.rand(batch, seq, width)]
def get_init_inputs(): return [width, heads]
class ModelNew(nn.Module):
    def __init__(self, width, heads): super().__init__()
    def forward(self, x): return scale(x)
"""


def test_sizes_that_hang_together_shrink_as_far_as_the_model_allows(write):
    task = load(write(HEAD, KERNEL, GPT))
    for key, params in task.test_shapes:
        assert params["width"] % params["heads"] == 0 and params["width"] < 768 and params["seq"] < 128, (key, params)
    assert task.notes == ()


BIAS = """
import torch.nn as nn
rows, width = 128, 512
bias_shape = (width, 1)
class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(shape))
    def forward(self, x): return x + self.bias[:, 0]
def get_inputs(): return [torch.rand(rows, width)]
def get_init_inputs(): return [bias_shape]
class ModelNew(Model):
    def forward(self, x): return scale(x)
"""


@pytest.mark.parametrize("written", ["(width, 1)", "(512, 1)"])
def test_tuples_of_sizes_follow_the_sizes(write, written):
    task = load(write(HEAD, KERNEL, BIAS.replace("(width, 1)", written)))
    case = task.build(task.test_shapes[0][0], seed=1)
    assert case.inputs[0].shape[1] < 512 and case.reference(*case.inputs).shape == case.inputs[0].shape
    assert task.module.bias_shape == (512, 1)


def test_a_number_in_a_tuple_stays_where_sizes_of_its_value_vary_without_it(write):
    rows = BIAS.replace("rows, width = 128, 512", "rows, width = 512, 64").replace("(width, 1)", "(512, 64)")
    task = load(write(HEAD, KERNEL, rows.replace("x + self.bias[:, 0]", "x, self.bias")))
    case = task.build(task.test_shapes[0][0], seed=1)
    x, bias = case.reference(*case.inputs)
    assert x.shape[0] < 512 and x.shape[1] < 64 and bias.shape == (512, 64)


def test_kernelbench_shares_weights_by_name(write):
    launcher = """
        class ModelNew(nn.Module):
            def __init__(self, f):
                super().__init__()
                self.weight = nn.Parameter(torch.zeros(f))
            def forward(self, x):
                if x.numel() < 0: scale(x)
                return x * self.weight
    """
    case = load(write(HEAD, KERNEL, BENCH, launcher)).build("test:0", seed=5)
    assert torch.equal(case.launch(*case.inputs), case.reference(*case.inputs))


NORM = """
import torch.nn as nn
rows, width = 128, 512
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width))
    def forward(self, x): return self.norm(x)
def get_inputs(): return [torch.rand(rows, width)]
def get_init_inputs(): return [width]
class ModelNew(Model):
    def forward(self, x): return scale(x) if x.numel() < 0 else self.norm(x)
"""


def test_a_launcher_serves_cases_of_all_seeds_and_no_weight_is_a_constant(write):
    """Weights that changed with a case's seed made every timed shape of a model with weights wrong on a GPU."""
    task = load(write(HEAD, KERNEL, NORM))
    one, other = (task.build("test:0", seed) for seed in (0, 5))
    assert not torch.equal(one.inputs[0], other.inputs[0])
    assert torch.equal(one.launch(*other.inputs), other.reference(*other.inputs))
    without = "nn.functional.layer_norm(self.norm[0](x), x.shape[1:])"
    bare = load(write(HEAD, KERNEL, NORM.replace("else self.norm(x)", f"else {without}"), name="y.py")).build(
        "test:0", 0
    )
    assert not torch.allclose(bare.launch(*bare.inputs), bare.reference(*bare.inputs), atol=0.1)


def test_kernelbench_without_a_kernel(write):
    path = write(HEAD, BENCH)
    with pytest.raises(TaskError, match=r"no kernel.*(?s:.)*class ModelNew"):
        load(path)
    task = load(path, need_kernel=False)
    assert task.build("test:0").launch is None


def test_kernelbench_shapes_must_be_its_parameters(write):
    with pytest.raises(TaskError, match="'rows'; the file's shape parameters are"):
        load(write(HEAD, KERNEL, BENCH, BENCH_NEW, "SHAPES = [dict(rows=2)]\n"))


def test_parameters_of_a_kernelbench_files_functions_are_its_sizes(write):
    own = BENCH.replace("get_inputs()", "get_inputs(rows=64, dim=dim)").replace("rand(batch,", "rand(rows,")
    own = own.replace("get_init_inputs()", "get_init_inputs(dim=dim)")
    task = load(write(HEAD, KERNEL, own, BENCH_NEW, "SHAPES = [dict(rows=9, dim=20), dict(rows=3)]\n"))
    assert task.params("timed:1") == dict(rows=3, dim=8192)
    case = task.build("timed:0")
    assert case.inputs[0].shape == case.reference(*case.inputs).shape == (9, 20)
    with pytest.raises(TaskError, match="scale.py: dim has two values: make them one, or rename one"):
        load(write(HEAD, KERNEL, own.replace("get_inputs(rows=64, dim=dim)", "get_inputs(rows=64, dim=5)"), BENCH_NEW))


def test_a_file_of_a_package_imports_relatively(write, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    folder = tmp_path / "outer_package" / "inner"
    folder.mkdir(parents=True)
    for place in (folder, folder.parent):
        (place / "__init__.py").touch()
    (folder.parent / "factors.py").write_text("TWO = 2\n")
    body = REFERENCE.replace("2", "TWO")
    (folder / "scale.py").write_text(HEAD + "from ..factors import TWO\n" + KERNEL + body + INPUTS)
    case = load(folder / "scale.py").build("test:0")
    assert torch.equal(case.reference(*case.inputs), 2 * case.inputs[0])


@pytest.mark.parametrize(
    "takes, given, names",
    [
        ("x, weights", "[x, [x + 1, x + 2]]", ("x", "weights[0]", "weights[1]")),
        ("x, *weights", "[x, x + 1, x + 2]", ("x", "weights[0]", "weights[1]")),
        ("x, weights", "(x, (x + 1, x + 2))", ("x", "weights[0]", "weights[1]")),
        ("x, weights, k=2", "[x, {'a': x + 1, 'b': x + 2}, 3]", ("x", "weights['a']", "weights['b']", "k")),
    ],
)
@pytest.mark.parametrize("form", ["native", "kernelbench"])
def test_each_tensor_of_a_list_is_an_input(write, takes, given, names, form):
    parts = "list(weights.values() if isinstance(weights, dict) else weights)"
    body = f"({takes}): return scale(x + sum({parts}))\n"
    inputs = f"def get_inputs(rows=7):\n    x = torch.ones(rows)\n    return {given}\n"
    plain = f"({takes}): return 2 * (x + sum({parts}))\n"
    if form == "native":
        text = f"def reference{plain}def launch{body}"
    else:
        methods = [f"class {name}(torch.nn.Module):\n    def forward" for name in ("Model", "ModelNew")]
        text = "".join(m + (plain if i == 0 else body).replace("(x", "(self, x", 1) for i, m in enumerate(methods))
    task = load(write(HEAD, KERNEL, text, inputs))
    case = task.build("timed:0")
    assert case.names == names
    assert case.reference(*case.inputs).tolist() == [12.0] * 7
    assert [float(x[0]) for x in case.inputs[:3]] == [1.0, 2.0, 3.0]


GRADIENT = """
def reference(x):
    x = x.detach().requires_grad_()
    (dx,) = torch.autograd.grad((x * x).sum(), x)
    return dx
"""


@pytest.mark.parametrize("leaf", ["x = x.detach().requires_grad_()", "pass"])
def test_a_reference_that_needs_a_gradient_runs_with_it(write, leaf):
    inputs = INPUTS.replace("dtype=dtype)", f"dtype=dtype, requires_grad={leaf == 'pass'})")
    task = load(write(HEAD, KERNEL, GRADIENT.replace("x = x.detach().requires_grad_()", leaf), inputs))
    case = task.build("test:0")
    assert not case.inputs[0].requires_grad
    with torch.no_grad():
        result = case.reference(*case.inputs)
    assert torch.equal(result, 2 * case.inputs[0]) and not result.requires_grad


@pytest.mark.parametrize(
    "name", ["scale_ref", "reference_scale", "torch_scale", "naive_scale", "scale_pytorch", "torch_double"]
)
def test_bare_finds_the_reference_that_users_write(write, name):
    task = load(write(HEAD, KERNEL, INPUTS, f"def {name}(x): return x * 2\n"))
    assert task.form == "bare" and task.build("test:0").names == ("x",)


def test_bare_with_a_companion(write):
    write(HEAD, REFERENCE, INPUTS, "SHAPES = [dict(rows=5)]\n", name="scale_reference.py")
    path = write(HEAD, KERNEL)
    task = load(path)
    assert task.form == "bare" and task.params("timed:0")["rows"] == 5
    write(HEAD, REFERENCE, INPUTS, "SHAPES = [dict(rows=6)]\n", name="scale_reference.py")
    assert load(path).digest != task.digest


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (["def ("], "scale.py is not Python: .*line 1"),
        ([HEAD, "import nowhere_to_be_found\n"], "cannot be imported: ModuleNotFoundError.*line 6"),
        ([HEAD, "1 / 0\n"], "cannot be imported: ZeroDivisionError: division by zero .line 6.; .*__main__"),
        ([HEAD], "has no reference; add to it.*(?s:.)*def reference"),
        ([HEAD, KERNEL, INPUTS], r"has no reference; add to it(?s:.)*def reference\(x\)"),
        (
            [HEAD, "def ce(x): return x\nclass Gate(torch.nn.Module): pass\ndef _own(): pass\n", INPUTS],
            r"name what to make faster, scale.py:Gate \(it has Gate, ce\), or add to it(?s:.)*def reference\(x\)",
        ),
        ([HEAD, KERNEL, REFERENCE], "has no get_inputs; add"),
        ([HEAD, KERNEL, REFERENCE, "def get_input(n=3): pass\n"], "has get_input and no get_inputs: rename it"),
        ([HEAD, REFERENCE, INPUTS], "has no kernel(?s:.)*@triton.jit"),
        (
            [HEAD, KERNEL, "def reference(x, y): return x\n", INPUTS],
            r"no function that launches a kernel takes \(x, y\)",
        ),
        ([WHOLE, "SHAPES = [dict(columns=3)]\n"], "'columns', but get_inputs takes rows, cols"),
        ([WHOLE, "SHAPES = 4\n"], "SHAPES must be a list of dicts"),
        ([HEAD, KERNEL, REFERENCE, "def get_inputs(n): return [torch.randn(n)]\n"], "get_inputs needs 'n'"),
        ([WHOLE, "LAUNCHER = 'nothing'\n"], "LAUNCHER names 'nothing'"),
    ],
)
def test_what_is_missing_is_said(write, parts, says):
    with pytest.raises(TaskError, match=says):
        load(write(*parts))


def test_no_such_file(tmp_path):
    with pytest.raises(TaskError, match="no such file"):
        load(tmp_path / "nothing.py")
    with pytest.raises(TaskError, match="no such file: .*nothing.py:twice"):
        load(tmp_path / "nothing.py:twice")
    (tmp_path / "layers.py").touch()
    with pytest.raises(TaskError, match="layers_twice_seeded.py, after `kernelsearch seed .*layers.py:twice -o .*py`$"):
        load(tmp_path / "layers.py:twice")
    (tmp_path / "layers_twice_seeded.py").touch()
    with pytest.raises(TaskError, match="is no file with a kernel: name .*layers_twice_seeded.py$"):
        load(tmp_path / "layers.py:twice")
    with pytest.raises(TaskError, match="is a folder"):
        load(tmp_path)


def test_inputs_that_the_reference_does_not_take(opened):
    inputs = "def get_inputs(n=4): return [torch.randn(n), torch.randn(n)]\nTEST_SHAPES = [dict(n=2)]\n"
    task = opened(REFERENCE, inputs)
    with pytest.raises(TaskError, match=r"gives 2 inputs, but reference takes \(x\)"):
        task.build("test:0")


def test_unknown_shape_key(write):
    task = load(write(HEAD, KERNEL, REFERENCE, INPUTS))
    with pytest.raises(TaskError, match="no shape 'timed:7'; it has timed:0"):
        task.build("timed:7")


def test_forms_are_a_registry():
    assert [form.__name__.rpartition(".")[2] for form in FORMS] == ["kernelbench", "native", "bare"]


GROUPED = """
class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.GroupNorm(8, features)
    def forward(self, x): return self.norm(x)
class ModelNew(torch.nn.Module):
    def __init__(self, features): super().__init__()
    def forward(self, x): return scale(x)
batch, features, height, width = 32, 64, 64, 64
def get_inputs(): return [torch.randn(batch, features, height, width)]
def get_init_inputs(): return [features]
"""


def test_a_convolutional_task_shrinks_until_the_interpreter_can_run_it(opened):
    """Equal sizes that must not all be odd, a channel count that groups divide, and a batch that is not large."""
    task = opened(GROUPED)
    for _, shape in task.test_shapes:
        assert shape["features"] % 8 == 0
        assert shape["batch"] * shape["features"] * shape["height"] * shape["width"] <= 1 << 14
    assert len(task.test_shapes) == 2 and task.notes == ()


@pytest.mark.parametrize("line, near", [
    ("SHAPE = [dict(rows=7)]", "SHAPES"), ("SHAPE = dict(rows=7)", "SHAPES"),
    ("TEST_SHAPE = [dict(rows=7)]", "TEST_SHAPES"),
    ("TOLERANCES = 2.0", "TOLERANCE"), ("PRECISON = 'tf32'", "PRECISION"), ("DOMAINS = {'x': 'unit'}", "DOMAIN"),
    ("MUTATE = 'x'", "MUTATES"), ("BASELINE = {}", "BASELINES"), ("SPACES = {'BLOCK': [64]}", "SPACE"),
    ("CONFIGS = {'BLOCK': 64}", "CONFIG"), ("LAUNCHERS = 'scale'", "LAUNCHER"),
    ("CONSTRAINT = ['n > 1']", "CONSTRAINTS"),
])  # fmt: skip
def test_a_misspelt_option_is_said_with_the_right_one(write, line, near):
    name = line.split()[0]
    with pytest.raises(TaskError, match=f"nothing reads {name}: did you mean {near}\\?"):
        load(write(WHOLE, line + "\n"))


@pytest.mark.parametrize("lines", [
    "SHAPE = [dict(rows=7)]\nSHAPES = SHAPE",  # the user's own code reads it
    "TOLERANCES = 2.0\ndef unrelated(): return TOLERANCES",
    "SHAPE = 128",  # no value of that option
    "shape = [dict(rows=7)]",
    "SHAPELY = 'x'",
    "from os import path as CONFIGS",
    "NAMES = {}\nDEVICE = 'cpu'\nDTYPES = ('x',)\nSIZES = [dict(rows=7)]",
])  # fmt: skip
def test_names_of_the_users_own_are_left_alone(write, lines):
    assert load(write(WHOLE, lines + "\n")).name == "scale"


def test_a_task_whose_sizes_have_no_names_is_told_what_to_write():
    _, note = shrink_shape({"dtype": "float32"}, lambda shape: 1 << 25)
    assert "a parameter rows=4096; where the reference is a Model, rows = 4096 above it" in note
    assert "add TEST_SHAPES" in note


def test_small_sizes_shrink_before_those_that_were_large():
    """Of 16 heads and 37 rows, 37 rows are kept: with 3 a band of rows says nothing."""
    shapes, note = shrink_shape({"heads": 16, "n": 2048}, lambda p: p["heads"] * p["n"] ** 2)
    assert shapes == [{"heads": 3, "n": 37}, {"heads": 3, "n": 64}] and not note


@pytest.mark.parametrize(
    ("shapes", "chosen"),
    [
        ([dict(m=1, n=4096), dict(m=16, n=4096), dict(m=512, n=4096)], 2),
        ([dict(m=4096, n=4096), dict(m=512, n=4096)], 1),  # sizes that differ are two
        ([dict(m=512, n=4096, gap=0), dict(m=512, n=2048, gap=64)], 0),
        ([dict(m=8, n=4)], 0),
    ],
)
def test_the_shape_with_the_most_sizes_that_shrink_is_the_base(shapes, chosen):
    assert choose_base(shapes) == shapes[chosen]


def test_no_shape_is_tried_twice():
    tried = []

    def count(shape):
        tried.append(shape)
        return math.prod(shape.values()) if shape["rows"] == 8192 else None

    shapes, _ = shrink_shape({"rows": 8192, "cols": 2080}, keep_by_shape(count))
    assert len(tried) == len({repr(shape) for shape in tried}) and shapes[0]["cols"] < 2080


def test_a_size_that_stays_leaves_the_others_least_and_is_said():
    """Of 2048 channels the interpreter runs 2048 programs for each of the batch and of the values."""
    timed = {"batch": 4, "dim": 2048, "length": 4096}
    shapes, note = shrink_shape(timed, lambda p: math.prod(p.values()) if p["dim"] == 2048 else None)
    assert shapes == [{"batch": 1, "dim": 2048, "length": 3}]
    assert "batch=1 dim=2048 length=3 has 6144 elements" in note and "takes none smaller" in note


LABELLED = """
import torch.nn.functional as F
def reference(x): return F.cross_entropy(x @ x.t() / 99, torch.arange(x.shape[0], device=x.device))
def get_inputs(rows=1 << 15, cols=1024): return [torch.randn(rows, cols)]
"""


def test_what_is_made_on_the_device_of_a_tensor_on_meta_is_there_too(write):
    """The timed shape is far too large to run: a reference that failed on meta was judged at full size."""
    with pretend_gpu(target_by_name("h100"), "cpu"):
        task = load(write(HEAD, KERNEL, LABELLED))
        assert count_input_elements(task.builder, task.params("timed:0")) == 1 << 25
        with torch.device("meta"):
            x = torch.zeros(3)
        assert x.device == torch.device("cuda", 0)
        assert torch.arange(3, device=x.device).untyped_storage().device.type == "meta"
        assert torch.arange(3, device=torch.zeros(3).device).untyped_storage().device.type == "cpu"


IGNORED = """
LAUNCHER = "scale"
def reference(x, keep): return (x * keep[:, None]).sum() / keep.sum()
def get_inputs(rows=4096, cols=100000): return [torch.randn(rows, COLS), (torch.arange(rows) >= HIDDEN).float()]
"""


@pytest.mark.parametrize("hidden, rows", [("2", 3), ("3", 8), ("8", 16)])
def test_the_result_at_a_test_shape_is_finite_and_depends_on_the_inputs(write, hidden, rows):
    """Without a row that counts the reference was NaN, and every kernel right."""
    task = load(write(HEAD, KERNEL, IGNORED.replace("HIDDEN", hidden).replace("COLS", "20000")))
    assert task.test_shapes[0][1]["rows"] == rows
    case = task.build("test:0")
    assert case.reference(*case.inputs).isfinite()


GATHERED = """
def reference(x): return RESULT
def get_inputs(rows=4096, cols=1024): return [torch.randn(rows, cols // 32)]
"""


@pytest.mark.parametrize("result, cols, note", [
    ("x[:, torch.arange(x.shape[1] * 32) // 32]", 70, ""),
    ("x[torch.arange(x.shape[0]), 20]", 670, ""),
    ("x[:, :0]", 5, "at all small sizes an input or a result is empty"),
    ("x * 0", 70, "at all small sizes the reference's result is not finite, or the same for all inputs"),
])  # fmt: skip
def test_no_test_shape_is_empty_and_what_tells_nothing_is_said(write, result, cols, note):
    task = load(write(HEAD, KERNEL, GATHERED.replace("RESULT", result)))
    assert [n.partition(",")[0] for n in task.notes] == [note.partition(",")[0]] * bool(note)
    assert all(p["cols"] // 32 for _, p in task.test_shapes) or note


CONSTANT = """
LAUNCHER = "scale"
RUNS = []
def reference(x, w, v):
    RUNS.append(x.shape)
    return (x @ w @ v)[:, :1] * 0
def get_inputs(rows=300, inner=500, cols=700, last=900):
    return [torch.randn(rows, inner), torch.randn(inner, cols), torch.randn(cols, last)]
"""


def test_a_result_that_is_the_same_at_many_sizes_is_not_looked_at_in_all(write):
    """A model of KernelBench whose result is 0 took 472 runs of its reference, 75 seconds."""
    task = load(write(HEAD, KERNEL, CONSTANT))
    assert len(task.module.RUNS) < 600  # was 1310
    assert [note for note in task.notes if "the same for all inputs" in note]


HALF = """
LAUNCHER = "scale"
def reference(x, w):
    y = x @ w
    return y * (torch.arange(y.shape[1], device=y.device) < y.shape[1] // 512 * 512)
def get_inputs(rows=300, inner=500, cols=700):
    return [torch.randn(rows, inner), torch.randn(inner, cols)]
"""


def test_other_sizes_shrink_where_one_tells_nothing_when_it_is_small(write):
    task = load(write(HEAD, KERNEL, HALF))
    assert {p["cols"] for _, p in task.test_shapes} == {700} and task.test_shapes[0][1]["inner"] < 100
    assert not [note for note in task.notes if "the same for all inputs" in note]


def test_the_sizes_of_a_task_without_a_kernel_are_told_apart():
    """Each that may has two values, and none two are equal in all shapes: a kernel for squares would be accepted."""

    def takes(params):
        return None if params["heads"] != 8 or params["n"] != params["same"] else 1

    timed = {"batch": 4, "heads": 8, "rows": 64, "cols": 64, "n": 9, "same": 9, "scale": 2.0}
    tests = [{**timed, "rows": 37, "cols": 37, "n": 5, "same": 5}, {**timed, "rows": 32, "cols": 32}]
    spread = spread_sizes([timed], tests, takes)
    assert spread == [{**tests[0], "batch": 3, "cols": 36}, tests[1]]
    assert spread_sizes([timed], spread, takes) == spread
