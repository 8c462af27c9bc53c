"""What ends an evaluation: the exception, verdicts that chance may have decided, and limits of an evaluation."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

from kernelsearch.core.types import Verdict, Word
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import Pool
from kernelsearch.worker.processes.workers import Spent, WorkerDied, WorkerGrew, WorkerHung

T = TypeVar("T")

ALLOWED_S, ALLOWED_BYTES = 15.0, 2 << 30
"""Processor time that all evaluations of a candidate may take together, and memory that each may."""
SAMPLED_S = 30.0
"""Processor time of one evaluation of a large grid."""
SLOWER, LARGER = 8, 3
"""Times what the task's own kernel takes of both there: so much is always allowed."""
CHANCE = (Word.TIMEOUT, Word.CRASH)
"""Verdicts that may differ on another day or a less busy machine."""
NEAR = 1.1
"""Errors of up to so many times the limit are judged on a second draw of the values: of 11,834 full verdicts on honest
kernels four were refused at 1.01 (studies/referee/false_rejections.py), of wrong ones few miss a limit so closely.
"""
REDRAW = 1_000_003
"""What a second draw adds to all seeds: what one case's scales have to do with another's stays."""


def is_by_chance(answer: Any) -> bool:
    """Whether a verdict, or an object that carries one, may differ next time."""
    verdict = getattr(answer, "verdict", answer)
    return isinstance(verdict, Verdict) and verdict.word in CHANCE


def try_twice(judge: Callable[[], Verdict]) -> Verdict:
    """The verdict, from a second attempt if chance may have decided the first: one fault proves nothing."""
    verdict = judge()
    return judge() if is_by_chance(verdict) else verdict


def is_near(verdict: Verdict) -> bool:
    """Whether a verdict refuses an error that misses the limit by a hair."""
    return verdict.word is Word.WRONG and (verdict.error_ratio or math.inf) <= NEAR


def redraw(cases: jobs.JudgedCases) -> jobs.JudgedCases:
    """The same cases with other values."""
    return tuple(replace(case, seed=case.seed + REDRAW) for case in cases)


def judge_near_twice(judge: Callable[[jobs.JudgedCases], T], cases: jobs.JudgedCases) -> T:
    """What judge gives for these cases, or for a second draw of them where it refuses the first by a hair."""
    try:
        return judge(cases)
    except Rejection as rejected:
        if not is_near(rejected.verdict):
            raise
    return judge(redraw(cases))


def hide_drawn(verdict: Verdict) -> Verdict:
    """A refusal without the sizes that were drawn in secret: who proposes next is judged at the same ones."""
    if verdict.accepted or not str(verdict.detail.get("shape")).startswith("drawn:"):
        return verdict
    shown = {n: v for n, v in verdict.detail.items() if n not in ("index", "rows", "wrong", "of")}
    reason = re.sub(r"first at \[[^]]*]: (expected [^;]*);[^)]*", r"\1", verdict.reason)
    return replace(verdict, reason=reason, detail={**shown, "shape": "drawn", "label": "sizes drawn in secret"})


class Rejection(Exception):
    """Carries the verdict that ends an evaluation."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


def ask_within(candidate: Any, pool: Pool, job: Any, limit_s: float, what: Hashable, measure: Callable) -> Any:
    """An evaluator's answer about a BoundCandidate. Raises Rejection if it takes too much or its worker dies.

    measure asks the same (what) of the task's own kernel, where that may decide.
    """
    known, may_s, may_use, spent = candidate.bench.spent, limit_s, None, Spent()
    own, sampled = known.get(what, Spent()), getattr(job, "sampled", None)
    slow_s = limit_s if sampled is None else SAMPLED_S * any(sampled)  # a count is at timed shapes
    if not candidate.is_seed:
        may_s = min(limit_s, max(candidate.left_s, SLOWER * own.seconds, slow_s))
        may_use = max(ALLOWED_BYTES, LARGER * own.memory)
    try:
        answer = pool.ask(job, may_s, may_use, spent)
    except (WorkerHung, WorkerDied) as failed:
        if what not in known and (may_s < limit_s or (may_use and isinstance(failed, WorkerGrew))):
            known[what] = Spent()
            measure()
            own = known[what]
            if min(limit_s, SLOWER * own.seconds) > may_s or LARGER * own.memory > may_use:
                return ask_within(candidate, pool, job, limit_s, what, measure)
        candidate.left_s = ALLOWED_S  # whoever asks again asks for all of it
        if isinstance(failed, WorkerDied):
            raise Rejection(Verdict(Word.CRASH, "run", f"the evaluator died: {failed}")) from None
        slow = "on a CPU: smaller TEST_SHAPES take less"
        said = f"where the task's own kernel takes {own.seconds:.2g} s" if own.seconds else slow
        reason = f"did not finish within {may_s:.3g} s without a GPU, {said}"
        raise Rejection(Verdict(Word.TIMEOUT, "run", reason)) from None
    if candidate.is_seed:
        known[what] = spent
    else:
        candidate.left_s -= max(0.0, spent.seconds - max(slow_s, SLOWER * own.seconds))
    return answer
