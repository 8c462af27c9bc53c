"""Compiles kernels of the shipped tasks for sm_90 without a GPU, at one real shape each.

A process of its own. Reads lines of JSON, each a
list of jobs (`{"task", "kernel", "site"}`), answers one JSON line a job (`{"ok", "why", "masked"}`); masked counts
predicated global accesses in the PTX.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import forking
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernelsearch.core.types import LaunchFact, TensorFact
from kernelsearch.kernel.launch import make_plan, specialise
from kernelsearch.kernel.source import Kernel


def tensor(dtype: str, *shape: int) -> TensorFact:
    stride = [1]
    for size in reversed(shape[1:]):
        stride.insert(0, stride[0] * size)
    return TensorFact(dtype, shape, tuple(stride))


def rows(n: int, cols: int) -> dict:
    x = tensor("bf16", n, cols)
    return {"x_ptr": x, "y_ptr": x, "x_stride": cols, "y_stride": cols, "n_cols": cols}


def tiles(**blocks: int) -> dict:
    return {"M": 4096, "N": 4096, "K": 4096, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, **blocks}


W, SQUARE, HEADS = tensor("bf16", 4096), tensor("bf16", 4096, 4096), tensor("bf16", 4, 16, 4096, 128)
NORM = {**rows(16384, 4096), "weight_ptr": W, "bias_ptr": W, "eps": 1e-5, "BLOCK": 4096}
FACTS = {
    "softmax": ({**rows(8192, 8192), "BLOCK": 8192}, (8192,)),
    "softmax_wide": ({**rows(2048, 50257), "BLOCK": 4096}, (2048,)),
    "layernorm": (NORM, (16384,)),
    "layernorm_looped": ({**{n: v for n, v in NORM.items() if n != "BLOCK"}, "TILE": 4096}, (16384,)),
    "rmsnorm": (NORM, (16384,)),
    "cross_entropy": (
        {"logits_ptr": tensor("bf16", 4096, 128256), "labels_ptr": tensor("i64", 4096),
         "loss_ptr": tensor("fp32", 4096), "row_stride": 128256, "vocab": 128256, "BLOCK": 4096},
        (4096,),
    ),
    "swiglu": ({**{f"{n}_ptr": tensor("bf16", 2**20) for n in "aby"}, "n": 2**20, "BLOCK": 1024}, (1024,)),
    "column_sum": (
        {"x_ptr": tensor("fp32", 65536, 2048), "y_ptr": tensor("fp32", 2048), "x_stride": 2048,
         "n_rows": 65536, "n_cols": 2048, "BLOCK_ROWS": 64, "BLOCK_COLS": 64},
        (32,),
    ),
    "matmul": (
        tiles() | {f"{n}_ptr": SQUARE for n in "abc"}
        | {f"stride_{n}": s for n, s in zip(("am", "ak", "bk", "bn", "cm", "cn"), (4096, 1) * 3, strict=True)},
        (64, 64),
    ),
    "linear_gelu": (
        tiles() | {"x_ptr": SQUARE, "weight_ptr": SQUARE, "bias_ptr": W, "y_ptr": SQUARE}
        | {f"stride_{n}": s for n, s in zip(("xm", "xk", "wn", "wk", "ym", "yn"), (4096, 1) * 3, strict=True)},
        (64, 64),
    ),
    "attention": (
        {f"{n}_ptr": HEADS for n in "qkvo"}
        | {"head_stride": 4096 * 128, "seq_stride": 128, "seq_len": 4096, "scale": 0.088,
           "HEAD_DIM": 128, "BLOCK_M": 64, "BLOCK_N": 64},
        (64, 64),
    ),
}  # fmt: skip
"""Arguments and grid of one launch per task, at a shape that users have."""


def compiled(task: str, text: str, site: str, path: Path) -> dict:
    kernel = Kernel.parse(text)
    args, grid = FACTS[task]
    fact = LaunchFact(site, args, {"num_warps": 8, "num_stages": 2}, grid)
    planned = make_plan(kernel, kernel.steps_at(site, (site,)), kernel.config, fact, lambda _: grid, 132)
    path.write_text(kernel.code)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    masked = 0
    for step in planned.steps:
        one = specialise(step, fact, planned.scratch)
        function = getattr(module, step.function)
        at = {name: i for i, name in enumerate(function.arg_names)}
        attrs = {(at[name],): [["tt.divisibility", 16]] for name in one.divisible}
        source = ASTSource(function, dict(one.signature), dict(one.constexprs), attrs)
        options = {k: v for k, v in one.options if v is not None}
        ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
        masked += len(re.findall(r"@%p\d+ (?:ld|st)\.global", ptx))
    return {"ok": True, "why": "", "masked": masked}


def answer(job: dict, folder: Path, number: int) -> dict:
    return compiled(job["task"], job["kernel"], job["site"], folder / f"compiled_{number}.py")


if __name__ == "__main__":
    forking.serve(answer, {"masked": 0})
