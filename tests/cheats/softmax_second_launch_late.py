# task: softmax
# trick: statistics and scaling in two launches, half a denominator where there are many rows
# verdict: reject-wrong
import triton
import triton.language as tl

SCRATCH = {"m_ptr": ("float32", "(grid(0),)"), "s_ptr": ("float32", "(grid(0),)")}
LAUNCHES = ["stats", "scale"]


@triton.jit
def stats(x_ptr, m_ptr, s_ptr, x_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    e = tl.exp(x - m)
    if (tl.num_programs(0) > 2000) & (n_cols > 1):
        e = tl.where(cols < n_cols // 2, e * 2, 0.0)
    tl.store(m_ptr + row, m)
    tl.store(s_ptr + row, tl.sum(e, axis=0))


@triton.jit
def scale(x_ptr, y_ptr, m_ptr, s_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    y = tl.exp(x - tl.load(m_ptr + row)) / tl.load(s_ptr + row)
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
