"""The gated delta rule within chunks of 64 tokens: what each token adds to the state, once those before it are known.

With A[i, j] = beta[i] exp(g[i] - g[j]) k[i].k[j] for j < i, else 0, T = (1 + A)^-1:
u = T (beta v), w = T (beta exp(g) k). g are sums of the gates' logarithms from a chunk's beginning (Yang et al.,
Gated Delta Networks, 2024).
"""

import torch
import triton
import triton.language as tl

CHUNK = 64


def reference(k, v, beta, g):
    heads, tokens, size = k.shape
    k, v = (x.reshape(heads, -1, CHUNK, x.shape[-1]) for x in (k, v))
    beta, g = (x.reshape(heads, -1, CHUNK) for x in (beta, g))
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=k.device).tril(-1)
    decay = torch.exp((g[..., :, None] - g[..., None, :]).masked_fill(~lower, 0.0))
    a = (k.to(g.dtype) @ k.to(g.dtype).mT * decay * beta[..., :, None]).masked_fill(~lower, 0.0)
    sides = torch.cat([beta[..., None] * v.to(g.dtype), (beta * torch.exp(g))[..., None] * k.to(g.dtype)], -1)
    eye = torch.eye(CHUNK, dtype=g.dtype, device=k.device)
    both = torch.linalg.solve_triangular(eye + a, sides, upper=False, unitriangular=True)
    return tuple(x.reshape(heads, tokens, -1).to(k.dtype) for x in both.split((v.shape[-1], size), -1))


def get_inputs(heads=128, chunks=64, size=128, dtype=torch.bfloat16):
    tokens = chunks * CHUNK
    k = torch.nn.functional.normalize(torch.randn(heads, tokens, size), dim=-1).to(dtype)
    gates = torch.nn.functional.logsigmoid(torch.randn(heads, chunks, CHUNK) + 3.0)
    g = gates.cumsum(-1).reshape(heads, tokens)
    return [k, torch.randn(heads, tokens, size, dtype=dtype), torch.rand(heads, tokens), g]


DOMAIN = {"k": "fixed", "beta": "unit", "g": "fixed"}
SHAPES = [dict(heads=128, chunks=64, size=128)]
TEST_SHAPES = [dict(heads=2, chunks=3, size=64), dict(heads=1, chunks=1, size=32), dict(heads=3, chunks=2, size=128)]
SPACE = {"num_warps": [1, 2, 4, 8], "num_stages": [1, 2, 3]}


def flops(heads, chunks, size):
    return 2 * heads * chunks * CHUNK * CHUNK * 3 * size


@triton.jit
def delta_kernel(k_ptr, v_ptr, beta_ptr, g_ptr, u_ptr, w_ptr, CHUNK: tl.constexpr, SIZE: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * CHUNK
    rows = tl.arange(0, CHUNK)
    lanes = tl.arange(0, SIZE)
    at = (first + rows)[:, None] * SIZE + lanes[None, :]
    k = tl.load(k_ptr + at)
    beta = tl.load(beta_ptr + first + rows).to(tl.float32)
    g = tl.load(g_ptr + first + rows).to(tl.float32)
    below = rows[:, None] > rows[None, :]
    decay = tl.exp(tl.where(below, g[:, None] - g[None, :], 0.0))
    inverse = tl.where(below, -tl.dot(k, tl.trans(k), input_precision="ieee") * decay * beta[:, None], 0.0)
    for i in range(1, CHUNK):  # forward substitution: row i of the inverse from those before it
        row = tl.sum(tl.where(rows[:, None] == i, inverse, 0.0), axis=0)
        row += tl.sum(row[:, None] * inverse, axis=0)
        inverse = tl.where(rows[:, None] == i, row[None, :], inverse)
    inverse += tl.where(rows[:, None] == rows[None, :], 1.0, 0.0)
    v = tl.load(v_ptr + at)
    u = tl.dot(inverse, v.to(tl.float32) * beta[:, None], input_precision="ieee")
    w = tl.dot(inverse, k.to(tl.float32) * (beta * tl.exp(g))[:, None], input_precision="ieee")
    tl.store(u_ptr + at, u.to(u_ptr.dtype.element_ty))
    tl.store(w_ptr + at, w.to(w_ptr.dtype.element_ty))


def delta_chunk(k, v, beta, g):
    heads, tokens, size = k.shape
    u, w = torch.empty_like(v), torch.empty_like(k)
    delta_kernel[(heads * tokens // CHUNK,)](k, v, beta, g, u, w, CHUNK=CHUNK, SIZE=size, num_warps=4)
    return u, w
