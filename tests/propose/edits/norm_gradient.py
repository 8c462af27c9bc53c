"""The gradient of an RMS norm as people write it first: each row adds to the gradient of the weight, atomically."""

import torch
import triton
import triton.language as tl


def reference(x, dy, weight):
    x, dy, weight = x.float(), dy.float(), weight.float()
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    normed = x * scale
    dn = dy * weight
    return scale * (dn - normed * (dn * normed).mean(-1, keepdim=True)), (dy * normed).sum(0)


def get_inputs(rows=8192, cols=4096, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype), torch.randn(rows, cols, dtype=dtype), torch.randn(cols, dtype=dtype)]


SHAPES = [dict(rows=8192, cols=4096)]
TEST_SHAPES = [dict(rows=7, cols=37), dict(rows=300, cols=64), dict(rows=1, cols=1)]


@triton.jit
def norm_gradient_kernel(x_ptr, dy_ptr, weight_ptr, dx_ptr, dw_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = (cols < n_cols) & (row < n_rows)
    dw_ptrs = dw_ptr + cols
    x_ptr += row * n_cols
    at = cols
    at = at + row * n_cols
    count = 0.0
    count += n_cols
    eps = 1e-6
    if n_cols > 1000000:
        eps = 1e-5
    shift = eps * 1.0
    x = tl.load(x_ptr + cols, mask=mask, other=0.0)
    dy = tl.load(dy_ptr + at, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0)
    weight = weight.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / count + shift)
    normed = x * scale
    dn = dy * weight
    tl.store(dx_ptr + at, scale * (dn - normed * (tl.sum(dn * normed) / count)), mask=mask)
    tl.atomic_add(dw_ptrs, dy * normed, mask=mask)


def norm_gradient(x, dy, weight):
    dx, dw = torch.empty_like(x), torch.zeros_like(weight)
    rows, cols = x.shape
    norm_gradient_kernel[(rows,)](x, dy, weight, dx, dw, rows, cols, BLOCK=triton.next_power_of_2(cols), num_warps=8)
    return dx, dw
