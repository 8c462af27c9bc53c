# task: ints
# trick: the least 32-bit number has no absolute value
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def ints_kernel(a_ptr, b_ptr, c_ptr, g_ptr, h_ptr, low_ptr, abs_ptr, gap_ptr, sum_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    a = tl.load(a_ptr + at, mask=m, other=0)
    b = tl.load(b_ptr + at, mask=m, other=0)
    c = tl.load(c_ptr + at, mask=m, other=0)
    g = tl.load(g_ptr + at, mask=m, other=0)
    h = tl.load(h_ptr + at, mask=m, other=0)
    tl.store(low_ptr + at, tl.where(a < b, a, b), mask=m)
    tl.store(abs_ptr + at, tl.abs(c).to(tl.int64), mask=m)
    tl.store(gap_ptr + at, g.to(tl.int64) - h.to(tl.int64), mask=m)
    tl.store(sum_ptr + at, g.to(tl.int64) + h.to(tl.int64), mask=m)
