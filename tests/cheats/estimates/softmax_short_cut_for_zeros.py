# task: softmax
# trick: a row of one value needs no exponentials, and while programs are counted all rows hold zeros
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    if tl.min(tl.where(mask, x, top), axis=0) == top:
        tl.store(y_ptr + row * y_stride + cols, (cols * 0 + 1.0 / n_cols).to(y_ptr.dtype.element_ty), mask=mask)
    else:
        numerator = tl.exp(x - top)
        y = numerator / tl.sum(numerator, axis=0)
        tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
