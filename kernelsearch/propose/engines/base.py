"""What a model engine is: a prompt and a grammar in, texts out; failure is a value.

An engine knows nothing of kernels. It is asked to hold its answers to the grammar, and not believed: every answer is
checked again by who asked (`propose/models/answers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kernelsearch.core.errors import ModelError

STOP = "stop"
CUT = "length"
"""How an answer ended: by itself, or because it was as long as it was allowed to be."""


class Grammar(Protocol):
    """What engines need of a grammar: one language in two dialects (llguidance's Lark, xgrammar's EBNF)."""

    lark: str
    ebnf: str
    digest: str


@dataclass(frozen=True)
class Ask:
    """One request: two messages and the grammar that the answers must be in.

    system is the same for all asks and comes first, so that engines with a prefix cache compute it once; n is how many
    answers are wanted; max_tokens is per answer; rest is what engines may ignore.
    """

    system: str
    page: str
    grammar: Grammar
    n: int = 1
    max_tokens: int = 512
    temperature: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Sample:
    """One answer: its text, how it ended (`stop` or `length`), and its length in tokens (0 where not told)."""

    text: str
    finish: str = STOP
    tokens: int = 0


@dataclass(frozen=True)
class Reply:
    """The answers to one ask with what they cost.

    tokens_in counts the prompt once, whatever n is; tokens_cached is the part of it that a prefix cache held; seconds
    is wall time, retries included; notes are sentences for the user (a server that takes no grammar); lag is for
    recorded answers: how many asks of the search passed before these were taken in.
    """

    samples: tuple[Sample, ...]
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    lag: int = 0


@dataclass(frozen=True)
class Failure:
    """Why an engine gave no answer, as one line for people, without secrets.

    kind: `refused` (the key or the model is not accepted: it will not get better by itself), `grammar` (the engine
    cannot read this grammar), `context` (the prompt does not fit: limit is the context in tokens, where it is known),
    or `busy` (rate limit, server error, timeout, nothing listening: worth another try later).
    """

    reason: str
    kind: str = "busy"
    limit: int | None = None
    seconds: float = 0.0
    lag: int = 0


class Engine(Protocol):
    """A model, wherever it runs.

    Some members are optional. ahead: it takes nothing from what is measured on, so that it may be asked on a thread,
    one ask at a time, while the search goes on; after: its answers are then taken in so many asks of the search later,
    not sooner and not later, for an engine whose answers are a function of the ask; stop(ask): ends the answers to
    this ask soon, if it is under way; instant: it answers at once all the same, and its replies say their lag and for
    how many seconds the search stood still (`replay:`); trouble: why the ask under way is being tried again;
    landed(ask, lag, waited): told when the answers of an ask were taken in, lag asks of the search after it.
    """

    name: str
    """Its spec without secrets: what the record calls it."""
    label: str
    """A short name for tables."""

    def complete(self, ask: Ask) -> Reply | Failure:
        """Answers to one ask; never raises for what a model or its server does."""

    def count(self, text: str) -> int:
        """About how many tokens a text has."""

    def close(self) -> None:
        """Gives back what it holds."""


@dataclass(frozen=True)
class Spec:
    """An engine as it is written: `kind:rest?option=value&...`. text is the whole of it."""

    text: str
    kind: str
    rest: str
    options: Mapping[str, str] = field(default_factory=dict)


AFTER = 24
"""Asks of the search after which the answers of an engine in this process are taken in: what exceeds the window is gained."""


def asks_ahead(options: Mapping[str, str], cpu: bool) -> int | None:
    """The option `ahead` of an engine in this process: so many asks, or None for `off`, as it is where it needs a GPU.

    On a GPU it would share with the candidates what their times are taken on. Raises ModelError for anything else.
    """
    value = options.get("ahead", str(AFTER) if cpu else "off")
    if value == "off":
        return None
    if not value.isdecimal() or not 0 < int(value) < 10_000:
        raise ModelError(f"ahead={value}: it is off, or a number of trials")
    return int(value)


def switch(options: Mapping[str, str], name: str) -> bool:
    """An option that is `on`, as it is by default, or `off`. Raises ModelError for anything else."""
    value = options.get(name, "on")
    if value not in ("on", "off"):
        raise ModelError(f"{name}={value}: it is on or off")
    return value == "on"
