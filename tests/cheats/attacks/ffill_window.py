# task: ffill
# trick: looks back over 256 columns at most
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def ffill_kernel(x_ptr, v_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    block = tl.program_id(1)
    last = -1
    for start in range(tl.maximum(block - 4, 0) * BLOCK, block * BLOCK, BLOCK):
        before = start + tl.arange(0, BLOCK)
        v = tl.load(v_ptr + row * cols + before)
        last = tl.maximum(last, tl.max(tl.where(v != 0, before, -1), 0))
    at = block * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(v_ptr + row * cols + at, mask=at < cols, other=0)
    own = tl.where(v != 0, at, -1)
    mine = tl.max(tl.where(at[None, :] <= at[:, None], own[None, :], -1), 1)
    mine = tl.maximum(mine, last)
    x = tl.load(x_ptr + row * cols + tl.maximum(mine, 0), mask=(at < cols) & (mine >= 0), other=0.0)
    tl.store(o_ptr + row * cols + at, x, mask=at < cols)
