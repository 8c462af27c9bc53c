"""The interpreter's side of `test_eight.py`: `TRITON_INTERPRET=1 python run_eight.py` prints JSON."""

import itertools
import json

import torch
import triton
import triton.language as tl

from kernelsearch.worker.interpreter.programs import order_programs, run_programs

EIGHT = {"e5": torch.float8_e5m2, "e4": torch.float8_e4m3fn}
WIDE = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@triton.jit
def cast(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i).to(y_ptr.dtype.element_ty))


@triton.jit
def cast_toward_zero(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i).to(y_ptr.dtype.element_ty, fp_downcast_rounding="rtz"))


@triton.jit
def odd_format(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i).to(tl.float8e4b15).to(tl.float32))


def run(kernel, x, dtype):
    y = torch.zeros(x.shape, dtype=dtype)
    args = {"x_ptr": x, "y_ptr": y, "N": x.numel()}
    run_programs(kernel, args, frozenset({"N"}), (1, 1, 1), order_programs((1, 1, 1), "forward"))
    return y


def same(left, right):
    return bool(torch.equal(left.double().nan_to_num(-1e9), right.double().nan_to_num(-1e9)))


def numbers(eight):
    """Every 8-bit number, the middles between neighbours, and what lies beside both; no larger than the last."""
    every = torch.arange(256, dtype=torch.uint8).view(eight).double()
    every = every[every.isfinite()].sort().values
    marks = torch.cat([every, (every[1:] + every[:-1]) / 2])
    values = torch.cat([marks, marks * (1 + 2**-9), marks * (1 - 2**-9), torch.randn(300, dtype=torch.float64)])
    values = values.clamp(every[0], every[-1])
    return torch.cat([values, torch.zeros(2048 - values.numel(), dtype=torch.float64)])


if __name__ == "__main__":
    results = {}
    for (e, eight), (w, wide) in itertools.product(EIGHT.items(), WIDE.items()):
        codes = torch.arange(256, dtype=torch.uint8).view(eight)
        results[f"{e} to {w}"] = same(run(cast, codes, wide), codes.to(wide))
        values = numbers(eight).to(wide)
        results[f"{w} to {e}"] = same(run(cast, values, eight), values.to(eight))
    ends = torch.tensor([1e6, -1e6, float("inf"), -float("inf"), float("nan"), 1.99, -1.99, 0.0])
    for e, eight in EIGHT.items():
        results[f"ends in {e}"] = run(cast, ends, eight).float().nan_to_num(-1e9).tolist()
        results[f"toward zero in {e}"] = run(cast_toward_zero, ends, eight).float().nan_to_num(-1e9).tolist()
    try:
        run(odd_format, ends, torch.float32)
        results["odd"] = ""
    except Exception as error:
        results["odd"] = f"{error}{error.__cause__}"
    print(json.dumps(results))
