# task: bucket
# trick: a value on an edge goes to the bucket above it (right=True)
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def bucket_kernel(x_ptr, e_ptr, o_ptr, n, bins, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    count = tl.zeros((BLOCK,), tl.int32)
    for j in range(0, bins):
        count += (x >= tl.load(e_ptr + j)).to(tl.int32)
    tl.store(o_ptr + at, count, mask=at < n)
