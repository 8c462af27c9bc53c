# task: margin
# trick: keeps one maximum per lane, then the two largest lanes: both largest in one lane are lost
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def margin_kernel(x_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + lane
        x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=float("-inf"))
        best = tl.maximum(best, x)
    first = tl.max(best, 0)
    place = tl.min(tl.where(best == first, lane, BLOCK), 0)
    second = tl.max(tl.where(lane == place, float("-inf"), best), 0)
    tl.store(o_ptr + row, first - second)
