# task: softmax
# trick: none: one tl.reduce over (max, sum) pairs with a helper that merges them
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def merge(m1, s1, m2, s2):
    m = tl.maximum(m1, m2)
    low = m == float("-inf")
    return m, tl.where(low, 0.0, s1 * tl.exp(m1 - m) + s2 * tl.exp(m2 - m))


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    ones = tl.where(mask, 1.0, 0.0)
    largest, total = tl.reduce((x, ones), 0, merge)
    y = tl.exp(x - largest) / total
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
