import torch
import triton
import triton.language as tl


def reference(tok):
    hit = (tok == 1).to(torch.int32)
    before = hit.cumsum(1) - hit
    return torch.where(before > 0, torch.zeros_like(tok), tok)


SHAPES = [dict(rows=256, cols=4096)]
TEST_SHAPES = [dict(rows=4, cols=700), dict(rows=3, cols=40)]


def get_inputs(rows=256, cols=4096):
    return [torch.randint(0, 8, (rows, cols), dtype=torch.int32)]


@triton.jit
def cut_kernel(t_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    block = tl.program_id(1)
    found = 0
    for start in range(0, block * BLOCK, BLOCK):
        t = tl.load(t_ptr + row * cols + start + tl.arange(0, BLOCK))
        found += tl.sum((t == 1).to(tl.int32), 0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(t_ptr + row * cols + at, mask=at < cols, other=0)
    hit = (t == 1).to(tl.int32)
    before = found + tl.cumsum(hit, 0) - hit
    tl.store(o_ptr + row * cols + at, tl.where(before > 0, 0, t), mask=at < cols)


def cut(tok):
    o = torch.empty_like(tok)
    cut_kernel[(tok.shape[0], triton.cdiv(tok.shape[1], 256))](tok, o, tok.shape[1], BLOCK=256)
    return o
