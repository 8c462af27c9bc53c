# task: softmax
# trick: none: the sum is the end of an associative scan
# verdict: accept
import triton
import triton.language as tl

@triton.jit
def add(a, b):
    return a + b


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    running = tl.associative_scan(numerator, 0, add)
    total = tl.max(running, axis=0)
    y = numerator / total
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
