# task: softmax
# trick: none: block pointers pad with zeros, tl.where puts the infinities
# verdict: accept
# needs: block pointers
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    src = tl.make_block_ptr(x_ptr + row * x_stride, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))
    dst = tl.make_block_ptr(y_ptr + row * y_stride, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))
    x = tl.load(src, boundary_check=(0,), padding_option="zero").to(tl.float32)
    x = tl.where(tl.arange(0, BLOCK) < n_cols, x, -float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(dst, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
