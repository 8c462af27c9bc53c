"""One minus the cosine between rows of two matrices."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def reference(a, b):
    return 1.0 - F.cosine_similarity(a.float(), b.float(), dim=-1)


def get_inputs(rows=32768, cols=2048, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype), torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=32768, cols=2048, dtype=torch.float16)]
TEST_SHAPES = [dict(rows=3, cols=1000), dict(rows=5, cols=64, dtype=torch.float16), dict(rows=1, cols=2)]
SPACE = {"BLOCK": [256, 512, 1024, 2048], "num_warps": [1, 2, 4, 8]}


@triton.jit
def cosine_kernel(a_ptr, b_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = row.to(tl.int64) * n_cols
    dot = tl.zeros([BLOCK], dtype=tl.float32)
    aa = tl.zeros([BLOCK], dtype=tl.float32)
    bb = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + base + at, mask=at < n_cols, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + base + at, mask=at < n_cols, other=0.0).to(tl.float32)
        dot += a * b
        aa += a * a
        bb += b * b
    length = tl.maximum(tl.sqrt(tl.sum(aa, axis=0)), 1e-8) * tl.maximum(tl.sqrt(tl.sum(bb, axis=0)), 1e-8)
    tl.store(y_ptr + row, 1.0 - tl.sum(dot, axis=0) / length)


def cosine_loss(a, b):
    rows, cols = a.shape
    y = torch.empty(rows, device=a.device, dtype=torch.float32)
    cosine_kernel[(rows,)](a, b, y, cols, BLOCK=512, num_warps=4)
    return y
