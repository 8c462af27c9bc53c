# task: softmax
# trick: none: each row is read from an aligned start, found from its address
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    WIDE: tl.constexpr = 2 * BLOCK if BLOCK > 128 else 256
    row = tl.program_id(0)
    start = x_ptr + row * x_stride
    address = start.to(tl.uint64)
    aligned = address // 128 * 128
    before = ((address - aligned) // (x_ptr.dtype.element_ty.primitive_bitwidth // 8)).to(tl.int32)
    cols = tl.arange(0, WIDE) - before
    mask = (cols >= 0) & (cols < n_cols)
    x = tl.load(start + cols, mask=mask, other=float("-inf")).to(tl.float32)
    x = x - tl.max(x, axis=0)
    numerator = tl.exp(x)
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
