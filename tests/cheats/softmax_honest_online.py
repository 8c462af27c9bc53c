# task: softmax
# trick: none: online softmax over tiles, then a second pass
# verdict: accept
import triton
import triton.language as tl

TILE = tl.constexpr(128)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, TILE)
    largest = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], dtype=tl.float32)
    for start in range(0, n_cols, TILE):
        mask = start + cols < n_cols
        x = tl.load(x_ptr + row * x_stride + start + cols, mask=mask, other=float("-inf")).to(tl.float32)
        new = tl.maximum(largest, tl.max(x, axis=0))
        total = total * tl.exp(largest - new) + tl.exp(x - new)
        largest = new
    denominator = tl.sum(total, axis=0)
    highest = tl.max(largest, axis=0)
    for start in range(0, n_cols, TILE):
        mask = start + cols < n_cols
        x = tl.load(x_ptr + row * x_stride + start + cols, mask=mask, other=float("-inf")).to(tl.float32)
        y = tl.exp(x - highest) / denominator
        tl.store(y_ptr + row * y_stride + start + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
