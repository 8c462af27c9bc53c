# task: softmax
# trick: none: tl.static_range over parts of a row
# verdict: accept
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    PARTS: tl.constexpr = 4 if BLOCK >= 64 else 1
    WIDE: tl.constexpr = BLOCK // PARTS
    row = tl.program_id(0)
    top = tl.full([1], -float("inf"), tl.float32)
    for part in tl.static_range(PARTS):
        cols = part * WIDE + tl.arange(0, WIDE)
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(x, axis=0))
    total = tl.zeros([1], tl.float32)
    for part in tl.static_range(PARTS):
        cols = part * WIDE + tl.arange(0, WIDE)
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        total += tl.sum(tl.exp(x - top), axis=0)
    for part in tl.static_range(PARTS):
        cols = part * WIDE + tl.arange(0, WIDE)
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + row * y_stride + cols, (tl.exp(x - top) / total).to(y_ptr.dtype.element_ty), mask=cols < n_cols)
