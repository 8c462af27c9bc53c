# task: softmax
# trick: none: maximum, sum and result in three passes over tiles
# verdict: accept
import triton
import triton.language as tl

TILE = tl.constexpr(256)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, TILE)
    largest = -float("inf")
    for start in range(0, n_cols, TILE):
        cols = start + offsets
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(largest, tl.max(x, axis=0))
    total = 0.0
    for start in range(0, n_cols, TILE):
        cols = start + offsets
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        total += tl.sum(tl.exp(x - largest), axis=0)
    for start in range(0, n_cols, TILE):
        cols = start + offsets
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        y = tl.exp(x - largest) / total
        tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
