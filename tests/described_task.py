"""A task whose launcher passes Triton's own descriptors, with tiles set by hooks, and descriptors of a kernel's own."""

PASSED = """
import torch, triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

def reference(a, b): return torch.matmul(a, b)
def get_inputs(m=512, n=1024, k=768):
    return [torch.randn(m, k, dtype=torch.bfloat16), torch.randn(k, n, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(m=40, n=72, k=104), dict(m=64, n=48, k=32)]

def set_tiles(args):
    for name, tile in (("a_desc", "BM BK"), ("b_desc", "BK BN"), ("c_desc", "BM BN")):
        args[name].block_shape = [args[size] for size in tile.split()]

@triton.autotune([triton.Config(dict(BM=bm, BN=128, BK=64), num_warps=8, pre_hook=set_tiles)
                  for bm in (64, 128)], key=[])
@triton.jit
def matmul_kernel(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for at in range(0, k, BK):
        acc = tl.dot(a_desc.load([row, at]), b_desc.load([at, col]), acc)
    c_desc.store([row, col], acc.to(tl.bfloat16))

def go(a, b):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    described = [TensorDescriptor.from_tensor(x, [1, 1]) for x in (a, b, c)]
    grid = lambda meta: (triton.cdiv(c.shape[0], meta["BM"]), triton.cdiv(c.shape[1], meta["BN"]))
    matmul_kernel[grid](*described, a.shape[1])
    return c
"""
OWN = ", ".join(
    f'"{n}_desc": ("{n}_desc", "(shape({n}_desc, 0), shape({n}_desc, 1))", "(stride({n}_desc, 0), 1)", "({tile})")'
    for n, tile in (("a", "BM, BK"), ("b", "BK, BN"), ("c", "BM, BN"))
)
