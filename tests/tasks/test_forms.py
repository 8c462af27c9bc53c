"""The three forms of a task file, and what is said when something is missing."""

import sys

import pytest
import torch
from task_texts import HEAD, INPUTS, KERNEL, REFERENCE, WHOLE

from kernelsearch.core.errors import TaskError
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks.load import FORMS, load
from kernelsearch.worker.launcher.standin import pretend_gpu


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
