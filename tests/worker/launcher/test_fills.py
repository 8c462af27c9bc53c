"""Fills of a launcher are found at their calls, and left out in its text and in its functions."""

import importlib.util

import pytest

from kernelsearch.core.types import Fill
from kernelsearch.kernel.launch import LaunchError
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.worker.launcher import trace
from kernelsearch.worker.launcher.fills import UnfilledCode, leave_out
from kernelsearch.worker.launcher.opening import open_task

FORMS = {
    "torch.zeros(n, device=d)": "torch.empty(n, device=d)",
    "torch.ones_like(x)": "torch.empty_like(x)",
    "x.new_zeros((n, 2))": "x.new_empty((n, 2))",
    "torch.full((n,), -1.0)": "torch.empty((n,))",
    "torch.full(fill_value=float('inf'), size=(n,))": None,  # the value comes first
    "torch.full((n,), 7, dtype=torch.int32)": "torch.empty((n,), dtype=torch.int32)",
    "torch.full((n,), 7)": None,  # an int64 by its value
    "torch.full_like(x, 7)": "torch.empty_like(x)",
    "x.new_full((n,), fill_value=2)": "x.new_empty((n,))",
    "x.zero_()": "x",
    "torch.empty(n).fill_(3)": "torch.empty(n)",
    "zeros(n)": None,  # nobody knows whose
    "torch.nn.functional.pad(x, (0, 1))": None,
    "torch.full(\n    (n,),\n    -1.0,\n    device=d,\n)": "torch.empty(\n    (n,)\n,\n    device=d,\n)",
}


@pytest.mark.parametrize("call", FORMS)
def test_a_call_is_written_without_its_fill_on_the_same_lines(call):
    text = f"é = 1; y = {call}; z = 2\n"
    lines = text.splitlines()
    end = Fill("f.py", len(lines), len(lines[-1].encode()) - len("; z = 2"))
    wanted = FORMS[call]
    assert leave_out(text, (end,)) == (None if wanted is None else f"é = 1; y = {wanted}; z = 2\n")


TASK = """import torch, triton, triton.language as tl

def reference(x): return x * 2, x.sum(1)
def get_inputs(rows=6, cols=40): return [torch.randn(rows, cols)]

@triton.jit
def double(x_ptr, y_ptr, s_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
    tl.store(y_ptr + row * cols + at, x * 2, mask=at < cols)
    tl.atomic_add(s_ptr + row, tl.sum(x, 0))

def launch(x):
    def allocate(*size):
        return torch.zeros(size, device=x.device)
    y, s = allocate(*x.shape), x.new_zeros(x.shape[0])
    s.fill_(0.0)
    double[(x.shape[0],)](x, y, s, x.shape[1], BLOCK=64)
    return y, s
"""


def test_a_traced_launch_knows_the_fills_of_its_arguments_also_by_functions_within_it(tmp_path):
    (tmp_path / "task.py").write_text(TASK)
    (launch,) = trace.run_launcher(open_task(tmp_path / "task.py", target_by_name("h100")), "test:0").launches
    where = {
        name: [(f.line, TASK.splitlines()[f.line - 1][: f.column]) for f in found]
        for name, found in launch.fills.items()
    }
    assert where == {
        "y_ptr": [(15, "        return torch.zeros(size, device=x.device)")],
        "s_ptr": [(16, "    y, s = allocate(*x.shape), x.new_zeros(x.shape[0])"), (17, "    s.fill_(0.0)")],
    }


def test_functions_run_without_a_fill_inside_the_context_alone(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "import torch\ndef make(n):\n    def inner():\n        return torch.full((n,), 3.0)\n    return inner()\n"
    )
    spec = importlib.util.spec_from_file_location("module_of_fills", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    code = UnfilledCode([Fill(str(path), 4, 36)])
    with code.applied():
        assert "empty" in module.make.__code__.co_consts[1].co_names
    assert "full" in module.make.__code__.co_consts[1].co_names and module.make(2).tolist() == [3.0, 3.0]
    with pytest.raises(LaunchError, match="cannot be left out"):
        UnfilledCode([Fill(str(path), 4, 30)])
