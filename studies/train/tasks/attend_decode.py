"""Attention of one new query a head over the keys and values so far."""

import torch
import triton
import triton.language as tl


def reference(q, k, v):
    weights = torch.softmax((k.float() @ q.float().unsqueeze(-1)).squeeze(-1) * q.shape[-1] ** -0.5, -1)
    return (weights.unsqueeze(1) @ v.float()).squeeze(1).to(q.dtype)


def get_inputs(heads=512, length=8192, width=128, dtype=torch.float16):
    q = torch.randn(heads, width, dtype=dtype)
    return [q, torch.randn(heads, length, width, dtype=dtype), torch.randn(heads, length, width, dtype=dtype)]


TEST_SHAPES = [dict(heads=2, length=70, width=64), dict(heads=1, length=1, width=32)]
SPACE = {"BLOCK": [16, 32, 64, 128, 256], "num_warps": [2, 4, 8], "num_stages": [1, 2, 3, 4]}


@triton.jit
def decode_kernel(q_ptr, k_ptr, v_ptr, y_ptr, length, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    head = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, WIDTH)
    q = tl.load(q_ptr + head * WIDTH + d).to(tl.float32) * scale
    top = -float("inf")
    total = 0.0
    acc = tl.zeros([WIDTH], dtype=tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        keep = at[:, None] < length
        k = tl.load(k_ptr + (head * length + at[:, None]) * WIDTH + d[None, :], mask=keep, other=0.0).to(tl.float32)
        s = tl.where(at < length, tl.sum(k * q[None, :], axis=1), -float("inf"))
        new = tl.maximum(top, tl.max(s, axis=0))
        p = tl.exp(s - new)
        fade = tl.exp(top - new)
        v = tl.load(v_ptr + (head * length + at[:, None]) * WIDTH + d[None, :], mask=keep, other=0.0).to(tl.float32)
        acc = acc * fade + tl.sum(p[:, None] * v, axis=0)
        total = total * fade + tl.sum(p, axis=0)
        top = new
    tl.store(y_ptr + head * WIDTH + d, (acc / total).to(y_ptr.dtype.element_ty))


def decode(q, k, v):
    heads, length, width = k.shape
    y = torch.empty_like(q)
    decode_kernel[(heads,)](q, k, v, y, length, width**-0.5, WIDTH=width, BLOCK=64, num_warps=4)
    return y
