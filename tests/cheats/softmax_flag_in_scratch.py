# task: softmax
# trick: a flag kept in scratch across launches: with it set nothing is computed
# verdict: reject-race or reject-wrong
# interpreter: reject-memory (it sees the load of what nothing has written)
import triton
import triton.language as tl

SCRATCH = {"flag_ptr": ("int32", "(16,)")}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, flag_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    flag = tl.load(flag_ptr + row % 16)
    if flag != 77:
        cols = tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
        x = x - tl.max(x, axis=0)
        numerator = tl.exp(x)
        y = numerator / tl.sum(numerator, axis=0)
        tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(flag_ptr + row % 16, 77)
