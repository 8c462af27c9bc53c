"""The corpus under fixed tolerances in use elsewhere: `python studies/referee/fixed_rules.py [TASK...] [--json OUT]`.

Each kernel of tests/cheats that the gate lets through runs on each task's own inputs (its `get_inputs`, five
seeds, every test shape and those timed sizes that the interpreter can afford), and its outputs are held against
eager PyTorch by each rule. So a rule gets what its harness would have: the task's own inputs, fixed tolerances, eager
as the answer. What a harness does besides (static checks, timing checks) is not part of it.

The rules, as read in the projects' sources in November 2026:
- KernelBench, first form: `torch.allclose(expected, got, atol=1e-2, rtol=1e-2)`
- KernelBench, present form: the same with 1e-4 for float32 and 1e-2 for 16-bit outputs
- SOL-ExecBench: |got - expected| <= 1e-2 + 1e-2 |expected| for every element, non-finite differences fail
- flashinfer-bench: an element fails when its absolute error exceeds 1e-2 *and* its relative error exceeds 1e-2; none
  may, and none may be non-finite
- robust-kbench: `torch.allclose` with atol = rtol = 1e-5
- `torch.testing.assert_close` with its defaults: rtol 1.3e-6, atol 1e-5 for float32; 1e-3 and 1e-5 for float16;
  1.6e-2 and 1e-5 for bfloat16
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "cheats"))

import corpus

from kernelsearch.core.types import Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks.load import load
from kernelsearch.trial import Evaluation, Rejection, referee
from kernelsearch.trial.bench import Bench
from kernelsearch.verify import gate
from kernelsearch.worker.judging.planning import add_long_shapes
from kernelsearch.worker.launcher import tensors
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.workers import WorkerDied, WorkerHung

SEEDS = 5
LIMIT_S = 15.0


def _close(rtol: float, atol: float) -> Callable[[torch.Tensor, torch.Tensor], bool]:
    return lambda got, expected: torch.allclose(got, expected, rtol=rtol, atol=atol)


def _kernelbench_now(got: torch.Tensor, expected: torch.Tensor) -> bool:
    tolerance = 1e-4 if expected.dtype is torch.float32 else 1e-2
    return torch.allclose(got, expected, rtol=tolerance, atol=tolerance)


def _sol(got: torch.Tensor, expected: torch.Tensor) -> bool:
    error = (got.float() - expected.float()).abs()
    return bool((torch.isfinite(error) & (error <= 1e-2 + 1e-2 * expected.float().abs())).all())


def _flashinfer(got: torch.Tensor, expected: torch.Tensor) -> bool:
    error = (got.float() - expected.float()).abs()
    finite = bool(torch.isfinite(got).all())
    return finite and not bool(((error > 1e-2) & (error / (expected.float().abs() + 1e-8) > 1e-2)).any())


def _assert_close(got: torch.Tensor, expected: torch.Tensor) -> bool:
    try:
        torch.testing.assert_close(got, expected)
    except AssertionError:
        return False
    return True


RULES = {
    "KernelBench 1e-2": _close(1e-2, 1e-2),
    "KernelBench now": _kernelbench_now,
    "SOL-ExecBench": _sol,
    "flashinfer-bench": _flashinfer,
    "robust-kbench": _close(1e-5, 1e-5),
    "assert_close": _assert_close,
}


def outputs_of(
    bench: Bench, evaluation: Evaluation, kernel: Kernel, case: jobs.JudgedCase, inputs: tuple
) -> list | str:
    """What the kernel gives for these inputs; a word when it does not finish, or is stopped at a wrong access."""
    config = referee.config_of(kernel, bench.facts)
    packed = (tuple(tensors.pack(v) for v in inputs),)
    try:
        candidate = evaluation.bind(kernel, config)
        if bench.device is None:
            job = jobs.Evaluate(bench.path, candidate.message(code=True), (case.shape,), packed)
            runs = bench.evaluators.ask(job, LIMIT_S)
        else:
            binaries, message = candidate.compile((case.shape,)), candidate.message(code=False)
            runs = evaluation.stages.run_job(
                candidate, binaries, lambda b: jobs.RunCases(bench.path, message, b, (case.shape,), packed)
            )
    except Rejection as rejected:
        return rejected.verdict.word.value
    except (WorkerHung, WorkerDied) as failed:
        return (Word.TIMEOUT if isinstance(failed, WorkerHung) else Word.CRASH).value
    return runs[0].verdict.word.value if runs[0].verdict is not None else [tensors.unpack(o) for o in runs[0].outputs]


_ASKED: dict[tuple, tuple[tuple, torch.Tensor]] = {}


def asked(task, case: jobs.JudgedCase, seed: int) -> tuple[tuple, torch.Tensor]:
    """The task's own inputs, and eager's answer; made once for all kernels."""
    key = (task.digest, case.shape, seed)
    if key not in _ASKED:
        built = task.build(case.shape, seed, "cpu")
        inputs = tuple(built.inputs)
        _ASKED[key] = inputs, built.reference(*inputs)
    return _ASKED[key]


def passes(bench: Bench, task, cases: list[jobs.JudgedCase], text: str) -> dict[str, bool] | str:
    """Which rules accept a kernel on all inputs; a word when it gives no outputs that a rule could be asked about."""
    if not gate.check(text).accepted:
        return "reject-static"
    kernel, evaluation = Kernel.parse(text), Evaluation(bench, limit_s=LIMIT_S)
    held = dict.fromkeys(RULES, True)
    for case in cases:
        for seed in range(SEEDS if case.shape.startswith("test:") else 1):
            inputs, expected = asked(task, case, seed)
            got = outputs_of(bench, evaluation, kernel, case, inputs)
            if got == "timeout" and not case.shape.startswith("test:"):
                break  # too slow for the interpreter: not asked at this size
            if isinstance(got, str):
                return got
            for name, rule in RULES.items():
                held[name] = held[name] and rule(got[0], expected)
    return held


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("tasks", nargs="*", default=list(corpus.STUDIED))
    options.add_argument("--json", dest="out")
    given = options.parse_args()
    rows = []
    for name in given.tasks:
        entries = [e for e in corpus.entries() if e.task == name]
        with Bench.open(entries[0].task_file) as bench:
            task = add_long_shapes(load(entries[0].task_file))
            known = {c.shape: c for c in bench.cases("full") if c.probe is None and not c.padded and not c.sampled}
            cases = [replace(c, regime="randn") for c in known.values()]
            for entry in entries:
                held = passes(bench, task, cases, entry.text)
                rows.append({"file": entry.path.name, "honest": entry.honest, "rules": held})
                print(entry.path.name, held if isinstance(held, str) else [k for k, v in held.items() if v], flush=True)
    ran = [r for r in rows if not isinstance(r["rules"], str)]
    cheats, honest = [r for r in ran if not r["honest"]], [r for r in ran if r["honest"]]
    words = Counter(r["rules"] for r in rows if isinstance(r["rules"], str))
    print(f"\nno outputs to judge: {dict(words)}; {len(cheats)} cheats and {len(honest)} honest kernels gave outputs\n")
    print("| rule | cheats let through | honest rejected |\n|---|---|---|")
    for rule in RULES:
        through = [r["file"] for r in cheats if r["rules"][rule]]
        wronged = [r["file"] for r in honest if not r["rules"][rule]]
        print(f"| {rule} | {len(through)} of {len(cheats)} | {len(wronged)} of {len(honest)} |")
    if given.out:
        Path(given.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
