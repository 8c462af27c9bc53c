"""Rotary position embedding of queries (halves rotated): x * cos + (-second, first) * sin, by token and head."""

import torch
import triton
import triton.language as tl


def reference(x, cos, sin):
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    turned = torch.cat([-second, first], dim=-1)
    return x * cos[:, None, :] + turned * sin[:, None, :]


def get_inputs(tokens=16384, heads=32, size=128, dtype=torch.float32):
    angles = torch.rand(tokens, size // 2) * 6.28
    angles = torch.cat([angles, angles], dim=-1)
    return [torch.randn(tokens, heads, size, dtype=dtype), angles.cos().to(dtype), angles.sin().to(dtype)]


SHAPES = [dict(tokens=16384, heads=32, size=128, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(tokens=5, heads=3, size=64), dict(tokens=1, heads=1, size=16), dict(tokens=3, heads=2, size=128)]
SPACE = {"num_warps": [1, 2, 4, 8]}


@triton.jit
def rotary_kernel(x_ptr, cos_ptr, sin_ptr, y_ptr, heads, HALF: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    lanes = tl.arange(0, HALF)
    base = (token * heads + head) * (2 * HALF)
    angle = token * (2 * HALF)
    first = tl.load(x_ptr + base + lanes).to(tl.float32)
    second = tl.load(x_ptr + base + HALF + lanes).to(tl.float32)
    cos_first = tl.load(cos_ptr + angle + lanes).to(tl.float32)
    cos_second = tl.load(cos_ptr + angle + HALF + lanes).to(tl.float32)
    sin_first = tl.load(sin_ptr + angle + lanes).to(tl.float32)
    sin_second = tl.load(sin_ptr + angle + HALF + lanes).to(tl.float32)
    kind = y_ptr.dtype.element_ty
    tl.store(y_ptr + base + lanes, (first * cos_first - second * sin_first).to(kind))
    tl.store(y_ptr + base + HALF + lanes, (second * cos_second + first * sin_second).to(kind))


def rotary(x, cos, sin):
    tokens, heads, size = x.shape
    y = torch.empty_like(x)
    rotary_kernel[(tokens, heads)](x, cos, sin, y, heads, HALF=size // 2, num_warps=1)
    return y
