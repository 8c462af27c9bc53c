"""Engines that hold a model in this process, loaded once for all that ask them: a first kernel and a search, many runs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from kernelsearch.propose.engines.base import Ask, Engine, Failure, Reply
from kernelsearch.propose.engines.registry import make, parsed

IN_PROCESS = ("hf", "vllm")


@dataclass
class Opened:
    """Gives the engine of a spec. close ends those that were kept, once nobody asks any more."""

    kept: dict[str, tuple[Engine, threading.Lock]] = field(default_factory=dict)

    def engine(self, spec: str) -> Engine:
        """A new engine, or a share of the one that is loaded already. Raises ModelError."""
        if parsed(spec).kind not in IN_PROCESS:
            return make(spec)
        if spec not in self.kept:
            self.kept[spec] = make(spec), threading.Lock()
        return Share(*self.kept[spec])

    def close(self) -> None:
        for inner, _ in self.kept.values():
            inner.close()
        self.kept.clear()


class Share:
    """One asker's part in an engine that is asked by one at a time and outlives it."""

    def __init__(self, inner: Engine, lock: threading.Lock) -> None:
        self.inner, self.name, self.label = inner, inner.name, inner.label
        self.ahead, self.after = getattr(inner, "ahead", False), getattr(inner, "after", None)
        self._lock = lock

    def complete(self, ask: Ask) -> Reply | Failure:
        with self._lock:
            return self.inner.complete(ask)

    def count(self, text: str) -> int:
        return self.inner.count(text)

    def stop(self, ask: Ask) -> None:
        if hasattr(self.inner, "stop"):
            self.inner.stop(ask)

    def close(self) -> None:
        """Nothing: others may still ask."""
