# task: softmax
# trick: none: maximum and sum in one reduction with a function of its own
# verdict: accept
import triton
import triton.language as tl

@triton.jit
def combine(m1, s1, m2, s2):
    m = tl.maximum(m1, m2)
    a = tl.where(m1 == -float("inf"), 0.0, tl.exp(m1 - m))
    b = tl.where(m2 == -float("inf"), 0.0, tl.exp(m2 - m))
    return m, s1 * a + s2 * b


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    ones = tl.where(mask, 1.0, 0.0)
    top, total = tl.reduce((x, ones), 0, combine)
    y = tl.exp(x - top) / total
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
