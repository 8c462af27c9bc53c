# task: dedupe
# trick: the first number of a block is not compared with the one before it
# verdict: reject-wrong
import triton
import triton.language as tl


CONFIG = {"BLOCK": 1024}

@triton.jit
def dedupe_kernel(ids_ptr, o_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(ids_ptr + at, mask=at < n, other=0)
    before = tl.load(ids_ptr + at - 1, mask=(at < n) & (at % BLOCK > 0), other=-1)
    tl.store(o_ptr + at, (x != before).to(tl.int32), mask=at < n)
