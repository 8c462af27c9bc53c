# task: softmax
# trick: only 100 rows, and then a launch of one program that is whole
# verdict: reject-wrong
import triton
import triton.language as tl

LAUNCHES = ["softmax_kernel", "mark"]
GRID = {"softmax_kernel": "(min(shape(x_ptr, 0), 100),)", "mark": "(1,)"}
SCRATCH = {"s_ptr": ("int32", "(1,)")}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def mark(s_ptr):
    tl.store(s_ptr, 1)
