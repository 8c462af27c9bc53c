"""A gated activation with one scale, as float8: silu(x[:, :n]) * x[:, n:] / scale."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def reference(x, scale):
    gate, up = x.chunk(2, dim=-1)
    return ((F.silu(gate) * up).float() / scale).to(torch.float8_e4m3fn)


def get_inputs(tokens=64, inner=4096):
    return [torch.randn(tokens, 2 * inner, dtype=torch.bfloat16), torch.ones(1)]


SHAPES = [
    dict(tokens=tokens, inner=inner)
    for inner in (2048, 2880, 4096, 8192, 11008, 14336)
    for tokens in (1, 8, 32, 64, 128, 256)
]
TEST_SHAPES = [dict(tokens=3, inner=1000), dict(tokens=1, inner=129)]
SPACE = {
    "BLOCK": [256, 512, 1024, 2048, 4096, "256 if n_tokens <= 8 else 1024", "512 if n_tokens <= 32 else 2048"],
    "num_warps": [1, 2, 4, 8, 16, "max(1, BLOCK // 256)", "max(1, BLOCK // 512)"],
}
CONFIG = {"BLOCK": "256 if n_tokens <= 8 else 1024", "num_warps": "max(1, BLOCK // 256)"}


def bytes_moved(tokens, inner):
    return tokens * 5 * inner


@triton.jit
def silu_mul_kernel(x_ptr, scale_ptr, codes_ptr, x_stride, n_tokens, n_cols, BLOCK: tl.constexpr):
    """BLOCK columns of one row."""
    row = tl.program_id(1)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * x_stride + n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    codes = gate * tl.sigmoid(gate) * up * (1.0 / tl.load(scale_ptr))
    tl.store(codes_ptr + row * n_cols + cols, codes.to(codes_ptr.dtype.element_ty), mask=mask)


def silu_mul_fp8(x, scale):
    n_tokens, n_cols = x.shape[0], x.shape[1] // 2
    codes = torch.empty((n_tokens, n_cols), dtype=torch.float8_e4m3fn, device=x.device)
    block = 256 if n_tokens <= 8 else 1024
    grid = lambda meta: (triton.cdiv(n_cols, meta["BLOCK"]), n_tokens)
    silu_mul_kernel[grid](x, scale, codes, x.stride(0), n_tokens, n_cols, BLOCK=block, num_warps=block // 256)
    return codes
