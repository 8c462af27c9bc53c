"""A look for races beside the GPU: what the evaluator's log of accesses sees, and a schedule may hide in every run.

The programs of a small grid all load before any of them stores, so on a GPU a race between them may always give the
right answer. The look refuses for races and accesses outside of buffers alone: values are the GPU's business, and what
crashes or takes too long there says nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kernelsearch.core.errors import KernelsearchError
from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.blocks import Block
from kernelsearch.kernel.source import GLUON
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.bound_candidate import BoundCandidate, has_atomics
from kernelsearch.trial.profile import evaluated_key
from kernelsearch.trial.rejection import Rejection
from kernelsearch.trial.unrun_blocks import UNRUN, Seen
from kernelsearch.trial.without_gpu import FEW_SMS, LONG_LIMIT_S, ORDERS, Evaluating, add_note, asks_for_sms, judge_seed
from kernelsearch.worker.messages import jobs

LIMIT_S = 10.0
"""Seconds of each evaluator's work on one candidate after which no other shape is looked at: the queue is no work."""
WAIT_S = 60.0
"""Seconds that a verdict of the GPU waits for the look, which has then begun to open the task without one."""
ACCUSING = (Word.RACE, Word.MEMORY)
UNIMPORTANT = (Word.ACCEPT, Word.WRONG, Word.PRECISION)
"""Verdicts that tell nothing of races."""
RACES = "races"
"""The field of a verdict's detail: the shapes that were looked at (`shapes`), and why others were not (`unseen`)."""
EVERYWHERE, TOO_SLOW, NO_TIME, STOPPED = "all shapes", "too slow", "no time was left", "it was refused meanwhile"
SEEN = "seen in the evaluator: "


@dataclass(frozen=True)
class Look:
    """What was seen: the verdict that refuses, if any, the shapes looked at, each other one with the reason, blocks
    that did not run, and notes on the task's own launcher.
    """

    refusal: Verdict | None = None
    shapes: tuple[str, ...] = ()
    unseen: tuple[tuple[str, str], ...] = ()
    unrun: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def begin_look(candidate: BoundCandidate) -> Future[Look]:
    """Begins to look at a candidate of a bench with a device, in a thread of its own."""
    _list_stopped(candidate).discard(evaluated_key(candidate))
    thread = ThreadPoolExecutor(1, thread_name_prefix="look")
    look = thread.submit(_look_once, candidate)
    thread.shutdown(wait=False)
    return look


def stop_look(candidate: BoundCandidate) -> None:
    """Ends a look whose candidate the GPU has refused: the next one waits for the evaluators."""
    _list_stopped(candidate).add(evaluated_key(candidate))


def _list_stopped(candidate: BoundCandidate) -> set[Any]:
    return candidate.bench.once("stopped looks", set)


def add_look(verdict: Verdict, begun: Future[Look]) -> Verdict:
    """An accepting verdict with what was looked at in its detail. Raises Rejection for what was seen."""
    try:
        look = begun.result(WAIT_S)
    except TimeoutError:
        look = Look(unseen=((EVERYWHERE, TOO_SLOW),))
    if look.refusal is not None:
        raise Rejection(look.refusal)
    for note in look.notes:
        verdict = add_note(verdict, note)
    shapes_by_why: dict[str, list[str]] = {}
    for shape, why in look.unseen:
        shapes_by_why.setdefault(why, []).append(shape)
    unseen = [f"{', '.join(shapes)}: {why}" for why, shapes in shapes_by_why.items()]
    races = {"shapes": list(look.shapes), "unseen": unseen}
    return replace(verdict, detail={**verdict.detail, RACES: races, **look.unrun})


def _look_once(candidate: BoundCandidate) -> Look:
    """The look, which is remembered by what the evaluator sees of a candidate."""
    bench = candidate.bench
    if candidate.kernel.language == GLUON:
        return Look(unseen=((EVERYWHERE, "it does not know Gluon"),))
    try:
        beside = bench.once("evaluators", bench.open_evaluators)
        evaluated = BoundCandidate(beside, candidate.kernel, candidate.config)
        key, stopped = evaluated_key(candidate), _list_stopped(candidate)
        return bench.once(f"{RACES}/{key}", lambda: look_for_races(evaluated, lambda: key in stopped), _is_cut)
    except KernelsearchError as error:
        return Look(unseen=((EVERYWHERE, str(error)),))


def _is_cut(look: Any) -> bool:
    """Whether another look may see more, because a shape took long in this one, maybe by chance, or it was stopped."""
    return isinstance(look, Look) and not look.refusal and any(why in (TOO_SLOW, STOPPED) for _, why in look.unseen)


class TimeLeft:
    """Seconds of work that are left to one look, which several evaluators spend."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()

    @contextmanager
    def spend(self) -> Iterator[None]:
        """Takes off what is done in this context."""
        started = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self.seconds -= time.monotonic() - started


def look_for_races(candidate: BoundCandidate, is_stopped: Callable[[], bool] = lambda: False) -> Look:
    """The look at a candidate of a bench without a device: every test shape, and the sizes made of the timed ones.

    Looks at several candidates share the evaluators in the order in which they began. One that is stopped begins no
    other shape.
    """
    bench, refused = candidate.bench, threading.Event()
    assert bench.evaluators is not None
    size = bench.evaluators.size
    threads = bench.once("looks", lambda: ThreadPoolExecutor(size, thread_name_prefix="look"))
    left, seen = TimeLeft(LIMIT_S * size), Seen()

    def look(case: jobs.JudgedCase) -> Look:
        if is_stopped():
            return Look(unseen=((case.shape, STOPPED),))
        look = Look() if refused.is_set() else look_at(candidate, case, left, seen)
        if look.refusal:
            refused.set()
        return look

    looks = list(threads.map(look, _choose_cases(bench)))
    for case in bench.cases("full"):  # other values may run what is left
        if UNRUN in seen.describe(candidate) and left.seconds > 0 and not is_stopped() and case.kind not in jobs.LARGE:
            _judge(candidate, replace(case, sampled=True), FEW_SMS, left, seen)
    own = tuple(c for c in bench.cases("full") if c.kind == "test" and not (c.sampled or c.seeded))
    return Look(
        next((look.refusal for look in looks if look.refusal), None),
        tuple(bench.labels.get(shape, shape) for look in looks for shape in look.shapes),
        tuple((bench.labels.get(shape, shape), why) for look in looks for shape, why in look.unseen),
        seen.describe(candidate),
        tuple(Evaluating(candidate, LONG_LIMIT_S).list_spare_fills(own)) if candidate.is_seed else (),
    )


def _choose_cases(bench: Bench) -> list[jobs.JudgedCase]:
    """A case of every shape: the task's own first, and last those with large grids, which may be long."""
    first: dict[str, jobs.JudgedCase] = {}
    for case in bench.cases("full"):
        first.setdefault(case.shape, case)
    return sorted(first.values(), key=lambda c: (c.sampled, c.kind in jobs.LARGE))


def look_at(candidate: BoundCandidate, case: jobs.JudgedCase, left: TimeLeft, seen: Seen) -> Look:
    """The look at one case, for few multiprocessors and for the device's.

    A candidate is accused in vain where the task's own kernel is not right: its launcher may take multiples only, or do
    what the log does not understand.
    """
    if left.seconds <= 0:
        return Look(unseen=((case.shape, NO_TIME),))
    many = (candidate.bench.target.num_sms,) if asks_for_sms(candidate.kernel, candidate.config) else ()
    verdicts = (_judge(candidate, case, sms, left, seen) for sms in (FEW_SMS, *many))
    verdict = next((v for v in verdicts if v.word not in UNIMPORTANT), None)
    if verdict is None:
        return Look(shapes=(case.shape,))
    if verdict.word is Word.TIMEOUT:
        return Look(unseen=((case.shape, TOO_SLOW),))
    seed = judge_seed(candidate.bench, case, LONG_LIMIT_S)
    if not seed.accepted and case.kind == "odd":
        return look_at(candidate, replace(case, shape=jobs.even_key(case.shape)), left, seen)
    if verdict.word in ACCUSING and seed.accepted:
        return Look(replace(verdict, reason=f"{SEEN}{verdict.reason}"))
    why = verdict.reason if seed.accepted else f"the task's own kernel is refused there too, {seed.reason}"
    return Look(unseen=((case.shape, why),))


def _judge(candidate: BoundCandidate, case: jobs.JudgedCase, sms: int, left: TimeLeft, seen: Seen) -> Verdict:
    """The evaluator's verdict. Answers matter only behind atomic operations, where they alone show a race."""
    runs = Evaluating(candidate, LONG_LIMIT_S, sms, seen)
    with left.spend():
        if has_atomics(candidate.kernel) and not case.sampled:
            return runs.judge_size(case)
        return runs.run((case,), "forward" if case.sampled else ORDERS[0], judged=False)
