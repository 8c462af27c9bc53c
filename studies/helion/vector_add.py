"""The sum of two vectors in float32, 2**19 to 2**28 elements."""

import torch
import triton
import triton.language as tl


def reference(x, y):
    return x + y


def get_inputs(n=2**20):
    return [torch.randn(n), torch.randn(n)]


SHAPES = [dict(n=2**i) for i in range(19, 29)]
TEST_SHAPES = [dict(n=1000), dict(n=1)]
SPACE = {
    "BLOCK": [256, 512, 1024, 2048, 4096, 8192, "512 if n <= 2097152 else 2048", "1024 if n <= 4194304 else 4096"],
    "STREAM": [0, 1],
    "num_warps": [1, 2, 4, 8, 16, "max(1, BLOCK // 256)", "max(1, BLOCK // 512)"],
}
CONFIG = {"BLOCK": 1024, "STREAM": 0, "num_warps": 4}


def bytes_moved(n):
    return 12 * n


@triton.jit
def vector_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, STREAM: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    if STREAM:  # each byte is used once
        x = tl.load(x_ptr + at, mask=mask, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_ptr + at, mask=mask, other=0.0, eviction_policy="evict_first")
        tl.store(out_ptr + at, x + y, mask=mask, cache_modifier=".cs")
    else:
        x = tl.load(x_ptr + at, mask=mask, other=0.0)
        y = tl.load(y_ptr + at, mask=mask, other=0.0)
        tl.store(out_ptr + at, x + y, mask=mask)


def vector_add(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    vector_add_kernel[grid](x, y, out, n, BLOCK=1024, STREAM=0, num_warps=4)
    return out
