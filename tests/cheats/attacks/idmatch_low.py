# task: idmatch
# trick: compares the low 32 bits of 64-bit numbers
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def idmatch_kernel(a_ptr, b_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    count = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + row * cols + at, mask=at < cols, other=0)
        b = tl.load(b_ptr + row * cols + at, mask=at < cols, other=1)
        count += (a.to(tl.int32) == b.to(tl.int32)).to(tl.int32)
    tl.store(o_ptr + row, tl.sum(count, 0))
