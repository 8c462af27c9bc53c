"""Kernels that decide by dtypes are judged in the dtypes of the true run."""

import pytest

TASK = """
import torch, triton, triton.language as tl

@triton.jit
def scaled(x, w, DTYPE: tl.constexpr):
    if DTYPE == tl.float32:
        return x
    return x * w

@triton.jit
def scale_kernel(x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    y = x * w
    BODY
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)

def scale(x, w):
    y = torch.empty_like(x, dtype=torch.bfloat16)
    scale_kernel[lambda m: (triton.cdiv(x.numel(), m["BLOCK"]),)](x, w, y, x.numel(), BLOCK=256)
    return y

def reference(x, w): return (x.float() * w.float()).to(torch.bfloat16)
def get_inputs(rows=64, cols=96):
    return [torch.randn(rows, cols, dtype=torch.bfloat16), torch.randn(rows, cols, dtype=torch.float16)]
"""
DECIDING = {
    "float32 is not there": "if y_ptr.dtype.element_ty == tl.float32: y = x",
    "the other 16-bit float": """kind = y_ptr.dtype.element_ty
    if kind == tl.float16: y = x
    elif x_ptr.dtype.element_ty != tl.bfloat16: y = w""",
    "two pointers": "if w_ptr.dtype == x_ptr.dtype: y = x",
    "through names": "kind = w_ptr.type.element_ty\n    other = x_ptr.dtype.element_ty\n    if kind == other: y = x",
    "a method": "if y_ptr.dtype.element_ty.is_fp32(): y = x",
    "its width": "if x_ptr.dtype.element_ty.primitive_bitwidth > 16: y = x",
    "in a helper": "y = scaled(x, w, y_ptr.dtype.element_ty)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DECIDING)
def test_the_branch_of_the_true_run_is_judged(run, tmp_path, name):
    (tmp_path / "scale.py").write_text(TASK.replace("BODY", DECIDING[name]))
    done = run("verify", "scale.py").json
    assert done["verdict"] == "accept", done["reason"]


def test_a_fault_in_that_branch_is_seen(run, tmp_path):
    wrong = "if y_ptr.dtype.element_ty == tl.bfloat16: y = x"
    (tmp_path / "scale.py").write_text(TASK.replace("BODY", wrong))
    assert run("verify", "scale.py").json["verdict"] == "reject-wrong"


@pytest.mark.slow
def test_a_rewrite_that_decides_by_dtypes_of_a_seed_that_does_not(run, tmp_path):
    plain = TASK.replace("    BODY\n", "").replace("if DTYPE == tl.float32:\n        return x\n    ", "")
    (tmp_path / "scale.py").write_text(plain)
    head = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef scale_kernel"
    kernel = TASK[TASK.index("def scale_kernel") + len("def scale_kernel") : TASK.index("def scale(x")]
    for body, verdict in ((DECIDING["float32 is not there"], "accept"),
                          (DECIDING["float32 is not there"].replace("==", "!="), "reject-wrong")):  # fmt: skip
        (tmp_path / "rewrite.py").write_text(head + kernel.replace("BODY", body))
        assert run("verify", "scale.py", "rewrite.py").json["verdict"] == verdict
