# task: softmax
# trick: which elements are added up hangs on a bit of the address
# verdict: reject-wrong or reject-race
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
    bit = (x_ptr.to(tl.int64) // 65536) % 2
    denominator = tl.sum(tl.where(cols < n_cols - bit, numerator, 0.0), axis=0)
    y = numerator / denominator
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
