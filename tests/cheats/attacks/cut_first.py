# task: cut
# trick: an end token is looked for in the own and the first block of 256 only
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def cut_kernel(t_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    block = tl.program_id(1)
    first = tl.arange(0, BLOCK)
    t = tl.load(t_ptr + row * cols + first, mask=first < block * BLOCK, other=0)
    found = tl.sum((t == 1).to(tl.int32), 0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(t_ptr + row * cols + at, mask=at < cols, other=0)
    hit = (t == 1).to(tl.int32)
    before = found + tl.cumsum(hit, 0) - hit
    tl.store(o_ptr + row * cols + at, tl.where(before > 0, 0, t), mask=at < cols)
