"""RMS norm and float8 of rows, each with its own scale."""

import torch
import triton
import triton.language as tl

FP8_MAX = 448.0
EPS, LEAST_SCALE = 1e-6, 1.0 / (FP8_MAX * 512.0)


def quantise(x, scale):
    return (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def reference(x, weight):
    wide = x.float()
    normed = ((wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * weight).float()
    scale = (normed.abs().amax(-1, keepdim=True) * (1.0 / FP8_MAX)).clamp(min=LEAST_SCALE)
    return quantise(normed, scale), scale


def get_inputs(tokens=64, hidden=4096):
    return [torch.randn(tokens, hidden, dtype=torch.bfloat16), 1.0 + torch.randn(hidden, dtype=torch.bfloat16)]


TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
SHAPES = [dict(tokens=tokens, hidden=hidden) for hidden in (2048, 4096, 5120) for tokens in TOKENS]
TEST_SHAPES = [dict(tokens=3, hidden=1000), dict(tokens=1, hidden=129)]
SPACE = {
    "BLOCK": [
        "next_power_of_2(n_cols)",
        "next_power_of_2(n_cols) // (2 if n_cols > 1024 and 4 * n_cols <= 3 * next_power_of_2(n_cols) else 1)",
    ],
    "TAIL": ["next_power_of_2(n_cols - BLOCK) if n_cols > BLOCK else 0"],
    "ROWS": [1, 2, 4],
    "num_warps": [
        "min(32, max(1, ROWS * BLOCK // 256))",
        "min(32, max(1, ROWS * BLOCK // 512))",
        "min(32, max(1, ROWS * BLOCK // 1024))",
        *(2, 4, 8, 16, 32),
    ],
}
CONFIG = {
    "BLOCK": "next_power_of_2(n_cols) // (2 if n_cols > 1024 and 4 * n_cols <= 3 * next_power_of_2(n_cols) else 1)",
    "TAIL": "next_power_of_2(n_cols - BLOCK) if n_cols > BLOCK else 0",
    "ROWS": 1,
    "num_warps": "min(32, max(1, ROWS * BLOCK // 512))",
}


def bytes_moved(tokens, hidden):
    return tokens * (3 * hidden + 4) + 2 * hidden


@triton.jit
def sum_rows(x, ROWS: tl.constexpr):
    """The sum of each row; of a single one a number, which tiles of any layout take as it is."""
    total = tl.sum(x, axis=1)
    return tl.sum(total, axis=0) if ROWS == 1 else total[:, None]


@triton.jit
def max_rows(x, ROWS: tl.constexpr):
    """The largest of each row; of a single one a number, which tiles of any layout take as it is."""
    peak = tl.max(x, axis=1)
    return tl.max(peak, axis=0) if ROWS == 1 else peak[:, None]


@triton.jit
def rms_norm_dynamic_per_token_kernel(
    x_ptr,
    weight_ptr,
    codes_ptr,
    scale_ptr,
    x_stride,
    n_tokens,
    n_cols,
    eps,
    largest,
    least,
    BLOCK: tl.constexpr,
    TAIL: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Whole rows in registers: BLOCK columns, then TAIL more."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < n_tokens) & (cols < n_cols)
    x = tl.load(x_ptr + rows * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0)
    total = sum_rows(x * x, ROWS)
    x = x * weight.to(tl.float32)
    peak = max_rows(tl.abs(x), ROWS)
    if TAIL > 0:
        late = BLOCK + tl.arange(0, TAIL)[None, :]
        late_mask = (rows < n_tokens) & (late < n_cols)
        late_x = tl.load(x_ptr + rows * x_stride + late, mask=late_mask, other=0.0).to(tl.float32)
        late_weight = tl.load(weight_ptr + late, mask=late < n_cols, other=0.0)
        total += sum_rows(late_x * late_x, ROWS)
        late_x = late_x * late_weight.to(tl.float32)
        peak = tl.maximum(peak, max_rows(tl.abs(late_x), ROWS))
    rstd = tl.rsqrt(total / n_cols + eps)
    scale = tl.maximum(peak * rstd * (1.0 / largest), least)
    factor = rstd / scale
    codes = tl.clamp(x * factor, -largest, largest, propagate_nan=tl.PropagateNan.ALL)
    tl.store(codes_ptr + rows * n_cols + cols, codes.to(codes_ptr.dtype.element_ty), mask=mask)
    if TAIL > 0:
        late_codes = tl.clamp(late_x * factor, -largest, largest, propagate_nan=tl.PropagateNan.ALL)
        tl.store(codes_ptr + rows * n_cols + late, late_codes.to(codes_ptr.dtype.element_ty), mask=late_mask)
    tl.store(scale_ptr + rows, scale, mask=rows < n_tokens)


def split_columns(n_cols):
    """The columns as a power of two and a smaller one, where they need fewer registers than one larger."""
    block = triton.next_power_of_2(n_cols)
    if n_cols > 1024 and 4 * n_cols <= 3 * block:
        return block // 2, triton.next_power_of_2(n_cols - block // 2)
    return block, 0


def rms_norm_dynamic_per_token_quant(x, weight):
    n_tokens, n_cols = x.shape
    codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty((n_tokens, 1), dtype=torch.float32, device=x.device)
    block, tail = split_columns(n_cols)
    grid = lambda meta: (triton.cdiv(n_tokens, meta["ROWS"]),)
    rms_norm_dynamic_per_token_kernel[grid](
        x,
        weight,
        codes,
        scale,
        x.stride(0),
        n_tokens,
        n_cols,
        EPS,
        FP8_MAX,
        LEAST_SCALE,
        BLOCK=block,
        TAIL=tail,
        ROWS=1,
        num_warps=min(32, max(1, block // 512)),
    )
    return codes, scale
