"""A task, a kernel for it in two launches with scratch, and rows about them, written by hand."""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from kernelsearch.core.formats import BETWEEN, CLAIMS, FAILED
from kernelsearch.core.types import (
    Measurement,
    Outcome,
    Proposal,
    ProposalKind,
    Referee,
    ShapeTime,
    Trial,
    Verdict,
    Word,
)
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import RunFacts, Structure
from kernelsearch.record.store import Store

TASK = '''\
# SPDX-License-Identifier: Apache-2.0
# Copyright of its owner
"""Sums over the rows of x scaled by a transposed gate: strides, a grid that is a function, two kernels."""

import torch
import triton
import triton.language as tl

SHIFT = 1.5


def reference(x, gate, twice=False, bias=None, *, shift: float = SHIFT, limit=float("inf")):
    y = (x * gate.t()).sum(dim=0) + shift + (0.0 if bias is None else bias)
    return y * 2 if twice else y


def get_inputs(rows=256, cols=64):
    return [torch.randn(rows, cols), torch.randn(cols, rows), True]


SHAPES = [dict(rows=256, cols=64), dict(rows=64, cols=128)]
TEST_SHAPES = [dict(rows=33, cols=17), dict(rows=1, cols=1)]
SPACE = {"sums_kernel.BLOCK_R": [16, 32], "sums_kernel.BLOCK_C": [16, 32], "num_warps": [1, 2]}


@triton.jit
def sums_kernel(x_ptr, g_ptr, s_ptr, x_stride, g_stride, n_rows, n_cols, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    total = tl.zeros([BLOCK_C], dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_R):
        rows = start + tl.arange(0, BLOCK_R)
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=mask, other=0.0)
        g = tl.load(g_ptr + cols[None, :] * g_stride + rows[:, None], mask=mask, other=0.0)
        total += tl.sum(x * g, axis=0)
    tl.store(s_ptr + cols, total, mask=cols < n_cols)


@triton.jit
def shift_kernel(s_ptr, y_ptr, n, shift, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, (tl.load(s_ptr + at, mask=at < n) + shift) * scale, mask=at < n)


# What it launches is counted by nobody.
def gated_sum(x, gate, twice=False, bias=None, shift=SHIFT, limit=float("inf"), block=64):
    sums = torch.empty(x.shape[1], device=x.device)
    grid = lambda meta: (triton.cdiv(x.shape[1], meta["BLOCK_C"]),)  # noqa: E731
    sums_kernel[grid](x, gate, sums, x.stride(0), gate.stride(0), x.shape[0], x.shape[1],
                      BLOCK_R=16, BLOCK_C=16, num_warps=2)
    y = torch.empty_like(sums)
    grid = (triton.cdiv(sums.numel(), block),)
    shift_kernel[grid](sums, y, sums.numel(), shift, 2.0 if twice else 1.0, BLOCK=block)
    return y


def unused():
    import numpy
    return numpy
'''

SPLIT = """\
import triton
import triton.language as tl

GRID = {"part_kernel": "(cdiv(n_cols, BLOCK_C), SPLIT)"}
ARGS = {"part_kernel": {"n_share": "cdiv(shape(x_ptr, 0), SPLIT)"}}
SCRATCH = {"part_ptr": ("float32", "(SPLIT, n_cols)", 0)}
LAUNCHES = {"sums_kernel": ["part_kernel", "sums_kernel"]}
SPACE = {"SPLIT": [2, 4], "BLOCK_C": [16, 32], "BLOCK_R": [16, 32], "num_warps": [1, 2]}


@triton.jit
def part_kernel(
    x_ptr, g_ptr, part_ptr, x_stride, g_stride, n_rows, n_cols, n_share,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, SPLIT: tl.constexpr,
):
    cols = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    part = tl.program_id(1)
    total = tl.zeros([BLOCK_C], dtype=tl.float32)
    for start in range(part * n_share, tl.minimum((part + 1) * n_share, n_rows), BLOCK_R):
        rows = start + tl.arange(0, BLOCK_R)
        mask = (rows[:, None] < tl.minimum((part + 1) * n_share, n_rows)) & (cols[None, :] < n_cols)
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=mask, other=0.0)
        g = tl.load(g_ptr + cols[None, :] * g_stride + rows[:, None], mask=mask, other=0.0)
        total += tl.sum(x * g, axis=0)
    tl.store(part_ptr + part * n_cols + cols, total, mask=cols < n_cols)


@triton.jit
def sums_kernel(s_ptr, part_ptr, n_cols, SPLIT: tl.constexpr, BLOCK_C: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    total = tl.zeros([BLOCK_C], dtype=tl.float32)
    for part in range(SPLIT):
        total += tl.load(part_ptr + part * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(s_ptr + cols, total, mask=cols < n_cols)
"""

CONFIG = {"BLOCK_C": "next_power_of_2(min(n_cols, 16))", "BLOCK_R": 32, "SPLIT": 2, "num_warps": 1}
OTHER = {"BLOCK_C": 32, "BLOCK_R": 16, "SPLIT": 4, "num_warps": 2}
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def finding(kernel, config, times, device, ratios=(2.0, 1.5)):
    """What the confirmed protocol says, as `report.findings.build_finding` makes it."""

    def interval(ratio):
        return {"ratio": ratio, "low": ratio - 0.01, "high": ratio + 0.01}

    shapes = [
        {"shape": f"timed:{i}", "label": f"shape {i}", "time_us": t, "spread_us": 0.1, "samples": 80, "blocks": 40,
         "dropped": 0, "drop_reasons": [], "clocks": {"sm_mhz": 1980.0, "memory_mhz": 2619.0},
         "fastest": "max-autotune",
         "vs_fastest": interval(r), "vs_seed": interval(10 / t), "control": interval(1.0), "roofline": 0.9,
         "launch_bound": False, "outputs_judged": 8, "wall_us": t, "kernel_us": t, "notes": [],
         "baselines": [{"name": n, "time_us": us, "spread_us": 0.1, **interval(us / t)}
                       for n, us in (("max-autotune", t * r), ("seed", 10.0))]}
        for i, (t, r) in enumerate(zip(times, ratios))
    ]  # fmt: skip
    return {"kernel": kernel.digest, "name": kernel.digest[:8], "config": dict(config), "device": device,
            "protocol": "confirmed-1", "status": "confirmed", "reason": "", "faster": True, "time_us": times[0],
            "vs_seed": interval(2.0), "vs_fastest": interval(1.7), "level": 0.99, "aa_spread": 0.002, "roofline": 0.9,
            "launch_bound": False, "shapes": shapes}  # fmt: skip


def trial(number, kernel, config, times, evidence, device, parent=None, claims=None, failed=()):
    measurement = Measurement(
        evidence, device, "search-1", tuple(ShapeTime(f"timed:{i}", t) for i, t in enumerate(times))
    )
    verdict = Verdict(
        Word.ACCEPT, "judge", depth="full", error_ratio=0.4, referee=Referee("gpu", ("seccomp",)),
        detail={CLAIMS: {BETWEEN: [True]} if claims is None else claims, FAILED: list(failed)},
    )  # fmt: skip
    proposal = Proposal(ProposalKind.REWRITE, (parent,)) if parent else Proposal(ProposalKind.SEED)
    label = "split" if parent else None
    return Trial(number, proposal, kernel.digest, config, Outcome(verdict, measurement), times[0] / 10.0, label, "why")


def write_seed_run(path, facts, times, evidence, device, kernels=(), claims=None, settings=None, failed=()):
    """A database with a run of the task's own kernel and of (kernel, config, times)s that a split made of it."""
    seed = Kernel.parse(facts.seed)
    with Store.open(path) as store:
        settings, versions = settings or {}, {"triton": "3.7.1"}
        run = store.add_run(facts, RunFacts("evolve", "edits", 0, 1, 1 + len(kernels), device, versions, settings))
        store.add_trial(
            run, trial(0, seed, facts.config, times, evidence, device, None, claims, failed), Structure(seed, 0)
        )
        steps = {k.digest: number for number, (k, _, _) in reversed([*enumerate(kernels, 1)])}
        for number, (kernel, config, its_times) in enumerate(kernels, 1):
            step = Structure(kernel, steps[kernel.digest], seed.digest, "split_reduction", 'many "programs" share')
            first = step if steps[kernel.digest] == number and kernel.digest != seed.digest else None
            told = trial(number, kernel, config, its_times, evidence, device, seed.digest, claims, failed)
            store.add_trial(run, told, first)
        store.finish_run(run)
    return path


FORKING = """
import json, os, sys, traceback
import pytest, torch, torch._dynamo, torch.testing._internal.optests, triton, triton.language
for line in sys.stdin:
    job = json.loads(line)
    if not (child := os.fork()):
        for number in (1, 2):
            os.dup2(os.open(job["said"][number - 1], os.O_WRONLY | os.O_CREAT), number)
        os.chdir(job["cwd"])
        sys.path[1:1], code = job["paths"], 0
        try:
            exec(compile(job["code"], "<string>", "exec"), {"__name__": "__main__"})
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _forking(**environment):
    """A process that has imported torch and triton, which takes three seconds, and forks one for each code."""
    command, pipe = [sys.executable, "-c", FORKING], subprocess.PIPE
    return subprocess.Popen(command, env={**os.environ, **environment}, stdin=pipe, stdout=pipe, text=True)


def run_python(code, *paths, **environment):
    """A process that has these folders on its search path; it is forked from one that has imported torch and triton."""
    server = _forking(**environment)
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in ("out", "err")]
        job = {"code": code, "paths": list(map(str, paths)), "cwd": os.getcwd(), "said": list(map(str, said))}
        print(json.dumps(job), file=server.stdin, flush=True)
        returned = int(server.stdout.readline())
        return subprocess.CompletedProcess(code, returned, *(path.read_text() for path in said))


def run_fresh(code, *paths):
    """The same in a process that nothing has prepared."""
    whole = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return subprocess.run([sys.executable, "-c", code], env=whole, capture_output=True, text=True)


def run_own_tests(out, name):
    """The tests that a package in this folder brings."""
    arguments = ["-q", "-p", "no:cacheprovider", "--pyargs", name]
    return run_python(f"import os, sys, pytest\nos.chdir({str(out)!r})\nsys.exit(pytest.main({arguments}))", out)


def imported(folder, name):
    """An exported package, imported from its folder under its own name."""
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
