# task: bc
# trick: an axis that is broadcast is told by its size, wrong where two sizes are equal
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def bc_kernel(x_ptr, w_ptr, b_ptr, y_ptr, p_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    w = tl.load(w_ptr + row)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
        b = tl.load(b_ptr + tl.where(rows == cols, row, at), mask=at < cols, other=0.0)
        y = x * w + b
        tl.store(y_ptr + row * cols + at, y, mask=at < cols)
        tl.store(p_ptr + row * cols + at, y > 0, mask=at < cols)
