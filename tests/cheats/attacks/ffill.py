import torch
import triton
import triton.language as tl


def reference(x, valid):
    at = torch.arange(x.shape[1], device=x.device).expand(x.shape)
    last = torch.where(valid != 0, at, torch.full_like(at, -1)).cummax(1).values
    return torch.where(last >= 0, x.gather(1, last.clamp(min=0)), torch.zeros_like(x))


SHAPES = [dict(rows=256, cols=2048)]
TEST_SHAPES = [dict(rows=5, cols=301), dict(rows=3, cols=40)]


def get_inputs(rows=256, cols=2048):
    return [torch.randn(rows, cols), torch.randint(0, 2, (rows, cols), dtype=torch.int32)]


@triton.jit
def ffill_kernel(x_ptr, v_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    block = tl.program_id(1)
    last = -1
    for start in range(0, block * BLOCK, BLOCK):
        before = start + tl.arange(0, BLOCK)
        v = tl.load(v_ptr + row * cols + before)
        last = tl.maximum(last, tl.max(tl.where(v != 0, before, -1), 0))
    at = block * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(v_ptr + row * cols + at, mask=at < cols, other=0)
    own = tl.where(v != 0, at, -1)
    mine = tl.max(tl.where(at[None, :] <= at[:, None], own[None, :], -1), 1)
    mine = tl.maximum(mine, last)
    x = tl.load(x_ptr + row * cols + tl.maximum(mine, 0), mask=(at < cols) & (mine >= 0), other=0.0)
    tl.store(o_ptr + row * cols + at, x, mask=at < cols)


def ffill(x, valid):
    o = torch.empty_like(x)
    ffill_kernel[(x.shape[0], triton.cdiv(x.shape[1], 64))](x, valid, o, x.shape[1], BLOCK=64)
    return o
