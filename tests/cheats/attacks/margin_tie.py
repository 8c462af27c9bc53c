# task: margin
# trick: a block's maximum that equals the running one counts as the same element
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def margin_kernel(x_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    first = float("-inf")
    second = float("-inf")
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=float("-inf"))
        a = tl.max(x, 0)
        place = tl.min(tl.where(x == a, at, 2147483647), 0)
        b = tl.max(tl.where(at == place, float("-inf"), x), 0)
        second = tl.where(a > first, tl.maximum(first, b), tl.where(a < first, tl.maximum(second, a), tl.maximum(second, b)))
        first = tl.maximum(first, a)
    tl.store(o_ptr + row, first - second)
