"""`command:PROGRAM ARGS`: any program that reads a request and writes an answer: a coding agent, a script, a person.

It is started once for each request, without a shell, in the folder of the search. On standard input it reads one JSON
object: `messages` (role and content, as chat models take them), `grammar` (null, or the allowed answers as `lark` and
`ebnf`), `n`, `max_tokens`, `temperature`, `seed`. It writes the answer as plain text, or one JSON object: `text` (or
`texts`, several answers), or `error`; and `tokens_in`, `tokens_out` if it knows them. Keys are its own business: it has
the environment of the search.

Options: answers=kernel|edit|both, answer_tokens, timeout (seconds; 1800, for people), ahead=on|off.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernelsearch.core.errors import ModelError
from kernelsearch.propose.engines.base import Ask, Engine, EngineSpec, Failure, Reply, Sample, shorten
from kernelsearch.propose.engines.registry import parse_choice, parse_number
from kernelsearch.propose.engines.secrets import scrub

TIMEOUT_S = 1800.0
MOST_BYTES = 4 << 20


def open(spec: EngineSpec) -> Engine:
    if scrub(spec.text) != spec.text:
        raise ModelError("a key has no place in a command, which is stored: the program reads it from the environment")
    try:
        words = shlex.split(spec.rest)
    except ValueError as error:
        raise ModelError(f"{spec.rest!r} is no command: {error}") from None
    if shutil.which(words[0]) is None:
        there = "is not executable: chmod +x it" if Path(words[0]).exists() else "is no program that can be found here"
        raise ModelError(f"{words[0]} {there}")
    ahead = parse_choice(spec.options, "ahead", "on", "off") == "on"
    return CommandEngine(spec.text, words, parse_number(spec.options, "timeout", TIMEOUT_S), ahead)


class CommandEngine(Engine):
    """A program that is started for each ask."""

    answers = "kernel"

    def __init__(self, name: str, words: list[str], timeout: float, ahead: bool) -> None:
        self.name, self.label = name, Path(words[0]).name
        self.words, self.timeout, self.ahead = words, timeout, ahead
        self._running: set[subprocess.Popen] = set()
        self._lock = threading.Lock()

    def complete(self, ask: Ask) -> Reply | Failure:
        started = time.monotonic()
        try:
            out = self._run(json.dumps(_request_of(ask)).encode())
        except _NoAnswer as none:
            return Failure(f"{self.label}: {shorten(scrub(str(none)))}", seconds=time.monotonic() - started)
        said, seconds = _read_object(out), time.monotonic() - started
        if "error" in said:
            kind = "refused" if said.get("kind") == "refused" else "busy"
            return Failure(f"{self.label}: {shorten(scrub(str(said['error'])))}", kind, seconds=seconds)
        texts = said.get("texts", [said.get("text")])
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            reason = f'{self.label}: its JSON has no answer: it wants {{"text": ...}} or {{"error": ...}}'
            return Failure(reason, seconds=seconds)
        counts = [n if type(n := said.get(name)) is int and n >= 0 else 0 for name in ("tokens_in", "tokens_out")]
        samples = tuple(Sample(scrub(text), tokens=counts[1] // len(texts)) for text in texts)
        return Reply(samples, counts[0], counts[1], seconds=seconds)

    def close(self) -> None:
        with self._lock:
            for process in self._running:
                _kill(process)

    def _run(self, request: bytes) -> str:
        """What the program writes. Raises _NoAnswer with the reason when it fails."""
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(self.words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        except OSError as error:
            raise _NoAnswer(f"it cannot be started: {error.strerror}") from None
        with process:
            with self._lock:
                self._running.add(process)
            try:
                out, err = process.communicate(request, timeout=self.timeout)
            except subprocess.TimeoutExpired:
                raise _NoAnswer(f"no answer within {self.timeout:g} s") from None
            finally:
                with self._lock:
                    self._running.discard(process)
                _kill(process)
        if process.returncode:
            last = err.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise _NoAnswer(f"exit code {process.returncode}{f': {last}' if last else ''}")
        if len(out) > MOST_BYTES:
            raise _NoAnswer(f"an answer of {len(out):,} bytes")
        return out.decode("utf-8", "replace")


class _NoAnswer(Exception):
    """The reason why a program gave no answer."""


def _request_of(ask: Ask) -> dict[str, Any]:
    grammar = {"lark": ask.grammar.lark, "ebnf": ask.grammar.ebnf} if ask.grammar is not None else None
    settings = {"n": ask.n, "max_tokens": ask.max_tokens, "temperature": ask.temperature, "seed": ask.seed}
    return {"messages": ask.messages, "grammar": grammar, **settings}


def _read_object(text: str) -> dict[str, Any]:
    """The JSON object of an answer; plain text is its `text`."""
    with suppress(ValueError, RecursionError):
        read = json.loads(text)
        if isinstance(read, dict):
            return read
    return {"text": text}


def _kill(process: subprocess.Popen) -> None:
    """Ends the program with whatever it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
