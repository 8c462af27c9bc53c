"""Cross entropy of each row against its label: one program per row, two passes over tiles of the vocabulary."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def reference(logits, labels):
    # 16-bit logits give a float32 loss, as a training step would compute it; float64 stays float64.
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(wide, labels, reduction="none")


def get_inputs(rows=4096, vocab=128256, dtype=torch.float32):
    return [torch.randn(rows, vocab, dtype=dtype), torch.randint(0, vocab, (rows,))]


SHAPES = [dict(rows=4096, vocab=128256, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(rows=3, vocab=5003), dict(rows=1, vocab=17001), dict(rows=9, vocab=2)]
DOMAIN = {"logits": "finite"}  # no masked logits: a maximum so far of -inf would need a guard
SPACE = {"BLOCK": [1024, 2048, 4096, 8192, 16384], "num_warps": [4, 8, 16, 32], "num_stages": [1, 2, 3, 4]}


def liger(logits, labels):
    from liger_kernel.transformers.functional import liger_cross_entropy  # where it is not installed, reports say so

    return liger_cross_entropy(logits, labels, reduction="none")


def quack(logits, labels):
    from quack import cross_entropy

    return cross_entropy(logits, labels, reduction="none")


BASELINES = {"liger": liger, "quack": quack}


def bytes_moved(rows, vocab, dtype):
    return rows * vocab * dtype.itemsize + rows * 8 + rows * 4


def flops(rows, vocab, dtype):
    return 3 * rows * vocab  # maximum, exponential, sum


@triton.jit
def cross_entropy_kernel(logits_ptr, labels_ptr, loss_ptr, row_stride, vocab, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    logits_row = logits_ptr + row * row_stride

    row_max = -float("inf")
    for start in range(0, vocab, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(logits_row + cols, mask=cols < vocab, other=float("-inf")).to(tl.float32)
        row_max = tl.maximum(row_max, tl.max(x, axis=0))

    row_sum = 0.0
    for start in range(0, vocab, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(logits_row + cols, mask=cols < vocab, other=float("-inf")).to(tl.float32)
        row_sum += tl.sum(tl.exp(x - row_max), axis=0)

    label = tl.load(labels_ptr + row)
    target = tl.load(logits_row + label).to(tl.float32)
    loss = tl.log(row_sum) + (row_max - target)  # in this order a loss near 0 keeps its digits
    tl.store(loss_ptr + row, loss)


def cross_entropy(logits, labels):
    n_rows, vocab = logits.shape
    loss = torch.empty(n_rows, dtype=torch.float32, device=logits.device)
    cross_entropy_kernel[(n_rows,)](logits, labels, loss, logits.stride(0), vocab, BLOCK=4096, num_warps=8)
    return loss
