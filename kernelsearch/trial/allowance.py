"""What a candidate may take of an interpreter: a few seconds in all, or some times what the task's own kernel takes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

from kernelsearch.core.types import Verdict, Word
from kernelsearch.trial.bound_candidate import ALLOWED_S, BoundCandidate
from kernelsearch.trial.rejection import Rejection
from kernelsearch.worker.isolation import sandbox
from kernelsearch.worker.processes.pool import Pool
from kernelsearch.worker.processes.workers import Spent, WorkerDied, WorkerGrew, WorkerHung

SLOWER, LARGER = 8, 3
"""Times what the task's own kernel takes of processor time and of memory: so much any candidate may take."""


def ask_within(
    candidate: BoundCandidate, pool: Pool, job: Any, limit_s: float, what: Hashable, measure: Callable[[], Any]
) -> Any:
    """An interpreter's answer. Raises Rejection where that takes more than it may, and where the worker dies.

    measure asks the same (what) of the task's own kernel, where that may decide.
    """
    known, may_s, may_use, spent = candidate.bench.spent, limit_s, sandbox.machine_share(), Spent()
    if not candidate.is_seed:
        if what not in known and candidate.left_s <= 0:
            _compare(known, what, measure)
        own = known.get(what, Spent())
        may_s = min(limit_s, max(candidate.left_s, SLOWER * own.seconds))
        may_use = max(sandbox.CANDIDATE_BYTES, LARGER * own.memory)
    try:
        answer = pool.ask(job, may_s, may_use, spent)
    except (WorkerHung, WorkerGrew) as failed:
        if not candidate.is_seed and what not in known:
            own = _compare(known, what, measure)
            if min(limit_s, SLOWER * own.seconds) > may_s or LARGER * own.memory > may_use:
                return ask_within(candidate, pool, job, limit_s, what, measure)
        candidate.left_s = ALLOWED_S  # whoever asks again asks for all of it
        if isinstance(failed, WorkerGrew):
            raise Rejection(Verdict(Word.CRASH, "run", f"the interpreter worker died: {failed}")) from None
        said = f"did not finish within {may_s:.3g} s in Triton's interpreter, "
        slow = "which runs programs one by one: smaller TEST_SHAPES take less"
        own_s = known.get(what, Spent()).seconds
        said += slow if candidate.is_seed or not own_s else f"where the task's own kernel takes {own_s:.2g} s"
        raise Rejection(Verdict(Word.TIMEOUT, "run", said)) from None
    except WorkerDied as died:
        raise Rejection(Verdict(Word.CRASH, "run", f"the interpreter worker died: {died}")) from None
    if candidate.is_seed:
        known[what] = spent
    else:
        candidate.left_s -= max(0.0, spent.seconds - SLOWER * own.seconds)
    return answer


def _compare(known: dict[Hashable, Spent], what: Hashable, measure: Callable[[], Any]) -> Spent:
    """What the task's own kernel takes; nothing where it cannot be asked."""
    with suppress(Rejection):
        measure()
    return known.setdefault(what, Spent())
