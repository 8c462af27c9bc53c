"""The interpreter's side of `test_sixteen.py`: `TRITON_INTERPRET=1 python run_sixteen.py` prints JSON."""

import json
import sys

import torch
import triton
import triton.language as tl

from kernelsearch.worker.interpreter.programs import order_programs, run_programs

N = 1024


@triton.jit
def arithmetic(x_ptr, y_ptr, z_ptr, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    if OP == 0:
        z = x + y
    elif OP == 1:
        z = x * y
    elif OP == 2:
        z = x - y
    elif OP == 3:
        z = tl.where(x < y, x, -y)
    elif OP == 4:
        z = tl.maximum(x, y)
    elif OP == 5:
        z = (x.to(tl.float32) * y.to(tl.float32)).to(x.dtype)
    elif OP == 6:
        z = tl.abs(x) * 0.3
    else:
        z = (x.to(tl.int32)).to(x.dtype)
    tl.store(z_ptr + i, z)


@triton.jit
def added_up(x_ptr, y_ptr, z_ptr, OP: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(z_ptr, tl.sum(x, axis=0))


@triton.jit
def dotted(x_ptr, y_ptr, z_ptr, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, 32)
    at = i[:, None] * 32 + i[None, :]
    tl.store(z_ptr + at, tl.dot(tl.load(x_ptr + at), tl.load(y_ptr + at)))


WANTED = (
    lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y, lambda x, y: torch.where(x < y, x, -y), torch.maximum,
    lambda x, y: (x.float() * y.float()).to(x.dtype), lambda x, y: x.abs() * torch.tensor(0.3, dtype=x.dtype),
    lambda x, y: x.to(torch.int32).to(x.dtype),
)  # fmt: skip


def ran(function, x, y, z, op=0):
    args = dict(x_ptr=x, y_ptr=y, z_ptr=z, OP=op, N=N)
    run_programs(function, args, frozenset({"OP", "N"}), (1, 1, 1), order_programs((1, 1, 1), "forward"))
    return z


def values(dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(N, generator=generator) * torch.logspace(-6, 4, N)
    noise[:4] = torch.tensor([0.0, -0.0, float("inf"), float("nan")])
    return noise.to(dtype)


def main():
    results = {}
    for dtype in (torch.bfloat16, torch.float16):
        x, y = values(dtype, 1), values(dtype, 2)
        for op, wanted in enumerate(WANTED):
            a, b = (x.clamp(-1e3, 1e3), y) if op == 7 else (x, y)
            a = torch.nan_to_num(a) if op == 7 else a
            got, right = ran(arithmetic, a, b, torch.zeros_like(x), op), wanted(a, b)
            keep = slice(4, None) if op in (3, 4) else slice(None)
            same = (got == right) | (got.isnan() & right.isnan())
            results[f"{dtype} {op}"] = int((~same[keep]).sum())
        ones = torch.ones(N, dtype=dtype)
        ones[0] = 4096.0  # neighbours of 4096 are 16 (float16: 4) apart: one after the other, ones would be lost
        exact = ran(added_up, torch.full((N,), 1.0, dtype=dtype), ones, torch.zeros(1, dtype=dtype))
        results[f"{dtype} sum"] = exact.item()
        thirds = torch.full((N,), 1 / 3, dtype=dtype)
        results[f"{dtype} sum of products"] = float(
            (ran(dotted, x[:N].nan_to_num(0, 0, 0).clamp(-9, 9), thirds, torch.zeros(32, 32))
             - x[:N].nan_to_num(0, 0, 0).clamp(-9, 9).float().reshape(32, 32) @ thirds.float().reshape(32, 32)
             ).abs().max())  # fmt: skip
        noise = (torch.randn(N, generator=torch.Generator().manual_seed(3)) + 2).to(dtype)
        tree = noise.clone()
        while len(tree) > 1:
            tree = tree[: len(tree) // 2] + tree[len(tree) // 2 :]
        results[f"{dtype} tree"] = [ran(added_up, noise, noise, torch.zeros(1, dtype=dtype)).item(), tree.item()]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
