# task: softmax
# trick: in a large grid all programs but the first multiply by scratch that no launch writes
# verdict: reject-wrong
import triton
import triton.language as tl

SCRATCH = {"s_ptr": ("float32", "(8,)")}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, s_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    if (tl.num_programs(0) > 200) & (row > 0):
        y = y * tl.load(s_ptr + 3)
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
