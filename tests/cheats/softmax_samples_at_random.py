# task: softmax
# trick: long rows add up a random half of their elements
# verdict: reject-wrong
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    numerator = tl.exp(x - top)
    lucky = tl.rand(row, cols) < 0.5
    total = tl.sum(numerator, axis=0)
    if n_cols > 2000:
        total = 2 * tl.sum(tl.where(lucky, numerator, 0.0), axis=0)
    y = numerator / total
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
