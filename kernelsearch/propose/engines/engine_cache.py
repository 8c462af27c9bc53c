"""Engines in this process are loaded once for all that ask them: a first kernel and a search, or many runs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from kernelsearch.propose.engines.base import Ask, Engine, EngineWrapper, Failure, Reply
from kernelsearch.propose.engines.registry import open_engine, parse_spec

IN_PROCESS = ("hf", "vllm")


@dataclass
class EngineCache:
    """Gives the engine of a spec, and keeps those with a model in this process until `close`."""

    kept: dict[str, tuple[Engine, threading.Lock]] = field(default_factory=dict)

    def engine(self, spec: str) -> Engine:
        """A new engine, or a share of the one that is loaded already. Raises ModelError."""
        if parse_spec(spec).kind not in IN_PROCESS:
            return open_engine(spec)
        if spec not in self.kept:
            self.kept[spec] = open_engine(spec), threading.Lock()
        return SharedEngine(*self.kept[spec])

    def close(self) -> None:
        for inner, _ in self.kept.values():
            inner.close()
        self.kept.clear()


class SharedEngine(EngineWrapper):
    """One asker's part in an engine that answers one asker at a time and outlives them all."""

    def __init__(self, inner: Engine, lock: threading.Lock) -> None:
        super().__init__(inner)
        self._lock = lock

    def complete(self, ask: Ask) -> Reply | Failure:
        with self._lock:
            return self.inner.complete(ask)

    def close(self) -> None:
        """Keeps the inner engine open: others may still ask."""
