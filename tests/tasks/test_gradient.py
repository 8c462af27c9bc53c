"""A task that is the gradient of another: autograd of that one's reference, in every form in which it is used."""

import pytest
import torch

from kernelsearch.cluster.task_files import list_files
from kernelsearch.core.errors import TaskError
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.propose.models.kernel_page import read_reference_file
from kernelsearch.tasks.differentiation import Gradient
from kernelsearch.tasks.load import load
from kernelsearch.tasks.module import compute_digest
from kernelsearch.worker.launcher.inductor import write_seeded_task

FORWARD = """
import torch

def reference(x, table, index, eps=1e-6):
    rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return x * rstd * table[index], rstd, index + 1

def get_inputs(rows=48, cols=64, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype), torch.rand(5, cols, dtype=dtype) + 0.5, torch.randint(0, 5, (rows,))]

SHAPES = [dict(rows=48, cols=64)]
TEST_SHAPES = [dict(rows=7, cols=10), dict(rows=3, cols=33)]
DOMAIN = {"x": (-4, 4)}
"""


@pytest.fixture
def write(tmp_path):
    def make(text, name="scaled_gradient.py", forward=FORWARD):
        (tmp_path / "scaled.py").write_text(forward)
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return make


def by_hand(x, table, index, outer, outer_rstd, eps=1e-6):
    x, table = x.clone().requires_grad_(), table.clone().requires_grad_()
    rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    ((x * rstd * table[index] * outer).sum() + (rstd * outer_rstd).sum()).backward()
    return x.grad, table.grad


def test_its_inputs_are_the_forwards_and_the_gradients_of_its_results(write):
    task = load(write('GRADIENT_OF = "scaled.py"\nSAVED = {"rstd": 1}\n'), need_kernel=False)
    case = task.build("test:0", 3)
    assert (task.form, task.name, task.domain) == ("gradient", "scaled_gradient", {"x": (-4, 4), "rstd": "fixed"})
    assert case.names == ("x", "table", "index", "rstd", "grad_out0", "grad_out1")
    assert [tuple(x.shape) for x in case.inputs] == [(7, 10), (5, 10), (7,), (7, 1), (7, 10), (7, 1)]
    x, table, index, rstd, *outer = case.inputs
    with torch.no_grad():
        got = case.reference(*case.inputs)
        again = case.start(*case.inputs[:3], rstd * 2, *outer)  # what a first kernel is made of reads what is saved
    for own, right in zip(got, by_hand(x, table, index, *outer), strict=True):
        torch.testing.assert_close(own, right)
    assert not torch.allclose(again[0], got[0]) and case.reference(*case.inputs[:3], rstd * 2, *outer)[0].equal(got[0])
    moved = case.complete([2 * x, *case.inputs[1:]])
    torch.testing.assert_close(moved[3], torch.rsqrt((2 * x).pow(2).mean(-1, keepdim=True) + 1e-6))
    sizes = "x 12.3 kB, table 1.28 kB, index 384 bytes, rstd 192 bytes; rstd by SAVED"
    assert sizes in task.notes[-1]


@pytest.mark.parametrize(("more", "count"), [('GRADIENTS = ("table",)\n', 0), ('MUTATES = ("x",)\n', 1)])
def test_some_gradients_and_gradients_in_place(write, more, count):
    task = load(write(f'GRADIENT_OF = "scaled.py"\n{more}'), need_kernel=False)
    inputs = [x.clone() for x in task.build("test:1", 0).inputs]
    assert len(inputs) == 4 + count  # the gradient of rstd says nothing of the table
    before, (dx, dtable) = inputs[0].clone(), by_hand(*inputs[:4], inputs[-1] if count else torch.zeros(()))
    torch.testing.assert_close(task.build("test:1", 0).reference(*inputs), dtable)
    torch.testing.assert_close(inputs[0], dx if count else before)


def test_what_torch_compile_traces_is_the_same(write, monkeypatch):
    case = load(write('GRADIENT_OF = "scaled.py"\n'), need_kernel=False).build("test:0")
    right = case.reference(*case.inputs)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(Gradient, "_differentiate", None)  # Dynamo does not trace it
    for got, own in zip(case.reference(*case.inputs), right, strict=True):
        torch.testing.assert_close(got, own)


PEER = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, table, index):
        with torch.enable_grad():
            ctx.kept = [t.detach().clone().requires_grad_() for t in (x, table)]
            ctx.made = reference(*ctx.kept, index)[:2]
        ctx.save_for_backward(torch.ones_like(x))
        x.detach().zero_()  # a place for the gradient
        return ctx.made[0].detach(), ctx.made[1].detach(), index + 1

    @staticmethod
    def backward(ctx, *outer):
        ctx.saved_tensors[0].mul_(2)  # as some do that have little memory
        dx, dtable = torch.autograd.grad(ctx.made, ctx.kept, outer[:2], retain_graph=True)
        return dx, dtable, None

BASELINES = {"peer": lambda x, table, index: Scale.apply(x, table, index)}
"""


def test_the_backward_pass_of_a_peer_of_the_forward_is_a_baseline(write):
    """It may write into what it has saved, and into its inputs: those that are timed stay as they are."""
    task = load(write('GRADIENT_OF = "scaled.py"\n', forward=FORWARD + PEER), need_kernel=False)
    assert list(task.baselines) == ["peer backward", "compiled backward"]
    case = task.build("test:0", 3)
    before = [x.clone() for x in case.inputs]
    for _ in range(3):
        got = task.baselines["peer backward"](*case.inputs)
        for own, right in zip(got, by_hand(*before), strict=True):
            torch.testing.assert_close(own, right)
    assert all(map(torch.equal, case.inputs, before))


def test_its_digest_its_files_and_its_page_are_of_both(write, tmp_path):
    path = write('GRADIENT_OF = "scaled.py"\n')
    assert "rstd = torch.rsqrt" in read_reference_file(str(path)) and not read_reference_file(
        str(tmp_path / "scaled.py")
    )
    before = compute_digest(path)
    assert {file.name for file in list_files(path)} == {"scaled.py", "scaled_gradient.py"}
    write('GRADIENT_OF = "scaled.py"\n', forward=FORWARD + "\n# another text\n")
    assert compute_digest(path) != before


BAD = {
    'GRADIENT_OF = "none.py"': "names none.py, and there is no such file beside it",
    'GRADIENT_OF = "../scaled.py"': "names ../scaled.py, and there is no such file",
    'GRADIENT_OF = "scaled_gradient.py"': "a gradient itself",
    'GRADIENT_OF = "scaled.py"\nGRADIENTS = "index"': "has no gradient by 'index'; it has some by x, table",
    'GRADIENT_OF = "scaled.py"\nSAVED = {"rstd": 3}': "by their numbers, 0 to 2, .*'rstd' is wrong",
}
BAD_FORWARDS = {
    'MUTATES = ("x",)\n' + FORWARD: r"changes x \(MUTATES\)",
    FORWARD.replace("def reference(x", "def reference(y").replace("rstd = ", "x = y.detach()\n    rstd = ").replace(
        "* table[index]", ""): "has no gradient: no result depends on a floating input",
    FORWARD.replace("return x * rstd * table[index], rstd, index + 1", "return x.argmax(-1)"): "has no gradient",
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x\n"
    "def get_inputs(): return [torch.randn(4, 4)]\n": "which has a module: make its reference a function",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_a_file_that_names_what_is_not_there_is_refused_in_one_sentence(write, text):
    with pytest.raises(TaskError, match=BAD[text]):
        load(write(text + "\n"), need_kernel=False)


@pytest.mark.parametrize("forward", BAD_FORWARDS)
def test_a_forward_without_a_gradient_is_refused_in_one_sentence(write, forward):
    with pytest.raises(TaskError, match=BAD_FORWARDS[forward]):
        load(write('GRADIENT_OF = "scaled.py"\n', forward=forward), need_kernel=False)


REFERENCES = {
    "grad": "x = x.detach().requires_grad_()\n    with torch.enable_grad():\n        y = x.exp()\n"
            "    return torch.autograd.grad(y, x, outer)[0]",
    "vjp": "return torch.func.vjp(torch.exp, x)[1](outer)[0]",
}  # fmt: skip


@pytest.mark.parametrize("how", REFERENCES)
def test_a_reference_that_differentiates_is_judged_and_seeded_as_it_is_written(write, how):
    text = f"import torch\n\ndef reference(x, outer):\n    {REFERENCES[how]}\n\ndef get_inputs(n=4096):\n"
    path = write(f"{text}    return [torch.randn(n), torch.randn(n)]\n", "own.py")
    case = load(path, need_kernel=False).build("test:0")
    inputs = [x.double() for x in case.inputs]
    with torch.no_grad():
        assert torch.allclose(case.reference64(*inputs), inputs[0].exp() * inputs[1])
    text, _ = write_seeded_task(str(path), target_by_name("h100"))
    assert text.count("@triton.jit") == 1 and "tl_math.exp" not in text and "exp(" in text.partition("@triton.jit")[2]


def test_the_first_kernel_of_a_gradient_reads_what_is_saved(write):
    forward = (
        "import torch\n\ndef reference(x):\n    return x.exp()\n\ndef get_inputs(n=4096): return [torch.randn(n)]\n"
    )
    saved = {}
    for more in ("", 'SAVED = {"y": 0}\n'):
        path = write(f'GRADIENT_OF = "scaled.py"\n{more}', forward=forward)
        text, _ = write_seeded_task(str(path), target_by_name("h100"))
        saved[bool(more)] = text.partition("@triton.jit")[2]
    assert "exp(" in saved[False] and "def launch_seed(x, grad_out)" in saved[False]
    assert "exp(" not in saved[True] and "y_ptr" in saved[True] and "def launch_seed(x, y, grad_out)" in saved[True]


SQUARE = """
import torch
def reference(x): return x * x
def get_inputs(rows=512, cols=512): return [torch.randn(rows, cols)]
"""


def test_sizes_that_are_equal_by_default_are_told_apart_where_the_reference_takes_others(tmp_path):
    """Rows and columns were one size in all shapes, so that a package ran its kernel on square inputs alone."""
    (tmp_path / "square.py").write_text(SQUARE)
    (tmp_path / "square_grad.py").write_text('GRADIENT_OF = "square.py"\n')
    task = load(tmp_path / "square_grad.py", need_kernel=False)
    assert any(p["rows"] != p["cols"] for _, p in task.test_shapes)
    assert all(case.inputs[0].shape == case.inputs[1].shape for case in (task.build(k, 0, "cpu") for k in task.keys))
    (tmp_path / "square.py").write_text(SQUARE.replace("x * x", "x @ x"))  # of square matrices alone
    task = load(tmp_path / "square_grad.py", need_kernel=False)
    assert all(p["rows"] == p["cols"] for _, p in task.test_shapes)
    (tmp_path / "square.py").write_text(SQUARE + "TEST_SHAPES = [dict(rows=8, cols=8)]\n")
    assert load(tmp_path / "square_grad.py", need_kernel=False).test_shapes == (("test:0", dict(rows=8, cols=8)),)
