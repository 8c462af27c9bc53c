"""Judges a candidate by an evaluation of the compiler's IR, where the evaluator knows all that the kernel does."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from kernelsearch.core.types import Verdict, Word
from kernelsearch.evaluate.faults import NOT_EVALUATED
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.rejection import Rejection, ask_within
from kernelsearch.worker.messages import jobs

FEW = 0.02
"""Where a 16-bit score is rounded to its neighbour, weights of nearly equal scores change places: few elements are
wrong then. Up to this share of them does not decide: float32 twins in Triton's interpreter do, without such rounding.
"""


def evaluate_cases(
    candidate: BoundCandidate,
    cases: tuple[jobs.JudgedCase, ...],
    order: str,
    depth: str,
    judged: bool,
    limits: tuple[float, int],
    measure: Callable[[], Verdict],
) -> tuple[Verdict, tuple[jobs.Ran, ...]] | None:
    """The verdict on these cases and their runs; None where the candidate does what the evaluator does not know.

    limits are the seconds that one run may take, and the number of multiprocessors that a launch sees. measure asks the
    same of the task's own kernel. Without judged no answer is compared with the right one.
    """
    bench, digest = candidate.bench, candidate.kernel.digest
    if bench.evaluators is None or digest in bench.unevaluated:
        return None
    shapes, inputs = tuple(c.shape for c in cases), bench.inputs(cases, twin=False)
    sampled = tuple(c.seed + 1 if c.sampled else 0 for c in cases)
    job = jobs.Interpret(bench.path, candidate.message(code=True), shapes, inputs, order, (), sampled, limits[1])
    try:
        runs = ask_within(candidate, bench.evaluators, job, limits[0], ("evaluate", cases, order), measure)
    except Rejection as rejected:
        return replace(rejected.verdict, depth=depth), ()
    if failed := next((r.verdict for r in runs if r.verdict is not None), None):
        if failed.stage == NOT_EVALUATED:
            bench.unevaluated[digest] = failed.reason
            return None
        return replace(failed, depth=depth), ()
    if not judged:
        return Verdict(Word.ACCEPT, "run", depth=depth), runs
    verdict = bench.judge_runs(cases, runs, depth, twin=False)
    if is_rounding(verdict, cases):
        bench.unevaluated[digest] = verdict.reason
        return None
    return refuse_suspect(verdict, runs), runs


def refuse_suspect(verdict: Verdict, runs: tuple[jobs.Ran, ...]) -> Verdict:
    """The verdict; one that accepts refuses what a kernel did in these runs that no right kernel needs to do."""
    suspect = next((r.suspect for r in runs if r.suspect), "")
    return Verdict(Word.MEMORY, "run", suspect, verdict.depth) if verdict.accepted and suspect else verdict


def is_rounding(verdict: Verdict, cases: tuple[jobs.JudgedCase, ...]) -> bool:
    """Whether a verdict refuses a few elements of a case of 16-bit floats by a finite error."""
    at = verdict.detail.get("shape"), verdict.detail.get("regime")
    finite = verdict.error_ratio not in (None, math.inf)
    few = verdict.detail.get("wrong", 1) <= FEW * verdict.detail.get("of", 0)
    half = any(c.half for c in cases if (c.shape, c.regime) == at)
    return verdict.word is Word.WRONG and finite and few and half
