# task: agree
# trick: the tolerance is relative to the larger of both
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def agree_kernel(a_ptr, b_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    count = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + row * cols + at, mask=at < cols, other=1.0)
        b = tl.load(b_ptr + row * cols + at, mask=at < cols, other=0.0)
        count += (tl.abs(a - b) <= 0.001 * tl.maximum(tl.abs(a), tl.abs(b))).to(tl.int32)
    tl.store(o_ptr + row, tl.sum(count, 0))
