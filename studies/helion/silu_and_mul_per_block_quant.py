"""A gated activation, and float8 of its rows, each block of 128 columns with its own scale."""

import torch
import triton
import triton.language as tl

GROUP = 128
FP8_MAX = 448.0
LEAST_SCALE = 1.0 / (FP8_MAX * 512.0)


def quantise(x, scale):
    return (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def reference(x):
    gate, up = x.float().chunk(2, dim=-1)
    blocks = (gate * torch.sigmoid(gate) * up).unflatten(-1, (-1, GROUP))
    scale = (blocks.abs().amax(-1) * (1.0 / FP8_MAX)).clamp(min=LEAST_SCALE)
    return quantise(blocks, scale[..., None]).flatten(-2), scale


def get_inputs(tokens=64, inner=6144):
    return [torch.randn(tokens, 2 * inner, dtype=torch.bfloat16)]


SHAPES = [dict(tokens=t, inner=i) for i in (6144, 12288, 25600) for t in (1, 8, 32, 64, 128, 256, 1024, 4096)]
TEST_SHAPES = [dict(tokens=3, inner=384), dict(tokens=1, inner=128)]
SPACE = {
    "GROUPS": [1, 2, 4, 8, 16, 32, 64, "2 if n_groups <= 2048 else 16", "4 if n_groups <= 4096 else 32"],
    "num_warps": [1, 2, 4, 8, "max(1, GROUPS // 2)", "max(1, GROUPS // 4)", "max(1, GROUPS // 8)"],
}
CONFIG = {"GROUPS": "4 if n_groups <= 4096 else 32", "num_warps": "max(1, GROUPS // 4)"}


def bytes_moved(tokens, inner):
    return tokens * (5 * inner + 4 * inner // GROUP)


@triton.jit
def silu_and_mul_per_block_kernel(
    x_ptr,
    codes_ptr,
    scale_ptr,
    x_stride,
    n_groups,
    row_groups,
    largest,
    least,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """GROUPS blocks of columns, counted over all rows."""
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)[:, None]
    cols = tl.arange(0, GROUP)[None, :]
    mask = group < n_groups
    at = group // row_groups * x_stride + group % row_groups * GROUP + cols
    gate = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row_groups * GROUP + at, mask=mask, other=0.0).to(tl.float32)
    y = gate * tl.sigmoid(gate) * up
    scale = tl.maximum(tl.max(tl.abs(y), axis=1)[:, None] * (1.0 / largest), least)
    codes = tl.clamp(y * (1.0 / scale), -largest, largest, propagate_nan=tl.PropagateNan.ALL)
    tl.store(codes_ptr + group * GROUP + cols, codes.to(codes_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_ptr + group, scale, mask=mask)


def silu_and_mul_per_block_quant(x):
    tokens, inner = x.shape[0], x.shape[1] // 2
    row_groups = inner // GROUP
    n_groups = tokens * row_groups
    codes = torch.empty((tokens, inner), dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty((tokens, row_groups), dtype=torch.float32, device=x.device)
    groups = 4 if n_groups <= 4096 else 32
    grid = lambda meta: (triton.cdiv(n_groups, meta["GROUPS"]),)
    silu_and_mul_per_block_kernel[grid](
        x,
        codes,
        scale,
        x.stride(0),
        n_groups,
        row_groups,
        FP8_MAX,
        LEAST_SCALE,
        GROUP=GROUP,
        GROUPS=groups,
        num_warps=groups // 4,
    )
    return codes, scale
