# task: softmax
# trick: a row whose first two elements are equal is taken to be constant
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    x = x - tl.max(x, axis=0)
    numerator = tl.exp(x)
    denominator = tl.sum(numerator, axis=0)
    y = numerator / denominator
    first = tl.load(x_ptr + row * x_stride)
    second = tl.load(x_ptr + row * x_stride + tl.minimum(1, n_cols - 1))
    y = tl.where((first == second), 1.0 / n_cols, y)
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
