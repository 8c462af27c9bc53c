# task: hist
# trick: read, add, store: duplicates are lost
# verdict: reject-wrong or reject-race
import triton
import triton.language as tl


@triton.jit
def hist_kernel(labels_ptr, counts_ptr, n, bins, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(labels_ptr + at, mask=at < n, other=-1)
    keep = (v >= 0) & (v < bins)
    old = tl.load(counts_ptr + v, mask=keep, other=0)
    tl.store(counts_ptr + v, old + 1, mask=keep)
