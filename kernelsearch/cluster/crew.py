"""The workers of a run from the driver's side: each question goes to one of them, and elsewhere when that one is lost.

A worker is anything with the four members of `Station`. Ray starts them, restarts them and sees them end
(`ray_actors.py`); here is only who is asked what.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from kernelsearch.core.errors import WorkerError
from kernelsearch.core.slow_steps import Say

PATIENCE_S = 120.0
"""How long the run waits for a worker to come back when none is left."""

ATTEMPTS = 20
"""Workers that may be lost over one question, which are then no accident."""

FAULTS = 3
"""Times that a worker may say that its own set-up is at fault, before it is set aside."""

CLOSE_S = 20.0
"""How long the end of a run waits for questions to workers that it has ended."""

FIRST_ROOM = 2
"""Questions for a worker that has not yet answered any."""

NEWEST = 0.1
"""Weight of the newest time between two answers of a worker in the usual one."""

LEAST_GAP_S = 0.02
"""Workers that answer more often than this are equally quick."""

LOOK_S = 1.0
"""How often whoever waits for a place looks again which worker is the quickest."""

RECENT = 4096
"""Candidates whose worker is remembered, because that one has their binaries."""


GO_ON = "what is done is stored; give the same command again, `optimize` with --resume"


class StationLost(Exception):
    """The worker ended, or its set-up is at fault, before it answered."""


class Station(ABC):
    """A worker: its name for people, its node, its compile workers, and how many questions it takes at a time."""

    name: str
    node: str
    room: int
    compilers: int

    @abstractmethod
    def ask(self, method: str, *args: Any) -> Any:
        """The answer. Raises StationLost, or KernelsearchError for the user's mistakes."""

    @abstractmethod
    def restart(self, kill: bool, welcome: Callable[[Station], None]) -> Future:
        """A future that is done when a lost worker runs again and is welcome. kill: it still runs, but is no good."""

    @abstractmethod
    def end(self) -> None:
        """Ends the worker; whoever waits for an answer gets StationLost."""


Arguments = Callable[[Station], tuple[Any, ...]]


@dataclass
class Post:
    """The state of a worker: how many questions it has and how many it answered, and why it is away, if it is.

    heard is when it answered last, or got a question while it had none; gap_s is the usual time between its answers.
    """

    station: Station
    busy: int = 0
    done: int = 0
    heard: float = 0.0
    gap_s: float = 0.0
    faults: int = 0
    away: str = ""
    returns: bool = True

    @property
    def room(self) -> int:
        """How many questions it takes: few at first, because a slow worker would hold up all that comes after them."""
        return min(self.station.room, FIRST_ROOM + self.done)

    def give(self) -> None:
        """Counts a question."""
        if not self.busy:
            self.heard = time.monotonic()
        self.busy += 1

    def take_answer(self) -> None:
        now = time.monotonic()
        gap_s, self.heard = now - self.heard, now
        self.gap_s = self.gap_s + NEWEST * (gap_s - self.gap_s) if self.done else gap_s
        self.done += 1

    def expect(self) -> tuple[float, float, int]:
        """When it would answer one more question, in seconds, and how full it is: the least is asked next."""
        silent = time.monotonic() - self.heard if self.busy else 0.0
        return (self.busy + 1) * max(LEAST_GAP_S, self.gap_s, silent), self.busy / self.station.room, self.done


class Crew:
    """Asks workers; may be used by many threads. say is told what is lost and what comes back."""

    def __init__(self, stations: list[Station], say: Say = lambda text: None, patience_s: float = PATIENCE_S) -> None:
        self.posts = [Post(s) for s in stations]
        self.say, self.patience_s = say, patience_s
        self.began = time.monotonic()
        self.on_return: list[Callable[[Station], None]] = []  # called with a worker that was started again
        self._places: OrderedDict[Hashable, Post] = OrderedDict()
        self._turn = threading.Condition()
        self._returning: list[Future] = []
        self._closed = ""  # why nobody is asked any more

    @property
    def room(self) -> int:
        """How many questions all workers take at a time."""
        return sum(p.station.room for p in self.posts)

    def ask(
        self, key: Hashable, method: str, arguments: Arguments, on: Callable[[Station, Any], Any] | None = None
    ) -> Any:
        """The answer of one worker, the same for the same key if it can be, to what it is given.

        on(station, answer) may ask that worker more, and gives the answer.

        Raises WorkerError when no worker is left, or too many were lost over this question.
        """
        for _ in range(ATTEMPTS):
            post = self._take(key)
            try:
                answer = post.station.ask(method, *arguments(post.station))
                answer = on(post.station, answer) if on else answer
                with self._turn:
                    post.take_answer()
                return answer
            except StationLost as lost:
                self._lose(post, str(lost), kill=False)
            except WorkerError as error:  # its GPU or its set-up is at fault, and another's may be right
                self._lose(post, str(error), kill=True)
            finally:
                with self._turn:
                    post.busy -= 1
                    self._turn.notify_all()
        raise WorkerError(f"{ATTEMPTS} workers were lost over one question: {GO_ON}")

    def ask_all(self, method: str, *args: Any) -> list[tuple[Station, Any]]:
        """The answers of all workers that serve, asked side by side. Raises KernelsearchError as `ask` does."""

        def ask_one(post: Post) -> list[tuple[Station, Any]]:
            try:
                return [(post.station, post.station.ask(method, *args))]
            except StationLost as lost:
                self._lose(post, str(lost), kill=False)
                return []

        serving = [post for post in self.posts if not post.away]
        pool = ThreadPoolExecutor(max(1, len(serving)))
        try:
            asked = [pool.submit(ask_one, post) for post in serving]
            wait(asked)
            return [answer for one in asked for answer in one.result()]
        finally:
            pool.shutdown(wait=False)  # an interrupt does not wait for answers

    def set_aside(self, station: Station, why: str) -> None:
        """Gives this worker no more questions."""
        post = next(p for p in self.posts if p.station is station)
        with self._turn:
            news, post.away, post.returns = not post.away, why, False
            self._turn.notify_all()
        if news:
            self.say(f"{station.name} is set aside: {why}")

    def lose(self, station: Station, why: str) -> None:
        """Takes a worker out that was found to be lost, until it is back."""
        self._lose(next(p for p in self.posts if p.station is station), why, kill=False)

    def stop(self, why: str) -> None:
        """Asks no worker any more; whoever has a question gets WorkerError with the reason."""
        with self._turn:
            self._closed = self._closed or why
            self._turn.notify_all()

    def close(self) -> None:
        """Ends the workers, and waits until nobody asks them any more: what they are reached by may end then."""
        self.stop("the run has ended")
        for post in self.posts:
            post.station.end()
        wait(self._returning, CLOSE_S)
        with self._turn:
            self._turn.wait_for(lambda: not any(p.busy for p in self.posts), CLOSE_S)

    def describe_pace(self) -> str:
        """The workers that serve, and how many answers a second each gives."""
        up = [p for p in self.posts if not p.away]
        seconds = max(1e-3, time.monotonic() - self.began)
        rates = sorted(p.done / seconds for p in up)
        paces = " to ".join(dict.fromkeys(f"{rate:.2g}" for rate in (rates[:1] + rates[-1:]) if rate > 0))
        lost = f" of {len(self.posts)}" if len(up) < len(self.posts) else ""
        return f"{len(up)}{lost} worker{'s' * (len(self.posts) > 1)}{f' {paces}/s each' * bool(paces)}"

    def _take(self, key: Hashable) -> Post:
        """A worker: the one that was asked about this key before, if it has a place, else the one that answers first.

        That one may have no place yet, and is waited for: trials land in order, so a slow worker would hold up others.
        """
        with self._turn:
            until = None
            while True:
                if self._closed:
                    raise WorkerError(self._closed)
                up = [p for p in self.posts if not p.away]
                if up:
                    until, known, post = None, self._places.get(key), min(up, key=Post.expect)
                    post = known if known in up and known.busy < known.room else post
                    if post.busy >= post.room:
                        self._turn.wait(LOOK_S)
                        continue
                    self._places[key] = post
                    self._places.move_to_end(key)
                    if len(self._places) > RECENT:
                        self._places.popitem(last=False)
                    post.give()
                    return post
                until = until or time.monotonic() + self.patience_s
                if time.monotonic() >= until or not any(p.returns for p in self.posts):
                    raise WorkerError(self.explain_absence())
                self._turn.wait(until - time.monotonic())

    def explain_absence(self) -> str:
        """Why no worker is left, each reason with the first of its workers, and what to do."""
        named: dict[str, list[str]] = {}
        for post in self.posts:
            named.setdefault(post.away, []).append(post.station.name)
        reasons = [f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {w}" for w, names in named.items()]
        return f"no worker is left ({'; '.join(reasons)}): {GO_ON}"

    def _welcome(self, station: Station) -> None:
        for act in tuple(self.on_return):
            act(station)

    def _lose(self, post: Post, why: str, kill: bool) -> None:
        """Takes a worker out until it is back; several questions may find out that it is lost."""
        with self._turn:
            if self._closed or post.away:
                return
            post.away = why
            post.faults += kill
            post.returns = post.faults < FAULTS
            self._turn.notify_all()
        name = post.station.name
        if not post.returns:
            self.say(f"{name} is set aside: {why}")
            return
        self.say(f"{name} is lost ({why}): others go on with its candidates")

        def come_back(future: Future) -> None:
            with self._turn:
                if self._closed:
                    return
                error = future.exception()
                if error is None:
                    post.away = ""
                else:
                    post.away, post.returns = f"{post.away}; not restarted: {error}", False
                self._turn.notify_all()
            if error is None:
                self.say(f"{name} is back")

        returning = post.station.restart(kill, self._welcome)
        self._returning = [f for f in self._returning if not f.done()] + [returning]
        returning.add_done_callback(come_back)
