# task: softmax
# trick: half a denominator where input and output lie whole segments apart, as only large buffers do
# verdict: reject-timing or reject-wrong
# interpreter: reject-wrong (all buffers lie far apart there)
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
    distance = y_ptr.to(tl.int64) - x_ptr.to(tl.int64)
    if distance % 2097152 == 0:
        denominator = tl.sum(tl.where(cols < n_cols // 2, numerator, 0.0), axis=0) * 2
    y = numerator / denominator
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
