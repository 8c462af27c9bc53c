import torch
import triton
import triton.language as tl


def reference(x, w):
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), w)


SHAPES = [dict(rows=2048, cols=8192)]
TEST_SHAPES = [dict(rows=5, cols=305), dict(rows=2, cols=33)]


def get_inputs(rows=2048, cols=8192):
    return [torch.randn(rows, cols), torch.randn(cols)]


@triton.jit
def ln_kernel(x_ptr, w_ptr, o_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * cols
    s = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        s += tl.load(x_ptr + at, mask=at < cols, other=0.0)
    mean = tl.sum(s, 0) / cols
    v = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        d = tl.where(at < cols, tl.load(x_ptr + at, mask=at < cols, other=0.0) - mean, 0.0)
        v += d * d
    var = tl.sum(v, 0) / cols
    rstd = 1.0 / tl.sqrt(var + 1e-5)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < cols, other=0.0)
        w = tl.load(w_ptr + at, mask=at < cols, other=0.0)
        tl.store(o_ptr + row * cols + at, (x - mean) * rstd * w, mask=at < cols)


def ln(x, w):
    o = torch.empty_like(x)
    ln_kernel[(x.shape[0],)](x, w, o, x.shape[0], x.shape[1], BLOCK=1024)
    return o
