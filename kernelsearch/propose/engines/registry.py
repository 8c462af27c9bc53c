"""Engines by name: the word before the first colon of a spec names the kind of engine.

`openai:URL#MODEL`, `anthropic:MODEL`, `command:PROGRAM ARGS`, `hf:PATH`, `vllm:MODEL`, `replay:FILE`, each with options
after a question mark (`hf:models/qwen?device=cuda&dtype=bfloat16`). A new engine is a file with `open(spec) -> Engine`
and a line here; a user's own is `./mine.py:MODEL`. The names of
its options are its `OPTIONS`.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import cast

from kernelsearch.core import extras, plugins
from kernelsearch.core.errors import ModelError
from kernelsearch.propose.engines.base import ANSWERS, PARTS, Ask, Engine, EngineSpec, EngineWrapper, Failure, Reply

IN_PROCESS = ("hf", "vllm")
"""Kinds whose model is loaded once for all runs of a study."""
AFTER = 24
"""Asks of the search after which the answers of an engine in this process are taken in, by default."""


@dataclass(frozen=True)
class EngineKind:
    """One kind of engine: its module, the form of its spec, a summary, its options, its extra and its packages.

    The module of a shipped engine is its name, and is imported when a spec asks for it.
    """

    module: str | ModuleType
    form: str
    summary: str
    options: tuple[str, ...] = ()
    extra: str = ""
    packages: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """The first package that is not installed here; empty when the engine can be opened."""
        return next((p for p in self.packages if importlib.util.find_spec(p) is None), "")

    def load(self) -> ModuleType:
        """The module that opens it."""
        if isinstance(self.module, ModuleType):
            return self.module
        return importlib.import_module(f"kernelsearch.propose.engines.{self.module}")


_FORM = ("answers", "answer_tokens", "rounds", "without")
"""Options of every engine."""
_SERVER = ("key_env", "timeout", "retries", "ahead")
_LOCAL = ("device", "dtype", "ahead")
_VLLM = ("ngram", "prefix_cache", "max_model_len", "gpu_memory", "backend", "dtype", "ahead")
ENGINES: dict[str, EngineKind] = {
    "openai": EngineKind(
        "openai_server",
        "openai:URL#MODEL",
        "any OpenAI-compatible server, vllm serve first",
        (*_SERVER, "grammar", "api", "seed"),
        "openai",
        ("openai",),
    ),
    "anthropic": EngineKind(
        "anthropic_server", "anthropic:MODEL", "a model of Anthropic", _SERVER, "anthropic", ("anthropic",)
    ),
    "command": EngineKind(
        "command", "command:PROGRAM ARGS", "a program that reads a request and writes an answer", ("timeout", "ahead")
    ),
    "hf": EngineKind(
        "transformers_local",
        "hf:PATH",
        "a model in this process, by transformers",
        _LOCAL,
        "hf",
        ("transformers", "llguidance"),
    ),
    "vllm": EngineKind("vllm_offline", "vllm:MODEL", "a model in this process, by vLLM", _VLLM, "vllm", ("vllm",)),
    "replay": EngineKind("recorded_answers", "replay:FILE", "answers that were recorded with --record"),
}
WRITER, ROLES = "writer", ("planner", "writer", "critic")
_ROLE = re.compile(rf"(?:^|,)({'|'.join(ROLES)})=")


def split_roles(text: str) -> list[tuple[str, str]]:
    """The role and the spec of each engine of `planner=SPEC,writer=SPEC,critic=SPEC`; one spec alone is the writer's.

    Raises ModelError for a text before the first role, and for a role without a spec.
    """
    first, *named = _ROLE.split(text)
    if not named:
        return [(WRITER, text)]
    pairs = list(zip(named[::2], named[1::2], strict=True))
    if first or not all(spec for _, spec in pairs):
        raise ModelError(f"{text}: write it as planner=SPEC,writer=SPEC,critic=SPEC, each role once or not at all")
    return pairs


def find_kind(kind: str) -> EngineKind | None:
    """The kind of engine of that name: a shipped one, or a file's. Raises ModelError."""
    if kind not in ENGINES:
        if not kind.endswith(".py"):
            return None
        module = plugins.execute_file(Path(kind), f"kernelsearch_engines.{Path(kind).stem}", ModelError)
        if not callable(getattr(module, "open", None)):
            raise ModelError(f"{kind} has no function open(spec), which returns an engine")
        ENGINES[kind] = EngineKind(module, f"{kind}:MODEL", "a user's own", tuple(getattr(module, "OPTIONS", ())))
    return ENGINES[kind]


def parse_spec(text: str) -> EngineSpec:
    """Parses a spec. Raises ModelError for an unknown kind or option, or a spec without a model."""
    kind, colon, rest = text.partition(":")
    if find_kind(kind) is None:
        forms = ", ".join(k.form for k in ENGINES.values())
        raise ModelError(f"unknown model engine {kind!r}: one of {forms}")
    address, hash_, model = rest.partition("#") if kind != "command" else (rest, "", "")
    last, _, query = (model if hash_ else address).partition("?")
    rest = f"{address}#{last}" if hash_ else last
    if not colon or not rest:
        raise ModelError(f"{kind}: names no model: write it as {ENGINES[kind].form}")
    return EngineSpec(text, kind, rest, _options(kind, query))


def open_engine(text: str) -> Engine:
    """Opens the engine that a spec names. Raises ModelError with what to install or what is wrong with the spec."""
    spec = parse_spec(text)
    kind = ENGINES[spec.kind]
    try:
        engine = kind.load().open(spec)
        engine.answers = parse_choice(spec.options, "answers", engine.answers, *ANSWERS)
        engine.answer_tokens = _parse_count(spec.options, "answer_tokens", 1_000_000, engine.answer_tokens)
        engine.rounds = _parse_count(spec.options, "rounds", 100, engine.rounds)
        engine.without = tuple(filter(None, spec.options.get("without", "").split("+")))
        if unknown := [part for part in engine.without if part not in PARTS]:
            raise ModelError(f"without={unknown[0][:20]}: it is some of {'+'.join(PARTS)}")
        return engine
    except ImportError as error:
        raise ModelError(describe_missing(spec.kind, error.name or str(error))) from None


def describe_missing(kind: str, package: str) -> str:
    """A sentence on an engine whose package is missing."""
    return (
        f"the engine {kind} needs {package}, which is not installed here: {extras.install_command(ENGINES[kind].extra)}"
    )


def _options(kind: str, query: str) -> Mapping[str, str]:
    known, options = (*ENGINES[kind].options, *_FORM), {}
    for part in filter(None, query.split("&")):
        name, equals, value = part.partition("=")
        if name not in known or not equals:
            raise ModelError(f"{kind}: has no option {name[:20]!r}: it has {', '.join(known)}, as name=value")
        options[name] = value
    return options


def parse_ahead(options: Mapping[str, str], cpu: bool) -> int | None:
    """The option `ahead` of an engine in this process, a number of asks, or None for `off`, the default on a GPU.

    On a GPU the engine would disturb the candidates' times. Raises ModelError for anything else.
    """
    value = options.get("ahead", str(AFTER) if cpu else "off")
    if value == "off":
        return None
    if not value.isdecimal() or not 0 < int(value) < 10_000:
        raise ModelError(f"ahead={value}: it is off, or a number of trials")
    return int(value)


def _parse_count(options: Mapping[str, str], name: str, most: int, default: int | None) -> int | None:
    value = options.get(name)
    if value is not None and not (value.isdecimal() and 0 < int(value) <= most):
        raise ModelError(f"{name}={value}: it is a number from 1 to {most:,}")
    return int(value) if value else default


def parse_number(options: Mapping[str, str], name: str, default: float) -> float:
    """An option that is a number. Raises ModelError for anything else."""
    try:
        return float(options.get(name, default))
    except ValueError:
        raise ModelError(f"{name}={options[name]}: it is a number") from None


def parse_choice(options: Mapping[str, str], name: str, *choices: str) -> str:
    """An option that is one of the choices, the first by default. Raises ModelError for anything else."""
    value = options.get(name, choices[0])
    if value not in choices:
        choices = tuple(dict.fromkeys(choices))
        known = " or ".join(choices) if len(choices) == 2 else f"one of {', '.join(choices)}"
        raise ModelError(f"{name}={value}: it is {known}")
    return value


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
        return cast(Engine, SharedEngine(*self.kept[spec]))

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
