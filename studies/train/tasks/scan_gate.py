"""A gated recurrence over time, h = a * h + x, a lane for each channel."""

import torch
import triton
import triton.language as tl


def reference(a, x):
    h, states = torch.zeros_like(x[:, 0].float()), []
    for t in range(x.shape[1]):
        h = a[:, t].float() * h + x[:, t].float()
        states.append(h)
    return torch.stack(states, 1).to(x.dtype)


def get_inputs(batch=32, steps=256, channels=2048, dtype=torch.float32):
    return [torch.rand(batch, steps, channels, dtype=dtype), torch.randn(batch, steps, channels, dtype=dtype)]


TEST_SHAPES = [dict(batch=2, steps=9, channels=70), dict(batch=1, steps=1, channels=1)]
SPACE = {"BLOCK": [32, 64, 128, 256, 512], "num_warps": [1, 2, 4]}


@triton.jit
def gate_kernel(a_ptr, x_ptr, y_ptr, steps, channels, BLOCK: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < channels
    h = tl.zeros([BLOCK], dtype=tl.float32)
    row = tl.program_id(0).to(tl.int64) * steps * channels
    for _ in range(steps):
        a = tl.load(a_ptr + row + at, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row + at, mask=mask, other=0.0).to(tl.float32)
        h = a * h + x
        tl.store(y_ptr + row + at, h.to(y_ptr.dtype.element_ty), mask=mask)
        row += channels


def gated_scan(a, x):
    y = torch.empty_like(x)
    batch, steps, channels = x.shape
    grid = lambda meta: (batch, triton.cdiv(channels, meta["BLOCK"]))
    gate_kernel[grid](a, x, y, steps, channels, BLOCK=128, num_warps=2)
    return y
