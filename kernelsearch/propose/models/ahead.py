"""A model's call under way: begun at one ask of the search, on a thread, and taken in at a later one.

A model thinks for seconds while a trial takes a fraction of one. An engine that does not need what times are taken on
(`ahead`) is therefore asked on a thread, and the search goes on. A server's answers are taken in at the first ask after
they came; those of an engine in this process at the first one that is a fixed number of asks later (`after`), waited
for if need be, so that a run of the same seed is the same run. The ask is recorded with the call, so that a resumed run and a replayed one take
them in where the first run did. A call that nobody took in before its run was killed is lost, and the resumed run goes
on without it.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass

from kernelsearch.core.model_calls import ModelCall
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.engines.base import Ask, Engine, Failure, Reply
from kernelsearch.propose.grammar import Grammar
from kernelsearch.propose.models.repair import Failed


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
    threaded: its answers come while the search goes on; after: how many asks later they may be taken in, None: once here.
    """

    asked: Asked | None
    reply: Future[Reply | Failure] | None = None
    known: ModelCall | None = None
    waited: float = 0.0
    threaded: bool = False
    after: int | None = None

    def due(self, number: int) -> bool:
        """Whether its answers are to be taken in at this ask, which no record then says to be a later one."""
        if self.known is not None:
            return number >= self.known.landed
        if self.after is not None:
            return number >= self.asked.number + self.after
        return self.reply.done() and number >= self.asked.number + self.reply.result().lag

    def wait(self) -> None:
        if self.reply is not None and not self.reply.done():
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
    started = Underway(asked, Future(), threaded=threaded, after=_after(engine) if threaded else None)
    if threaded:
        threading.Thread(target=_answered, args=(engine, asked.ask, started.reply), daemon=True).start()
    else:
        clock = time.monotonic()
        _answered(engine, asked.ask, started.reply)
        said = started.reply.result()
        started.waited = said.seconds if instant else max(said.seconds, time.monotonic() - clock)
    return started


def closed(engine: Engine, underway: Underway | None) -> None:
    """Closes the engine, after the call that it is still answering.

    Nobody waits for a server; a thread that computes in this process must not outlive it, and is told to stop.
    """
    if underway is None or underway.reply is None or underway.reply.done():
        engine.close()
    elif _after(engine) is None:
        underway.reply.add_done_callback(lambda _: engine.close())
    else:
        if hasattr(engine, "stop"):
            engine.stop(underway.asked.ask)
        underway.reply.result()
        engine.close()


def _after(engine: Engine) -> int | None:
    return getattr(engine, "after", None)


def _answered(engine: Engine, ask: Ask, reply: Future) -> None:
    said: Reply | Failure = Failure("the engine ended without an answer: its fault is shown above", "refused")
    try:
        said = engine.complete(ask)
    finally:
        reply.set_result(said)
