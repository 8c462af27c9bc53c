"""Fresh workers are ready at once: what a first job imports is imported before the fork, and torch's compiler never."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from kernelsearch.worker.child import postpone_compiler

JUDGES = """
import torch
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.worker.launcher.standin import poison_empty

modules = set(sys.modules)
torch.randn(3, device="meta")
with poison_empty() as filled:
    x = torch.empty(3, 4)
assert len(filled) == 1 and x.isnan().all()
softmax = lambda x: torch.softmax(x, -1)
outputs = make_expectation(softmax, softmax, [torch.randn(3, 40)]).outputs
assert outputs[0].limits is not None
"""
NO_IMPORTS = "assert not set(sys.modules) - modules - {'torch.utils._device'}, sorted(set(sys.modules) - modules)\n"


@pytest.mark.slow
@pytest.mark.parametrize("role", ["judge", "evaluate", "run"])
def test_a_first_job_imports_nothing_slow(role):
    code = (
        f"import sys\nfrom kernelsearch.worker.roles import {role}\n{role}.preload()\n{JUDGES}"
        f"{NO_IMPORTS * (role != 'run')}"
        "assert 'torch._dynamo' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


TASK = """
import sys, torch, triton, triton.language as tl

def mark(x):
    marks = (x > 0).float()  # of a meta tensor, torch's own Python says that it must not be compiled
    assert "torch._dynamo" not in sys.modules
    return marks

def reference(x): return mark(x) * 2
def get_inputs(rows=8, cols=96): return [torch.randn(rows, cols)]

@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)

def double(x):
    marks, y = mark(x), torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 128),)](marks, y, x.numel(), BLOCK=128)
    return y
"""


def test_a_task_that_compares_imports_no_compiler_in_any_worker(run, tmp_path):
    (tmp_path / "task.py").write_text(TASK)
    done = run("verify", "task.py")
    assert done.code == 0, done.out + done.err


def test_what_must_not_be_compiled_is_left_to_the_compiler_once_it_is_there(monkeypatch):
    kept = torch._disable_dynamo(lambda: "as it is")
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    postpone_compiler()
    assert kept() == "as it is" and "torch._dynamo" not in sys.modules
    compiler = SimpleNamespace(disable=lambda *_, **__: lambda: "told the compiler")
    monkeypatch.setitem(sys.modules, "torch._dynamo", compiler)
    monkeypatch.setattr(torch, "_dynamo", compiler, raising=False)
    assert kept() == "told the compiler"
