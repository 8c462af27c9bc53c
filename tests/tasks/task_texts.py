"""Parts of task files."""

HEAD = """
import torch
import triton
import triton.language as tl

"""
KERNEL = """
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) * 2, mask=i < n)

def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""
REFERENCE = """
def reference(x): return x * 2
"""
INPUTS = """
def get_inputs(rows=4096, cols=1024, dtype=torch.float32): return [torch.randn(rows, cols, dtype=dtype)]
"""
WHOLE = HEAD + KERNEL + REFERENCE + INPUTS
BENCH = """
import torch.nn as nn
batch = 4096
dim = 8192
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
    def forward(self, x): return x * self.weight
def get_inputs(): return [torch.rand(batch, dim)]
def get_init_inputs(): return [dim]
"""
BENCH_NEW = """
class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.extra = nn.Parameter(torch.zeros(3))
        self.weight = nn.Parameter(torch.zeros(features))
    def forward(self, x): return scale(x) * 0 + x * self.weight
"""
