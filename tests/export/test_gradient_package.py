"""A forward and its gradients are one operator: what is saved, who needs which gradient, what is refused."""

from importlib import import_module

import pytest
import torch
from gated_record import H100, imported, write_seed_run

from kernelsearch.core.types import Evidence
from kernelsearch.export.examine import examine
from kernelsearch.export.package import ExportOptions, export

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n"
FORWARD = """
def reference(x, gate, times: float = 2.0):
    t = torch.tanh(x)
    return t * gate * times, t

def get_inputs(n=4096):
    return [torch.randn(n), torch.rand(n) + 0.5]

TEST_SHAPES = [dict(n=100), dict(n=300)]
"""
KERNEL = """
@triton.jit
def {name}_kernel({reads}, {writes}, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    a, b, c = tl.load(a_ptr + at, mask=mask), tl.load(b_ptr + at, mask=mask), tl.load(c_ptr + at, mask=mask)
    d = tl.load(d_ptr + at, mask=mask)
    tl.store(y_ptr + at, {y}, mask=mask)
    tl.store(z_ptr + at, {z}, mask=mask)

def launch({takes}):
    y, z = torch.empty_like(x), torch.empty_like(x)
    {name}_kernel[(triton.cdiv(x.numel(), 256),)]({passed}, y, z, x.numel(), BLOCK=256)
    return {back}
"""


def kernel(name, takes, passed, y, z, back="y, z"):
    text = KERNEL.format(name=name, takes=takes, passed=passed, y=y, z=z, back=back, reads="a_ptr, b_ptr, c_ptr, d_ptr",
                         writes="y_ptr, z_ptr")  # fmt: skip
    return HEAD + text


FILES = {
    "squash": kernel("squash", "x, gate", "x, gate, x, gate", "(2 / (1 + tl.exp(-2 * a)) - 1) * b * 2",
                     "2 / (1 + tl.exp(-2 * a)) - 1 + 0 * (c + d)") + FORWARD,
    "squash_gradient": 'GRADIENT_OF = "squash.py"\nSAVED = {"t": 1}\n' + kernel(
        "both", "x, gate, t, grad_out0, grad_out1", "gate, t, grad_out0, grad_out1",
        "(c * a * 2 + d) * (1 - b * b)", "c * b * 2"),
    "squash_by_gate": 'GRADIENT_OF = "squash.py"\nSAVED = {"t": 1}\nGRADIENTS = "gate"\n' + kernel(
        "gate", "x, gate, t, grad_out", "t, grad_out, t, grad_out", "b * a * 2", "c + d", "y"),
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The imported package of the three tasks."""
    folder = tmp_path_factory.mktemp("squash")
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text)
    for name in FILES:
        facts = examine(folder / f"{name}.py").facts
        write_seed_run(folder / "found.db", facts, (10.0,), Evidence.MEASURED, H100)
    tasks, out = tuple(FILES), folder / "package"
    options = ExportOptions(tasks, str(out), "squashed", (str(folder / "found.db"),), evidence=Evidence.MEASURED)
    export(options)
    assert "`squash_by_gate` gives the gradients of `squash` by gate, where" in (out / "README.md").read_text()
    return imported(out, "squashed")


def test_the_benchmark_has_what_training_runs_today(trained, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **how: function)
    task = trained._dispatch.TASKS["squash_gradient"]
    (name, baseline), *rest = import_module("squashed.benchmark").load_named_baselines(task)[0].items()
    inputs = [x.clone() for x in task.inputs(task.cases[0])]
    for _ in range(2):
        assert all(map(torch.allclose, baseline(*inputs), task.reference(*inputs)))
        inputs[3].mul_(2)  # as a timer does
    assert name == "compiled backward" and not rest


def leaves(*needed):
    torch.manual_seed(1)
    return [torch.randn(100).requires_grad_("x" in needed), (torch.rand(100) + 0.5).requires_grad_("gate" in needed)]


@pytest.mark.parametrize(("needed", "by"), [("x gate", "squash_gradient"), ("x", "squash_gradient"),
                                            ("gate", "squash_by_gate")])  # fmt: skip
def test_a_gradient_comes_from_the_task_that_is_by_the_fewest_other_inputs(trained, monkeypatch, needed, by):
    tasks, asked, needed = trained._dispatch.TASKS, [], needed.split()
    for name in ("squash_gradient", "squash_by_gate"):
        public = tasks[name].public
        monkeypatch.setattr(
            tasks[name], "public", lambda *a, name=name, run=public, **k: asked.append((name, a)) or run(*a, **k)
        )
    x, gate = inputs = leaves(*needed)
    y, t = tasks["squash"].operator(*inputs, True)
    (y.sum() + 3 * t.sum()).backward()
    assert [name for name, _ in asked] == [by]
    assert torch.equal(asked[0][1][2], t) and asked[0][1][3].is_contiguous()  # what was saved; a sum's is expanded
    slope = (2 * gate + 3) * (1 - torch.tanh(x) ** 2)
    for given, right in ((x, slope), (gate, 2 * torch.tanh(x))):
        assert given.grad is None if not given.requires_grad else torch.allclose(given.grad, right.detach())


def test_a_result_that_nobody_differentiates_counts_as_nought(trained):
    inputs = leaves("x", "gate")
    found = torch.autograd.grad(trained._dispatch.TASKS["squash"].operator(*inputs, True)[1].sum(), inputs)
    assert torch.allclose(found[0], 1 - torch.tanh(inputs[0]) ** 2) and not found[1].any()


def test_a_gradient_of_a_gradient_is_refused(trained):
    inputs = leaves("x", "gate")
    y, _ = trained._dispatch.TASKS["squash"].operator(*inputs, True)
    with pytest.raises(trained.NotVerified, match="no gradient of its gradient: call it without create_graph"):
        torch.autograd.grad(y.sum(), inputs, create_graph=True)


def test_another_value_of_a_parameter_is_differentiated_by_torch(trained):
    x, gate = leaves("x", "gate")
    trained.squash(x, gate, times=3.0)[0].sum().backward()
    assert torch.allclose(gate.grad, 3 * torch.tanh(x.detach()))


def test_torch_takes_the_operators(trained):
    for name, inputs in (("squash", leaves("x", "gate")), ("squash_by_gate", [torch.rand(100) for _ in range(4)])):
        torch.library.opcheck(trained._dispatch.TASKS[name].operator, (*inputs, True),
                              test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))  # fmt: skip
