"""What a launcher computes without its kernels is told, because estimates know of kernels alone."""

import pytest

from kernelsearch.trial.bench import Bench

TEXT = """
import torch, triton, triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) + 1.0, at < n)

def seed(a, b):
    CALLS
    y = torch.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), BLOCK=256)
    return y

def reference(a, b):
    return REFERENCE + 1.0

def get_inputs(n=64):
    return [torch.randn(n, n), torch.randn(n, n)]

SHAPES = [dict(n=64)]
"""


@pytest.mark.parametrize("calls, reference, told", [
    ("x = torch.relu(a @ b @ b)", "torch.relu(a @ b @ b)", "calls mm (2), relu of PyTorch"),
    ("x = a.t().contiguous()", "a.t().contiguous()", "calls clone of PyTorch"),
    ("x = a.view(64, 64); torch.zeros(64).fill_(1.0)", "a", ""),
])  # fmt: skip
def test_a_launchers_own_operations_are_named_where_times_are_estimated(tmp_path, calls, reference, told):
    file = tmp_path / "mine.py"
    file.write_text(TEXT.replace("CALLS", calls).replace("REFERENCE", reference))
    with Bench.open(file) as bench:
        if bench.device is not None:
            pytest.skip("times are measured on a GPU")
        notes = [note for note in bench.facts.notes if "the launcher itself" in note]
    assert len(notes) == bool(told) and all(told in note for note in notes), notes
