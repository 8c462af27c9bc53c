"""Evaluates kernels that no task has: what each leaves in its buffers, at some sizes, without a GPU.

A process of its own, like `compiler.py`. Reads lines of JSON, each a list of jobs (`{"kernel", "aliased"}`: whether the
input is the output too), answers one JSON line a job (`{"ok", "why", "left"}`): the buffers at each size.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import forking
import torch

from kernelsearch.compile.build import INVENTED, BuildFailure, make_ttir
from kernelsearch.core.types import LaunchFact, TensorFact
from kernelsearch.evaluate.launch import CompiledKernel, GridRun
from kernelsearch.ir.text import read_module
from kernelsearch.kernel.launch import Specialisation, make_plan, specialise
from kernelsearch.kernel.source import Kernel
from kernelsearch.worker.launcher.arguments import resolve_arguments
from kernelsearch.worker.roles import evaluate

ROWS, STRIDE = 3, 52
SIZES = (37, 5, 48, 0)
SMALL = {"PART": 16, "LAG": 1, "SPLIT": 4, "ROWS": 2, "WAVES": 1, "VEC": 8, "PARTS": 2}


@lru_cache(maxsize=8)
def compile_function(code: str, spec: Specialisation) -> CompiledKernel:
    text = make_ttir(code, "drawn", spec, 90)
    assert not isinstance(text, BuildFailure), text
    return CompiledKernel(read_module(text, INVENTED))


def launch(kernel: Kernel, n_cols: int, aliased: bool) -> list[float]:
    """What is in the buffers after a launch of three programs."""
    torch.manual_seed(n_cols)
    x, z = (torch.randn(ROWS, STRIDE) for _ in range(2))
    y = x if aliased else torch.zeros(ROWS, STRIDE)
    passed = {"x_ptr": x, "y_ptr": y, "z_ptr": z, "x_stride": STRIDE, "n_cols": n_cols, "BLOCK": 16}
    facts = {
        n: TensorFact("fp32", (ROWS, STRIDE), (STRIDE, 1)) if isinstance(v, torch.Tensor) else v
        for n, v in passed.items()
    }
    fact = LaunchFact("drawn_kernel", facts, {}, (ROWS,))
    config = {**kernel.config, **{n: v for n, v in SMALL.items() if n in kernel.config}}
    steps = kernel.steps_at("drawn_kernel", ("drawn_kernel",))
    planned = make_plan(kernel, steps, config, fact, lambda _: (ROWS,), 2)
    scratch = {
        n: torch.full(b.shape, 0 if b.zero else -1, dtype=torch.int32 if b.dtype == "i32" else torch.float32)
        for n, b in planned.scratch.items()
    }
    for step in planned.steps:
        spec = specialise(step, fact, planned.scratch)
        args = {**resolve_arguments(step, passed, scratch), **step.constexprs}
        bound = SimpleNamespace(plan=planned, step=step, fact=fact, args=args, fresh=frozenset())
        buffers, values = evaluate.bind_arguments(bound, frozenset())
        grid = (*step.grid, 1, 1)[:3]
        GridRun(compile_function(kernel.code, spec), buffers, values, grid, "forward", False).run()
    return torch.cat([t.flatten() for t in (x, y, z)]).tolist()


def answer(job: dict, folder: Path, number: int) -> dict:
    kernel = Kernel.parse(job["kernel"])
    return {"ok": True, "why": "", "left": [launch(kernel, n_cols, job["aliased"]) for n_cols in SIZES]}


if __name__ == "__main__":
    evaluate.preload()
    forking.serve(answer, {"left": []})
