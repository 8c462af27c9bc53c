# task: segment_mean
# trick: an empty segment gives 0/0
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def segment_mean_kernel(x_ptr, off_ptr, out_ptr, dim, BLOCK: tl.constexpr):
    seg = tl.program_id(0)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(off_ptr + seg)
    b = tl.load(off_ptr + seg + 1)
    acc = tl.zeros([BLOCK], tl.float32)
    for r in range(a, b):
        acc += tl.load(x_ptr + r * dim + d, mask=d < dim, other=0.0)
    count = b - a
    tl.store(out_ptr + seg * dim + d, acc / count, mask=d < dim)
