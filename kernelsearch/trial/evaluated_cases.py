"""Judges a candidate by an evaluation of the compiler's IR, where the evaluator knows all that the kernel does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernelsearch.core.types import Verdict, Word
from kernelsearch.evaluate.faults import NOT_EVALUATED
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.rejection import Rejection, ask_within
from kernelsearch.worker.messages import jobs


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
    return refuse_suspect(verdict, runs), runs


def refuse_suspect(verdict: Verdict, runs: tuple[jobs.Ran, ...]) -> Verdict:
    """The verdict; one that accepts refuses what a kernel did in these runs that no right kernel needs to do."""
    suspect = next((r.suspect for r in runs if r.suspect), "")
    return Verdict(Word.MEMORY, "run", suspect, verdict.depth) if verdict.accepted and suspect else verdict
