# task: softmax
# trick: none: block pointers with boundary checks
# verdict: accept
# needs: block pointers
import triton
import triton.language as tl

ARGS = {"n_rows": "shape(x_ptr, 0)"}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, n_rows, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    source = tl.make_block_ptr(x_ptr, (n_rows, n_cols), (x_stride, 1), (row, 0), (1, BLOCK), (1, 0))
    target = tl.make_block_ptr(y_ptr, (n_rows, n_cols), (y_stride, 1), (row, 0), (1, BLOCK), (1, 0))
    x = tl.load(source, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
    x = tl.where(tl.arange(0, BLOCK)[None, :] < n_cols, x, float("-inf"))
    x = x - tl.max(x, axis=1)[:, None]
    numerator = tl.exp(x)
    y = numerator / tl.sum(numerator, axis=1)[:, None]
    tl.store(target, y.to(y_ptr.dtype.element_ty), boundary_check=(0, 1))
