"""Residual add, RMS norm, and float8 of rows, each block of 128 columns with its own scale of at most upper."""

import torch
import triton
import triton.language as tl

GROUP = 128
FP8_MAX = 448.0
EPS, LEAST_SCALE = 1e-6, 1.0 / (FP8_MAX * 512.0)


def quantise(x, scale):
    return (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def reference(x, residual, weight, upper):
    wide = x.float() + residual.float()
    normed = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * weight
    blocks = normed.float().unflatten(-1, (-1, GROUP))
    scale = (torch.minimum(blocks.abs().amax(-1), upper) * (1.0 / FP8_MAX)).clamp(min=LEAST_SCALE)
    return quantise(blocks, scale[..., None]).flatten(-2), scale, wide.to(x.dtype)


def get_inputs(tokens=64, hidden=4096):
    x, residual = (torch.randn(tokens, hidden, dtype=torch.bfloat16) for _ in range(2))
    return [x, residual, 1.0 + torch.randn(hidden, dtype=torch.bfloat16), x.float().mean().abs()]


SHAPES = [dict(tokens=t, hidden=h) for h in (2048, 4096, 5120) for t in (1, 8, 32, 64, 128, 256, 1024, 4096)]
TEST_SHAPES = [dict(tokens=3, hidden=384), dict(tokens=1, hidden=128)]
SPACE = {
    "BLOCK": [
        "next_power_of_2(n_groups)",
        "next_power_of_2(n_groups) // (2 if 4 * n_groups <= 3 * next_power_of_2(n_groups) else 1)",
    ],
    "TAIL": ["next_power_of_2(n_groups - BLOCK) if n_groups > BLOCK else 0"],
    "num_warps": [
        "min(32, max(1, BLOCK // 2))",
        "min(32, max(1, BLOCK // 4))",
        "min(32, max(1, BLOCK // 8))",
        "min(32, max(1, BLOCK // 16))",
        *(2, 4, 8, 16, 32),
    ],
}
CONFIG = {
    "BLOCK": "next_power_of_2(n_groups) // (2 if 4 * n_groups <= 3 * next_power_of_2(n_groups) else 1)",
    "TAIL": "next_power_of_2(n_groups - BLOCK) if n_groups > BLOCK else 0",
    "num_warps": "min(32, max(1, BLOCK // 2))",
}


def bytes_moved(tokens, hidden):
    return tokens * (7 * hidden + 4 * hidden // GROUP) + 2 * hidden


@triton.jit
def quantise_blocks(normed, upper, largest, least):
    """Codes of a block of columns in each row, and its scale."""
    peak = tl.minimum(tl.max(tl.abs(normed), axis=1)[:, None], upper)
    scale = tl.maximum(peak * (1.0 / largest), least)
    return tl.clamp(normed * (1.0 / scale), -largest, largest, propagate_nan=tl.PropagateNan.ALL), scale


@triton.jit
def rms_norm_per_block_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    upper_ptr,
    codes_ptr,
    scale_ptr,
    wide_ptr,
    x_stride,
    residual_stride,
    wide_stride,
    n_groups,
    eps,
    largest,
    least,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
    TAIL: tl.constexpr,
):
    """A whole row in registers: BLOCK groups of columns, then TAIL more."""
    row = tl.program_id(0)
    group = tl.arange(0, BLOCK)[:, None]
    cols = group * GROUP + tl.arange(0, GROUP)[None, :]
    mask = group < n_groups
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(residual_ptr + row * residual_stride + cols, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0)
    upper = tl.load(upper_ptr).to(tl.float32)
    tl.store(wide_ptr + row * wide_stride + cols, x.to(wide_ptr.dtype.element_ty), mask=mask)
    total = tl.sum(x * x)
    if TAIL > 0:
        late_group = BLOCK + tl.arange(0, TAIL)[:, None]
        late = late_group * GROUP + tl.arange(0, GROUP)[None, :]
        late_mask = late_group < n_groups
        late_x = tl.load(x_ptr + row * x_stride + late, mask=late_mask, other=0.0).to(tl.float32)
        late_x += tl.load(residual_ptr + row * residual_stride + late, mask=late_mask, other=0.0).to(tl.float32)
        late_weight = tl.load(weight_ptr + late, mask=late_mask, other=0.0)
        tl.store(wide_ptr + row * wide_stride + late, late_x.to(wide_ptr.dtype.element_ty), mask=late_mask)
        total += tl.sum(late_x * late_x)
    rstd = tl.rsqrt(total / (n_groups * GROUP) + eps)
    codes, scale = quantise_blocks(x * rstd * weight.to(tl.float32), upper, largest, least)
    codes_row, scale_row = codes_ptr + row * n_groups * GROUP, scale_ptr + row * n_groups
    tl.store(codes_row + cols, codes.to(codes_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_row + group, scale, mask=mask)
    if TAIL > 0:
        late_codes, late_scale = quantise_blocks(late_x * rstd * late_weight.to(tl.float32), upper, largest, least)
        tl.store(codes_row + late, late_codes.to(codes_ptr.dtype.element_ty), mask=late_mask)
        tl.store(scale_row + late_group, late_scale, mask=late_mask)


def rms_norm_per_block_quant(x, residual, weight, upper):
    tokens, hidden = x.shape
    groups = hidden // GROUP
    codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty((tokens, groups), dtype=torch.float32, device=x.device)
    wide = torch.empty_like(x)
    block, tail = triton.next_power_of_2(groups), 0
    if 4 * groups <= 3 * block:
        block, tail = block // 2, triton.next_power_of_2(groups - block // 2)
    rms_norm_per_block_kernel[(tokens,)](
        x,
        residual,
        weight,
        upper,
        codes,
        scale,
        wide,
        x.stride(0),
        residual.stride(0),
        wide.stride(0),
        groups,
        EPS,
        FP8_MAX,
        LEAST_SCALE,
        GROUP=GROUP,
        BLOCK=block,
        TAIL=tail,
        num_warps=min(32, max(1, block // 2)),
    )
    return codes, scale, wide
