# task: layernorm
# trick: none: Welford's merge in one tl.reduce over (mean, m2, count)
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def merge(mean1, m1, n1, mean2, m2, n2):
    n = n1 + n2
    delta = mean2 - mean1
    share = tl.where(n == 0.0, 0.0, n2 / n)
    return mean1 + delta * share, m1 + m2 + delta * delta * n1 * share, n


@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, x_stride, y_stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    ones = tl.where(mask, 1.0, 0.0)
    mean, m2, count = tl.reduce((x, x * 0.0, ones), 0, merge)
    rstd = tl.rsqrt(m2 / n_cols + eps)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = (x - mean) * rstd * weight + bias
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
