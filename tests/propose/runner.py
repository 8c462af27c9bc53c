"""Runs kernels of the shipped tasks, and of those beside, in the evaluator against the reference in float64.

A process of its own. Reads lines of JSON, each a list
of jobs (`{"task", "kernel", "config", "exact"}`: a config whose blocks are made small, and values that stay), answers
one JSON line a job (`{"ok", "why", "error"}`).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import forking
import torch

from kernelsearch.core.types import LaunchFact, TensorFact
from kernelsearch.evaluate.launch import GridRun
from kernelsearch.kernel.launch import TRITON_DTYPES, make_plan
from kernelsearch.kernel.source import Kernel
from kernelsearch.worker.judging.candidate_launch import CandidateLaunch
from kernelsearch.worker.judging.evaluated_launch import bind_arguments, compile_launch
from kernelsearch.worker.launcher.arguments import resolve_arguments
from kernelsearch.worker.roles import evaluate

ROOT = Path(__file__).resolve().parents[2]
SHAPES = {
    "softmax": [dict(rows=5, cols=70), dict(rows=1, cols=1), dict(rows=3, cols=64)],
    "softmax_wide": [dict(rows=3, cols=110), dict(rows=2, cols=64), dict(rows=1, cols=1)],
    "layernorm": [dict(rows=5, cols=70), dict(rows=2, cols=2), dict(rows=3, cols=64)],
    "rmsnorm": [dict(rows=5, cols=70), dict(rows=1, cols=1), dict(rows=3, cols=64)],
    "cross_entropy": [dict(rows=3, vocab=107), dict(rows=2, vocab=64), dict(rows=1, vocab=2)],
    "swiglu": [dict(rows=5, cols=50), dict(rows=4, cols=64)],
    "column_sum": [dict(rows=50, cols=20), dict(rows=32, cols=32), dict(rows=1, cols=1)],
    "matmul": [dict(m=17, n=20, k=40), dict(m=16, n=32, k=32), dict(m=1, n=1, k=1)],
    "linear_gelu": [dict(m=17, n=20, k=40), dict(m=32, n=16, k=32)],
    "attention": [dict(batch=1, heads=2, seq=21, head_dim=16), dict(batch=1, heads=1, seq=32, head_dim=16)],
}
SMALL = {
    "TILE": 32,
    "ROWS": 2,
    "SPLIT": 3,
    "WAVES": 1,
    "GROUP": 2,
    "BLOCK": 32,
    "STAGES": 2,
    "PARTS": 4,
    "PART": 32,
    "LAG": 3,
}
NUM_SMS = 3


class Site:
    """Stands where the launcher's kernel stood; a launch is planned and run for the candidate."""

    def __init__(self, seed, kernel, config) -> None:
        self.params = seed.arg_names
        self.kernel, self.config = kernel, config
        self.name = seed.__name__

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.launch(grid, args, kwargs)

    def launch(self, grid, args, kwargs):
        passed = dict(zip(self.params, args))
        passed.update({k: v for k, v in kwargs.items() if k in self.params})
        options = {k: v for k, v in kwargs.items() if k not in self.params}
        facts = {n: _fact(v) for n, v in passed.items()}
        fact = LaunchFact(self.name, facts, options, None if callable(grid) else tuple(grid))
        grid_of = (lambda meta: tuple(grid(meta))) if callable(grid) else (lambda meta: tuple(grid))
        steps = self.kernel.steps_at(self.name, (self.name,))
        planned = make_plan(self.kernel, steps, self.config, fact, grid_of, NUM_SMS)
        scratch = {n: _buffer(b) for n, b in planned.scratch.items()}
        for step in planned.steps:
            values = resolve_arguments(step, passed, scratch)
            launch = CandidateLaunch(self.kernel, planned, step, fact, values, frozenset())
            GridRun(compile_launch(launch, 90)[0], *bind_arguments(launch), (*step.grid, 1, 1)[:3]).run()


def _fact(value):
    if isinstance(value, torch.Tensor):
        return TensorFact(TRITON_DTYPES[str(value.dtype).removeprefix("torch.")], tuple(value.shape), value.stride())
    return value


def _buffer(buffer):
    if buffer.dtype == "i32":
        return torch.full(buffer.shape, 0 if buffer.zero else -(2**31), dtype=torch.int32)
    assert buffer.dtype == "fp32"
    return torch.full(buffer.shape, 0.0 if buffer.zero else float("nan"), dtype=torch.float32)


def module_of(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def small(kernel: Kernel, config) -> dict:
    """A config whose blocks are small enough that tiny shapes have several tiles, and one that does not fit."""
    out = {}
    for name, value in {**kernel.config, **config}.items():
        base = name.rpartition(".")[2].rstrip("0123456789").rstrip("_")
        out[name] = SMALL.get(base, value)
    for name in kernel.space:
        base = name.rstrip("0123456789").rstrip("_")
        if name.startswith("BLOCK_"):
            out[name] = 16
        elif base in SMALL and name not in config:
            out[name] = SMALL[base]
        if f"tl.arange(0, {name})" in kernel.code and name in out:
            out[name] = 1 << (out[name] - 1).bit_length()
    return out


def flat(result) -> tuple:
    """The results of a function that returns one or several."""
    return result if isinstance(result, tuple) else (result,)


def judge(task: str, text: str, config: dict, folder: Path, number: int, exact: dict) -> dict:
    torch.manual_seed(number)
    beside = Path(__file__).parent / "edits" / f"{task}.py"
    module = module_of(beside if beside.exists() else ROOT / "studies" / task / f"{task}.py", f"task_{task}_{number}")
    kernel = Kernel.parse(text)
    site_name = next(n for n, v in vars(module).items() if n.endswith("_kernel"))
    setattr(module, site_name, Site(getattr(module, site_name), kernel, {**small(kernel, config), **exact}))
    worst = 0.0
    for at, shape in enumerate(SHAPES.get(task) or module.TEST_SHAPES):
        # Large attention scores make softmax ill-conditioned: a rounding of the scores is all that one would see.
        factor = 1 if at % 2 == 0 else 2 if task == "attention" else 30
        inputs = [x * factor if x.is_floating_point() else x for x in module.get_inputs(**shape)]
        want = flat(module.reference(*[x.double() if x.is_floating_point() else x for x in inputs]))
        before = [x.clone() for x in inputs]
        got = flat(getattr(module, task)(*inputs))
        if not all(torch.equal(a, b) for a, b in zip(before, inputs, strict=True)):
            return {"ok": False, "why": "an input changed", "error": None}
        pairs = zip(got, want, strict=True)
        error = max(((a.double() - b).abs().max() / (b.abs().max() + 0.1)).item() for a, b in pairs)
        worst = max(worst, error)
        if not error < 2e-5:
            return {"ok": False, "why": f"shape {shape}: relative error {error}", "error": error}
    return {"ok": True, "why": "", "error": worst}


def answer(job: dict, folder: Path, number: int) -> dict:
    return judge(job["task"], job["kernel"], job.get("config", {}), folder, number, job.get("exact", {}))


if __name__ == "__main__":
    evaluate.preload()
    forking.serve(answer, {"error": None})
