"""`replay:FILE`: recorded answers, for tests and for reproducing a run; and the recorder.

A file holds one JSON object a line: `{"prompt": digest, "samples": [{"text", "finish", "tokens"}]}`, or a `"failure"`
in place of the samples. A line answers the first ask whose prompt has its digest; lines without `prompt` answer, in
order, the asks that have no line of their own. A search adds `{"prompt", "lag", "waited", "ahead"}` when it takes
answers in: after how many asks, the seconds for which it had stood still, and whether the model was asked ahead; the
replayed run takes them in there too, at the same price. `"answers"` in a line is the form that was asked for;
`"rounds"` and `"answer_tokens"` are the engine's options. A whole kernel suits any page of its task: an ask without a
line of its own (times differ from run to run) is answered by the next one that nobody asked for, and the user reads so.
"""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

from kernelsearch.core.errors import ModelError
from kernelsearch.core.types import content_digest
from kernelsearch.propose.engines.base import ANSWERS, Ask, Engine, EngineSpec, EngineWrapper, Failure, Reply, Sample

_OPTIONS = ("rounds", "answer_tokens")
INSTEAD = "some prompts of this run were not recorded: the recorded kernels answer them in their order"


def prompt_digest(ask: Ask) -> str:
    """The id of an ask's messages, by which its answers are found again."""
    return content_digest(ask.system, ask.text)


def open(spec: EngineSpec) -> Engine:
    path = Path(spec.rest)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return ReplayEngine(spec.text, [_row(path, n, line) for n, line in enumerate(lines, 1) if line.strip()])


class ReplayEngine(Engine):
    """Gives recorded answers; an ask without a recorded answer is a failure."""

    label = "replay"
    instant = True
    never = 10**9
    """The lag of answers that the recorded run did not live to take in."""

    def __init__(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.name = name
        self.ahead = any(row.get("ahead") for row in rows)
        self.answers = next((row["answers"] for row in rows if row.get("answers") in ANSWERS), self.answers)
        first = rows[0] if rows else {}
        self.rounds, self.answer_tokens = (n if type(n := first.get(o)) is int else None for o in _OPTIONS)
        self._by_prompt: dict[str, deque[dict[str, Any]]] = {}
        self._in_order: deque[dict[str, Any]] = deque()
        self._landed: dict[str, deque[dict[str, Any]]] = {}
        for row in rows:
            if "lag" in row:
                self._landed.setdefault(str(row.get("prompt")), deque()).append(row)
            elif row.get("prompt"):
                self._by_prompt.setdefault(row["prompt"], deque()).append(row)
            else:
                self._in_order.append(row)

    def complete(self, ask: Ask) -> Reply | Failure:
        digest = prompt_digest(ask)
        rows, never, notes = self._by_prompt.get(digest) or self._in_order, self.never, tuple[str, ...]()
        if not rows and ask.whole:
            others = ((d, r) for d, r in self._by_prompt.items() if r and r[0].get("whole"))
            digest, rows = next(others, (digest, rows))
            never, notes = 0, (INSTEAD,)
        known = self._landed.get(digest)
        landed = known.popleft() if known else {"lag": never if self.ahead else 0}
        lag, seconds = landed["lag"], float(landed.get("waited", 0.0))
        if not rows:
            return Failure("no answer was recorded for this prompt", "busy", lag=lag)
        row = rows.popleft()
        if "failure" in row:
            return Failure(str(row["failure"]), str(row.get("kind", "busy")), None, seconds, lag)
        samples = tuple(Sample(s["text"], s.get("finish", "stop"), s.get("tokens", 0)) for s in row["samples"])
        tokens_out = row.get("tokens_out", sum(s.tokens for s in samples))
        return Reply(samples, row.get("tokens_in", 0), tokens_out, seconds=seconds, notes=notes, lag=lag)


class RecordingEngine(EngineWrapper):
    """An engine that writes the answers of its inner engine into a file, for `replay:`."""

    def __init__(self, inner: Engine, path: str) -> None:
        super().__init__(inner)
        try:
            self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115  (closed by close)
        except OSError as error:
            raise ModelError(f"{path} cannot be written: {error.strerror}") from None

    def complete(self, ask: Ask) -> Reply | Failure:
        reply = self.inner.complete(ask)
        row: dict[str, Any] = {"prompt": prompt_digest(ask), "answers": self.inner.answers, "whole": ask.whole}
        row |= {name: value for name in _OPTIONS if (value := getattr(self.inner, name)) is not None}
        if isinstance(reply, Failure):
            row |= {"failure": reply.reason, "kind": reply.kind}
        else:
            samples = [{"text": s.text, "finish": s.finish, "tokens": s.tokens} for s in reply.samples]
            row |= {"tokens_in": reply.tokens_in, "tokens_out": reply.tokens_out, "samples": samples}
        self._write(row)
        return reply

    def note_landing(self, ask: Ask, lag: int, waited: float) -> None:
        self._write({"prompt": prompt_digest(ask), "lag": lag, "waited": waited, "ahead": self.ahead})

    def close(self) -> None:
        self._file.close()
        self.inner.close()

    def _write(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        good = isinstance(row, dict) and (
            "failure" in row or type(row.get("lag")) is int or all(isinstance(s["text"], str) for s in row["samples"])
        )
    except (ValueError, KeyError, TypeError):
        good = False
    if not good:
        raise ModelError(f'{path} line {number} is no recorded answer: it wants {{"samples": [{{"text": ...}}]}}')
    return row
