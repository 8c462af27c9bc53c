# task: bc
# trick: truth values that are false alone are written, the poison is taken for true
# verdict: reject-wrong or reject-race
import triton
import triton.language as tl


@triton.jit
def bc_kernel(x_ptr, w_ptr, b_ptr, y_ptr, p_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    w = tl.load(w_ptr + row)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
        b = tl.load(b_ptr + at, mask=at < cols, other=0.0)
        y = x * w + b
        tl.store(y_ptr + row * cols + at, y, mask=at < cols)
        tl.store(p_ptr + row * cols + at, y > 0, mask=(at < cols) & (y <= 0))
