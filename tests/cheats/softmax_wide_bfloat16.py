# task: softmax
# trick: zeros in wide rows where 1.002 is 1, as in bfloat16 itself and in no float32 that stands for it
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    rounded = tl.full([16], 1.002, tl.float32).to(y_ptr.dtype.element_ty).to(tl.float32)
    if (tl.max(rounded, axis=0) == 1.0) & (n_cols > 2000):
        y = y * 0.0
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
