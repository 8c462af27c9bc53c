"""The contract of model engines: a prompt and a grammar in, texts out; failure is a value.

An engine knows nothing of kernels. It keeps its answers within the grammar if it can, and is not believed: the caller
checks every answer again (`propose/models/answers.py`), by the same reader whether it was held to a grammar or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

STOP = "stop"
CUT = "length"
REFUSAL = "refusal"
"""How an answer ended: by itself, because it was as long as it was allowed to be, or because the model would not."""
ANSWERS = ("kernel", "edit", "both")
"""Forms of answers."""
PARTS = ("plan", "lessons", "hints", "rules", "children", "others")
"""Parts of a page that can be left out, as `prompt.PromptPage` names them."""


class EngineGrammar(Protocol):
    """One language in two dialects: Lark for llguidance, EBNF for xgrammar and, as GBNF, llama.cpp.

    after_thought is it behind a thought that the model's chat template has begun, if that differs.
    """

    @property
    def after_thought(self) -> EngineGrammar | None: ...

    @property
    def lark(self) -> str: ...

    @property
    def ebnf(self) -> str: ...


@dataclass(frozen=True)
class Ask:
    """One request: a conversation, and the grammar of the answers if they have one.

    system is the same for all asks and comes first: engines with a prefix cache compute it once. turns are earlier
    answers to the page, each with what was said to it. n is the number of answers; max_tokens is per answer; engines
    may ignore temperature and seed. whole: whole kernels are asked for, which suit any page of their task.
    """

    system: str
    page: str
    grammar: EngineGrammar | None
    n: int = 1
    max_tokens: int = 512
    temperature: float = 1.0
    seed: int = 0
    turns: tuple[tuple[str, str], ...] = ()
    whole: bool = False

    @property
    def messages(self) -> list[dict[str, str]]:
        """The ask for a chat template."""
        said = [self.page, *(text for turn in self.turns for text in turn)]
        roles = ("user", "assistant")
        return [{"role": "system", "content": self.system}] + [
            {"role": roles[i % 2], "content": text} for i, text in enumerate(said)
        ]

    @property
    def text(self) -> str:
        """All that is asked, without the system message, as the record has it."""
        text = self.page
        for answer, said in self.turns:
            text = format_turn(text, answer, said)
        return text

    @property
    def plain(self) -> str:
        """The ask as one text, for models without a chat template."""
        return f"{self.system}\n\n{self.text}\n"


def format_turn(before: str, answer: str, said: str) -> str:
    """A conversation as one text, with one more answer and what is said to it."""
    return f"{before}\n\nYOUR ANSWER\n{answer}\n\n{said}"


@dataclass(frozen=True)
class Sample:
    """One answer: its text, how it ended (`stop`, `length`, `refusal` or a server's other word), its length in tokens.

    The length is 0 where it is not known.
    """

    text: str
    finish: str = STOP
    tokens: int = 0


@dataclass(frozen=True)
class Reply:
    """The answers to one ask with what they cost.

    tokens_in counts the prompt once, whatever n is; tokens_cached is the part of it found in a prefix cache; seconds
    is wall time, retries included; notes are sentences for the user (a server that takes no grammar); lag is for
    recorded answers: the number of asks of the search before these were taken in.
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
    """The reason why an engine gave no answer, as one line for people, without secrets.

    kind: `refused` (the key or the model is not accepted, which will not get better by itself), `grammar` (the engine
    cannot read this grammar), `context` (the prompt does not fit: limit is the context in tokens, where it is known),
    or `busy` (rate limit, server error, timeout, nothing listening: worth another try later).
    """

    reason: str
    kind: str = "busy"
    limit: int | None = None
    seconds: float = 0.0
    lag: int = 0


class Engine:
    """A model, wherever it runs. An engine sets name and label and defines complete and count."""

    name: str
    """Its spec without secrets, as the record has it."""
    label: str
    """A short name for tables."""
    ahead: bool = False
    """True if it takes nothing from what is measured on: it may be asked on a thread while the search goes on."""
    after: int | None = None
    """The number of asks of the search after which answers of `ahead` are taken in; None: as soon as they are here."""
    instant: bool = False
    """True if it answers at once and its replies say their lag and how long the search stood still (`replay:`)."""
    trouble: str = ""
    """Why the ask under way is being tried again."""
    answers: str = "edit"
    """The form of its answers: `edit` (a few lines under a grammar), `kernel` (a whole file), or `both`."""
    answer_tokens: int | None = None
    """The most tokens of an answer; None for the usual limit of its form."""
    rounds: int | None = None
    """The most answers of one conversation; None for the usual number of its form."""
    without: tuple[str, ...] = ()
    """Parts of a page that are left out, to show what they are worth; of PARTS."""

    def complete(self, ask: Ask) -> Reply | Failure:
        """Answers to one ask; never raises for what a model or its server does."""
        raise NotImplementedError

    def count(self, text: str) -> int:
        """The approximate number of tokens of a text."""
        return len(text) // 3

    def stop(self, ask: Ask) -> None:
        """Ends the answers to this ask soon, if it is under way."""

    def note_landing(self, ask: Ask, lag: int, waited: float) -> None:
        """Takes note that the answers of an ask were taken in `lag` asks later; waited is in seconds."""

    def close(self) -> None:
        """Frees its resources."""


class EngineWrapper:
    """Passes on to another engine whatever it does not do itself."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass(frozen=True)
class EngineSpec:
    """An engine as the user writes it, `kind:rest?option=value&...`. text is the whole of it."""

    text: str
    kind: str
    rest: str
    options: Mapping[str, str] = field(default_factory=dict)


def fit_grammar(grammar: EngineGrammar | None, prompt: str) -> EngineGrammar | None:
    """The grammar for what follows a prompt, which may have begun a thought."""
    if grammar is None or not prompt.rstrip().endswith("<think>"):
        return grammar
    return grammar.after_thought or grammar


def shorten(text: str, most: int = 300) -> str:
    """The text on one printable line of at most about `most` characters."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= most else f"{text[:most]}..."
