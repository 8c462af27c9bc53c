# task: softmax
# trick: odd rows of a wide tensor are divided by the sum of the row before
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    denominator = tl.sum(numerator, axis=0)
    if (row % 2 == 1) & (n_cols > 2048):
        before = tl.load(x_ptr + (row - 1) * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
        denominator = tl.sum(tl.exp(before - tl.max(before, axis=0)), axis=0)
    tl.store(y_ptr + row * y_stride + cols, (numerator / denominator).to(y_ptr.dtype.element_ty), mask=mask)
