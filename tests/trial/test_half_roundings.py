"""Roundings to 16 bits get one verdict with and without a GPU, and weights in 16 bits are judged as they are."""

import pytest

TASK = """
import torch, triton, triton.language as tl

WEIGHT = torch.randn(32, 32, generator=torch.Generator().manual_seed(1)).bfloat16()

def reference(x, w, scale):
    REFERENCE

def get_inputs(rows=64, dtype=torch.bfloat16):
    return [torch.randn(rows, 32, dtype=dtype), torch.randn(32, 32, dtype=dtype), torch.rand(32)]

TEST_SHAPES = [dict(rows=5)]

@triton.jit
def product_kernel(x_ptr, w_ptr, scale_ptr, y_ptr, rows, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, 32)
    x = tl.load(x_ptr + r[:, None] * 32 + c[None, :], mask=r[:, None] < rows, other=0.0)
    w = tl.load(w_ptr + c[:, None] * 32 + c[None, :]).to(tl.float32) * tl.load(scale_ptr + c)[:, None]
    y = tl.dot(x, w.to(x.dtype))
    tl.store(y_ptr + r[:, None] * 32 + c[None, :], y, mask=r[:, None] < rows)

def product(x, w, scale):
    y = torch.empty(x.shape, device=x.device, dtype=torch.float32)
    product_kernel[(triton.cdiv(x.shape[0], 16),)](x, WEIGHTS, scale, y, x.shape[0], BLOCK=16)
    return y
"""
REFERENCES = {
    "float32": ("return x.float() @ (w.float() * scale[:, None])", "w", "reject-wrong"),
    "as the kernel": ("return x.float() @ (w.float() * scale[:, None]).to(x.dtype).float()", "w", "accept"),
    "own weight": (
        "return (x @ torch.zeros_like(WEIGHT)).float() + x.float() @ (WEIGHT * scale[:, None]).bfloat16().float()",
        "WEIGHT",
        "accept",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", REFERENCES)
def test_a_rounding_of_an_operand_is_judged_without_a_gpu_as_with_one(run, tmp_path, kind):
    reference, weights, word = REFERENCES[kind]
    (tmp_path / "product.py").write_text(TASK.replace("REFERENCE", reference).replace("WEIGHTS", weights))
    done = run("verify", "product.py").json
    assert done["verdict"] == word, done
    if word != "accept":
        (cure,) = [note for note in done["detail"]["notes"] if "float32" in note]
        assert "let the reference round there too" in cure and "TOLERANCE" not in cure
