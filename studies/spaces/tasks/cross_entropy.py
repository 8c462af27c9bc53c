"""Cross entropy in one online pass over tiles of the vocabulary; maximum and sum per tile, or per lane to the end."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def reference(logits, labels):
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(wide, labels, reduction="none")


def get_inputs(rows=2048, vocab=128256, dtype=torch.float32):
    return [torch.randn(rows, vocab, dtype=dtype), torch.randint(0, vocab, (rows,))]


SHAPES = [dict(rows=2048, vocab=128256, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(rows=4, vocab=5008, dtype=torch.bfloat16), dict(rows=2, vocab=17008, dtype=torch.bfloat16)]
SPACE = {
    "BLOCK": [1024, 2048, 4096, 8192, 16384],
    "LANES": [False, True],
    "STAGES": [1, 2, 3, 4],
    "UNROLL": [1, 2],
    "num_warps": [4, 8, 16, 32],
}


def bytes_moved(rows, vocab, dtype):
    return rows * vocab * dtype.itemsize + rows * 12


@triton.jit
def cross_entropy_kernel(
    logits_ptr,
    labels_ptr,
    loss_ptr,
    row_stride,
    vocab,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
    STAGES: tl.constexpr,
    UNROLL: tl.constexpr,
):
    row = tl.program_id(0)
    logits_row = logits_ptr + row * row_stride
    if LANES:
        lane_max = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
        lane_sum = tl.zeros([BLOCK], dtype=tl.float32)
    row_max = -float("inf")
    row_sum = 0.0
    for start in tl.range(0, vocab, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(logits_row + cols, mask=cols < vocab, other=float("-inf")).to(tl.float32)
        if LANES:
            new_max = tl.maximum(lane_max, x)
            scale = tl.where(lane_max == new_max, 1.0, tl.exp(lane_max - new_max))
            lane_sum = lane_sum * scale + tl.where(x == float("-inf"), 0.0, tl.exp(x - new_max))
            lane_max = new_max
        else:
            new_max = tl.maximum(row_max, tl.max(x, axis=0))
            scale = tl.where(row_max == new_max, 1.0, tl.exp(row_max - new_max))
            row_sum = row_sum * scale + tl.sum(tl.where(x == float("-inf"), 0.0, tl.exp(x - new_max)), axis=0)
            row_max = new_max
    if LANES:
        row_max = tl.max(lane_max, axis=0)
        row_sum = tl.sum(tl.where(lane_max == float("-inf"), 0.0, lane_sum * tl.exp(lane_max - row_max)), axis=0)
    target = tl.load(logits_row + tl.load(labels_ptr + row)).to(tl.float32)
    tl.store(loss_ptr + row, tl.log(row_sum) + row_max - target)


def cross_entropy(logits, labels):
    logits = logits.contiguous()
    n_rows, vocab = logits.shape
    loss = torch.empty(n_rows, dtype=torch.float32, device=logits.device)
    cross_entropy_kernel[(n_rows,)](
        logits, labels, loss, logits.stride(0), vocab, BLOCK=4096, LANES=False, STAGES=2, UNROLL=1, num_warps=8
    )
    return loss
