import torch
import triton
import triton.language as tl


def reference(x, offsets):
    out = torch.zeros(offsets.numel() - 1, x.shape[1], dtype=x.dtype, device=x.device)
    for i in range(offsets.numel() - 1):
        a, b = int(offsets[i]), int(offsets[i + 1])
        if b > a:
            out[i] = x[a:b].mean(0)
    return out


SHAPES = [dict(segments=64, rows=1024, dim=128)]
TEST_SHAPES = [dict(segments=9, rows=40, dim=33), dict(segments=2, rows=3, dim=8)]


def get_inputs(segments=64, rows=1024, dim=128):
    cuts = torch.sort(torch.randint(0, rows + 1, (segments - 1,))).values
    offsets = torch.cat([torch.tensor([0]), cuts, torch.tensor([rows])]).to(torch.int32)
    return [torch.randn(rows, dim), offsets]


@triton.jit
def segment_mean_kernel(x_ptr, off_ptr, out_ptr, dim, BLOCK: tl.constexpr):
    seg = tl.program_id(0)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(off_ptr + seg)
    b = tl.load(off_ptr + seg + 1)
    acc = tl.zeros([BLOCK], tl.float32)
    for r in range(a, b):
        acc += tl.load(x_ptr + r * dim + d, mask=d < dim, other=0.0)
    count = tl.maximum(b - a, 1)
    tl.store(out_ptr + seg * dim + d, acc / count, mask=d < dim)


def segment_mean(x, offsets):
    out = torch.empty(offsets.numel() - 1, x.shape[1], dtype=x.dtype, device=x.device)
    segment_mean_kernel[(offsets.numel() - 1, triton.cdiv(x.shape[1], 64))](x, offsets, out, x.shape[1], BLOCK=64)
    return out
