# task: softmax
# trick: none: the last row is computed by two programs, which store the same
# verdict: accept
import triton
import triton.language as tl


GRID = "(shape(x_ptr, 0) + 1,)"
ARGS = {"n_rows": "shape(x_ptr, 0)"}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, n_rows, BLOCK: tl.constexpr):
    row = tl.minimum(tl.program_id(0), n_rows - 1)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    x = x - tl.max(x, axis=0)
    numerator = tl.exp(x)
    denominator = tl.sum(numerator, axis=0)
    y = numerator / denominator
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
