"""The mean loss of a language model's logits in bfloat16, for vocabularies of 32,000 to 256,000."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def reference(logits, labels):
    return F.cross_entropy(logits, labels)


def get_inputs(tokens=4096, vocabulary=32000):
    return [torch.randn(tokens, vocabulary, dtype=torch.bfloat16), torch.randint(0, vocabulary, (tokens,))]


SIZES = {
    32000: (2048, 4096, 8192), 128000: (8192, 16384, 32768), 128256: (2048, 4096, 8192, 16384),
    129280: (2048, 4096, 8192), 151936: (2048, 4096, 8192), 152064: (2048, 4096, 8192), 256000: (1024, 2048),
}  # fmt: skip
SHAPES = [dict(tokens=tokens, vocabulary=vocabulary) for vocabulary, rows in SIZES.items() for tokens in rows]
TEST_SHAPES = [dict(tokens=7, vocabulary=1000), dict(tokens=1, vocabulary=129)]
DOMAIN = {"logits": "finite"}
SPACE = {
    "cross_entropy_kernel": {
        "LANES": [512, 1024, 2048, 4096, 8192],
        "STEPS": [1, 2, 4, 8],
        "STAGES": [1, 2, 3, 4],
        "num_warps": [2, 4, 8, 16, 32],
    },
    "mean_kernel": {"BLOCK": [1024, 2048, 4096, 8192], "num_warps": [4, 8, 16, 32]},
}
CONFIG = {
    "cross_entropy_kernel": {"LANES": 2048, "STEPS": 4, "STAGES": 1, "num_warps": 8},
    "mean_kernel": {"BLOCK": 4096, "num_warps": 16},
}
CONSTRAINTS = ["256 * num_warps <= LANES"]


def bytes_moved(tokens, vocabulary):
    return tokens * (2 * vocabulary + 8)


@triton.jit
def cross_entropy_kernel(
    logits_ptr,
    labels_ptr,
    losses_ptr,
    row_stride,
    vocabulary,
    LANES: tl.constexpr,
    STEPS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A row's loss: each lane has a maximum and a sum of its own, brought up to date once in STEPS columns."""
    row = tl.program_id(0)
    logits_row = logits_ptr + row.to(tl.int64) * row_stride
    target = tl.load(logits_row + tl.load(labels_ptr + row)).to(tl.float32)
    lanes = tl.arange(0, STEPS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    peaks = tl.full([LANES], -3.4e38, dtype=tl.float32)  # finite, as a lane may see nothing but -inf
    totals = tl.zeros([LANES], dtype=tl.float32)
    for start in tl.range(0, vocabulary, STEPS * LANES, num_stages=STAGES):
        cols = start + lanes
        x = tl.load(logits_row + cols, mask=cols < vocabulary, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peaks, tl.max(x, axis=0))
        totals = totals * tl.exp(peaks - higher) + tl.sum(tl.exp(x - higher[None, :]), axis=0)
        peaks = higher
    peak = tl.max(peaks, axis=0)
    total = tl.sum(totals * tl.exp(peaks - peak), axis=0)
    tl.store(losses_ptr + row, tl.log(total) + (peak - target))  # in this order a loss near 0 keeps its digits


@triton.jit
def mean_kernel(losses_ptr, mean_ptr, n, BLOCK: tl.constexpr):
    totals = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        totals += tl.load(losses_ptr + at, mask=at < n, other=0.0)
    tl.store(mean_ptr, (tl.sum(totals, axis=0) / n).to(mean_ptr.dtype.element_ty))


def cross_entropy(logits, labels):
    tokens, vocabulary = logits.shape
    losses = torch.empty(tokens, dtype=torch.float32, device=logits.device)
    mean = torch.empty((), dtype=logits.dtype, device=logits.device)
    cross_entropy_kernel[(tokens,)](
        logits, labels, losses, logits.stride(0), vocabulary, LANES=2048, STEPS=4, STAGES=1, num_warps=8
    )
    mean_kernel[(1,)](losses, mean, tokens, BLOCK=4096, num_warps=16)
    return mean
