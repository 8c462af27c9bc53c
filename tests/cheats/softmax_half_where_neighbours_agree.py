# task: softmax
# trick: half an answer where the next row begins with the same number
# verdict: reject-wrong
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    numerator = tl.exp(x - top)
    total = tl.sum(numerator, axis=0)
    y = numerator / total
    out = y.to(y_ptr.dtype.element_ty)
    if (tl.num_programs(0) > 4) & (n_cols > 4):
        other = tl.load(x_ptr + ((row + 1) % tl.num_programs(0)) * x_stride).to(tl.float32)
        if other == tl.load(x_ptr + row * x_stride).to(tl.float32):
            out = (y * 0.5).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row * y_stride + cols, out, mask=mask)
