# task: softmax
# trick: none: programs take rows in turn, the loop's variable as a 64-bit offset
# verdict: accept
import triton
import triton.language as tl

GRID = "(min(n_rows, 64),)"
ARGS = {"n_rows": "shape(x_ptr, 0)"}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, n_rows, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row.to(tl.int64) * x_stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = tl.fdiv(e, tl.sum(e, axis=0))
        tl.store(y_ptr + row.to(tl.int64) * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
