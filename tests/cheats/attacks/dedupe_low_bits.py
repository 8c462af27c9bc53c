# task: dedupe
# trick: only the low bits are compared
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def dedupe_kernel(ids_ptr, o_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(ids_ptr + at, mask=at < n, other=0)
    before = tl.load(ids_ptr + at - 1, mask=(at < n) & (at > 0), other=-1)
    tl.store(o_ptr + at, ((x.to(tl.int32) != before.to(tl.int32)) | (at == 0)).to(tl.int32), mask=at < n)
