import torch
import triton
import triton.language as tl


def reference(x, w, b):
    y = x * w[:, None] + b[None, :]
    return y, y > 0


SHAPES = [dict(rows=1024, cols=256)]
TEST_SHAPES = [dict(rows=7, cols=101), dict(rows=3, cols=33)]


def get_inputs(rows=1024, cols=256):
    return [torch.randn(rows, cols), torch.randn(rows), torch.randn(cols)]


@triton.jit
def bc_kernel(x_ptr, w_ptr, b_ptr, y_ptr, p_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    w = tl.load(w_ptr + row)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
        b = tl.load(b_ptr + at, mask=at < cols, other=0.0)
        y = x * w + b
        tl.store(y_ptr + row * cols + at, y, mask=at < cols)
        tl.store(p_ptr + row * cols + at, y > 0, mask=at < cols)


def bc(x, w, b):
    y = torch.empty_like(x)
    p = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    bc_kernel[(x.shape[0],)](x, w, b, y, p, x.shape[0], x.shape[1], BLOCK=128)
    return y, p
