"""Cross entropy with smoothed labels, a loss for each row."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

SMOOTH = 0.1


def reference(logits, target):
    return F.cross_entropy(logits.float(), target, label_smoothing=SMOOTH, reduction="none")


def get_inputs(rows=8192, vocab=32000, dtype=torch.float32):
    return [torch.randn(rows, vocab, dtype=dtype), torch.randint(0, vocab, (rows,))]


SHAPES = [dict(rows=8192, vocab=32000, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(rows=3, vocab=1000), dict(rows=2, vocab=130, dtype=torch.bfloat16), dict(rows=1, vocab=7)]
SPACE = {"BLOCK": [1024, 2048, 4096, 8192], "num_warps": [2, 4, 8, 16]}


@triton.jit
def smooth_kernel(x_ptr, t_ptr, y_ptr, vocab, smooth, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = row.to(tl.int64) * vocab
    top = -float("inf")
    for start in range(0, vocab, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < vocab, other=-float("inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(x, axis=0))
    total = 0.0
    plain = 0.0
    for start in range(0, vocab, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < vocab, other=-float("inf")).to(tl.float32)
        total += tl.sum(tl.exp(x - top), axis=0)
        plain += tl.sum(tl.where(at < vocab, x, 0.0), axis=0)
    log_sum = top + tl.log(total)
    chosen = tl.load(x_ptr + base + tl.load(t_ptr + row)).to(tl.float32)
    loss = log_sum - (1.0 - smooth) * chosen - smooth * plain / vocab
    tl.store(y_ptr + row, loss)


def smooth_loss(logits, target):
    rows, vocab = logits.shape
    loss = torch.empty(rows, device=logits.device, dtype=torch.float32)
    smooth_kernel[(rows,)](logits, target, loss, vocab, SMOOTH, BLOCK=1024, num_warps=4)
    return loss
