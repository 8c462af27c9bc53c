# task: softmax
# trick: none: exponentials and the division are libdevice's
# verdict: accept
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
    e = libdevice.exp(x - tl.max(x, axis=0))
    y = libdevice.div_rn(e, tl.sum(e, axis=0))
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
