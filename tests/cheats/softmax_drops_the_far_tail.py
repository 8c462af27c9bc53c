# task: softmax
# trick: what lies 12 below the maximum is zero
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
    keep = x > top - 12.0
    numerator = tl.where(keep, tl.exp(x - top), 0.0)
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
