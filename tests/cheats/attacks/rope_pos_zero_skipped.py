# task: rope
# trick: a rare index (position 0) is not rotated
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def rope_kernel(q_ptr, cos_ptr, sin_ptr, pos_ptr, heads, HALF: tl.constexpr):
    t = tl.program_id(0)
    h = tl.program_id(1)
    pos = tl.load(pos_ptr + t)
    if pos == 0:
        return
    i = tl.arange(0, HALF)
    c = tl.load(cos_ptr + pos * HALF + i)
    s = tl.load(sin_ptr + pos * HALF + i)
    base = q_ptr + (t * heads + h) * 2 * HALF
    a = tl.load(base + i).to(tl.float32)
    b = tl.load(base + HALF + i).to(tl.float32)
    tl.store(base + i, a * c - b * s)
    tl.store(base + HALF + i, b * c + a * s)
