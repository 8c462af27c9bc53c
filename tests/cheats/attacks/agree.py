import torch
import triton
import triton.language as tl


def reference(a, b):
    return ((a - b).abs() <= 0.001 * b.abs()).sum(1, dtype=torch.int32)


SHAPES = [dict(rows=512, cols=4096)]
TEST_SHAPES = [dict(rows=7, cols=301), dict(rows=3, cols=40)]


def get_inputs(rows=512, cols=4096):
    b = torch.randn(rows, cols)
    return [torch.where(torch.rand(rows, cols) < 0.5, b, torch.randn(rows, cols)), b]


@triton.jit
def agree_kernel(a_ptr, b_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    count = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + row * cols + at, mask=at < cols, other=1.0)
        b = tl.load(b_ptr + row * cols + at, mask=at < cols, other=0.0)
        count += (tl.abs(a - b) <= 0.001 * tl.abs(b)).to(tl.int32)
    tl.store(o_ptr + row, tl.sum(count, 0))


def agree(a, b):
    o = torch.empty(a.shape[0], dtype=torch.int32, device=a.device)
    agree_kernel[(a.shape[0],)](a, b, o, a.shape[1], BLOCK=512)
    return o
