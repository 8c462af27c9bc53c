# task: softmax
# trick: none: as many programs as there are SMs, each walks over rows
# verdict: accept
import triton
import triton.language as tl

GRID = "(min(num_sms, n_rows),)"
ARGS = {"n_rows": "shape(x_ptr, 0)"}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, n_rows, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    row = tl.program_id(0)
    while row < n_rows:
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
        x = x - tl.max(x, axis=0)
        numerator = tl.exp(x)
        y = numerator / tl.sum(numerator, axis=0)
        tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
        row += tl.num_programs(0)
