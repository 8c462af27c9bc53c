# task: cross_entropy
# trick: columns beyond 143360 are left out
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(logits_ptr, labels_ptr, losses_ptr, row_stride, vocabulary, LANES: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr):
    row = tl.program_id(0)
    logits_row = logits_ptr + row.to(tl.int64) * row_stride
    target = tl.load(logits_row + tl.load(labels_ptr + row)).to(tl.float32)
    lanes = tl.arange(0, STEPS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    peaks = tl.full([LANES], -3.4e38, dtype=tl.float32)
    totals = tl.zeros([LANES], dtype=tl.float32)
    for start in tl.range(0, tl.minimum(vocabulary, 143360), STEPS * LANES, num_stages=STAGES):
        cols = start + lanes
        x = tl.load(logits_row + cols, mask=cols < vocabulary, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peaks, tl.max(x, axis=0))
        totals = totals * tl.exp(peaks - higher) + tl.sum(tl.exp(x - higher[None, :]), axis=0)
        peaks = higher
    peak = tl.max(peaks, axis=0)
    total = tl.sum(totals * tl.exp(peaks - peak), axis=0)
    tl.store(losses_ptr + row, tl.log(total) + (peak - target))


@triton.jit
def mean_kernel(losses_ptr, mean_ptr, n, BLOCK: tl.constexpr):
    totals = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        totals += tl.load(losses_ptr + at, mask=at < n, other=0.0)
    tl.store(mean_ptr, (tl.sum(totals, axis=0) / n).to(mean_ptr.dtype.element_ty))
