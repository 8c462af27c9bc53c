# task: lse
# trick: NaN where the first block of a row is all -inf
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def lse_kernel(x_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = float("-inf")
    s = 0.0
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=float("-inf"))
        new = tl.maximum(m, tl.max(x, 0))
        safe = new
        s = s * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), 0)
        m = new
    tl.store(o_ptr + row, m + tl.log(s))
