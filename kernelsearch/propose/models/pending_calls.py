"""A model's call under way: begun at one ask of the search, on a thread, and taken in at a later one.

A model thinks for seconds while a trial takes a fraction of one. The search therefore goes on while an engine that does
not disturb measurements (`ahead`) answers on a thread. A server's answers are taken in at the first ask after they
came. Those of an engine in this process are taken in a fixed number of asks later (`after`), and waited for if need
be: a run of the same seed is the same run. The call's record has that ask, by which a resumed or replayed run takes the
answers in where the first run did. A call that was not taken in before its run was killed is lost.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass

from kernelsearch.core.model_calls import ModelCall
from kernelsearch.propose.engines.base import Ask, Engine, Failure, Reply
from kernelsearch.propose.models.answers import Form


@dataclass
class PendingCall:
    """A call between its ask and its answers.

    asked is the call without its answers; or, without a reply, a stored call that has them. A resumed run has no ask.
    form is what its answers are read as; waited is in seconds; threaded: its answers come while the search goes on;
    after: the number of asks after which they are taken in, None: as soon as they are here.
    """

    asked: ModelCall
    ask: Ask | None = None
    reply: Future[Reply | Failure] | None = None
    waited: float = 0.0
    threaded: bool = False
    after: int | None = None
    form: Form | None = None

    def is_due(self, number: int) -> bool:
        """True if its answers are taken in at this ask."""
        if self.reply is None:
            return number >= self.asked.landed
        if self.after is not None:
            return number >= self.asked.number + self.after
        return self.reply.done() and number >= self.asked.number + self.reply.result().lag

    def wait(self) -> None:
        """Waits for the answers and adds the time to waited."""
        if self.reply is not None and not self.reply.done():
            started = time.monotonic()
            self.reply.result()
            self.waited += time.monotonic() - started


def begin_call(engine: Engine, asked: ModelCall, ask: Ask, form: Form | None) -> PendingCall:
    """Begins a call: on a thread of its own where the engine may be asked ahead, else with its answers on return."""
    threaded = engine.ahead and not engine.instant
    reply: Future[Reply | Failure] = Future()
    started = PendingCall(asked, ask, reply, threaded=threaded, after=engine.after if threaded else None, form=form)
    if threaded:
        threading.Thread(target=_answer, args=(engine, ask, reply), daemon=True).start()
    else:
        clock = time.monotonic()
        _answer(engine, ask, reply)
        seconds = reply.result().seconds
        started.waited = seconds if engine.instant else max(seconds, time.monotonic() - clock)
    return started


def close_engine(engine: Engine, underway: PendingCall | None) -> None:
    """Closes the engine, after the call that it is still answering.

    Nobody waits for a server. A thread that computes in this process must not outlive it, and is stopped.
    """
    if underway is None or underway.ask is None or underway.reply is None or underway.reply.done():
        engine.close()
    elif engine.after is None:
        underway.reply.add_done_callback(lambda _: engine.close())
    else:
        engine.stop(underway.ask)
        underway.reply.result()
        engine.close()


def _answer(engine: Engine, ask: Ask, reply: Future[Reply | Failure]) -> None:
    answers: Reply | Failure = Failure("the engine ended without an answer: its fault is shown above", "refused")
    try:
        answers = engine.complete(ask)
    finally:
        reply.set_result(answers)
