"""A model's call under way: begun at one ask of the search, on a thread, and taken in at a later one.

A model thinks for seconds while a trial takes a fraction of one. An engine that does its work elsewhere (`ahead`) is
therefore asked on a thread, the search goes on, and the answers are taken in at the first ask after they came. That
ask is recorded with the call, so that a resumed run and a replayed one take them in where the first run did. A call
that nobody took in before its run was killed is lost, and the resumed run goes on without it.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass

from kernelsearch.calls import ModelCall
from kernelsearch.propose.engines.base import Ask, Engine, Failure, Reply
from kernelsearch.propose.grammar import Grammar
from kernelsearch.propose.repair import Failed
from kernelsearch.source import Kernel


@dataclass(frozen=True)
class Asked:
    """What a call was made for: the ask of the search, who asked, the parent with its grammar, what it was to do."""

    number: int
    arm: str
    parent: Kernel
    grammar: Grammar
    idea: str
    action: str
    failed: Failed | None
    ask: Ask


@dataclass
class Underway:
    """A call between its ask and its answers.

    known is the stored call that it repeats, asked is None where a resumed run only knows that; waited is in seconds;
    threaded: its answers come while the search goes on.
    """

    asked: Asked | None
    reply: Future[Reply | Failure] | None = None
    known: ModelCall | None = None
    waited: float = 0.0
    threaded: bool = False

    def due(self, number: int) -> bool:
        """Whether its answers are to be taken in at this ask: they are here, and no record says a later one."""
        if self.known is not None:
            return number >= self.known.landed
        return self.reply.done() and number >= self.asked.number + self.reply.result().lag

    def wait(self) -> None:
        if self.reply is not None:
            started = time.monotonic()
            self.reply.result()
            self.waited += time.monotonic() - started


def ahead(engine: Engine) -> bool:
    """Whether the search may go on while this engine answers."""
    return getattr(engine, "ahead", False)


def begun(engine: Engine, asked: Asked) -> Underway:
    """The call, on a thread of its own where the engine may be asked ahead; else its answers are there on return."""
    instant = getattr(engine, "instant", False)
    threaded = ahead(engine) and not instant
    started = Underway(asked, Future(), threaded=threaded)
    if threaded:
        threading.Thread(target=_answered, args=(engine, asked.ask, started.reply), daemon=True).start()
    else:
        clock = time.monotonic()
        _answered(engine, asked.ask, started.reply)
        said = started.reply.result()
        started.waited = said.seconds if instant else max(said.seconds, time.monotonic() - clock)
    return started


def closed(engine: Engine, underway: Underway | None) -> None:
    """Closes the engine, after the call that it is still answering; nobody waits for that one any more."""
    if underway is None or underway.reply is None or underway.reply.done():
        engine.close()
    else:
        underway.reply.add_done_callback(lambda _: engine.close())


def _answered(engine: Engine, ask: Ask, reply: Future) -> None:
    said: Reply | Failure = Failure("the engine ended without an answer: its fault is shown above", "refused")
    try:
        said = engine.complete(ask)
    finally:
        reply.set_result(said)
