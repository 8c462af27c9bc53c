import torch
import triton
import triton.language as tl


def reference(x, edges):
    return torch.bucketize(x, edges).to(torch.int32)


DOMAIN = {"edges": "fixed"}
SHAPES = [dict(n=1048576, bins=64)]
TEST_SHAPES = [dict(n=3001, bins=17), dict(n=100, bins=5)]


def get_inputs(n=1048576, bins=64):
    return [torch.randn(n), torch.randn(bins).sort().values]


@triton.jit
def bucket_kernel(x_ptr, e_ptr, o_ptr, n, bins, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    count = tl.zeros((BLOCK,), tl.int32)
    for j in range(bins):
        count += (x > tl.load(e_ptr + j)).to(tl.int32)
    tl.store(o_ptr + at, count, mask=at < n)


def bucket(x, edges):
    o = torch.empty(x.shape, dtype=torch.int32, device=x.device)
    bucket_kernel[(triton.cdiv(x.numel(), 1024),)](x, edges, o, x.numel(), edges.numel(), BLOCK=1024)
    return o
