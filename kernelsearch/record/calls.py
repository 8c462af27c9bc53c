"""Calls of models as rows and rows as calls: what goes in comes out equal, so that a resumed run pays nothing twice."""

from __future__ import annotations

from collections.abc import Iterable

from kernelsearch.core.model_calls import Answered, ModelCall
from kernelsearch.core.types import content_digest
from kernelsearch.record.rows import Row, now

_PLAIN = (
    "number",
    "arm",
    "engine",
    "parent",
    "idea",
    "action",
    "grammar",
    "tokens_in",
    "tokens_cached",
    "tokens_out",
    "seconds",
    "usd",
    "failure",
    "kind",
    "repairs",
    "landed",
    "waited",
)


def prompt_row(call: ModelCall) -> Row:
    return dict(digest=call.prompt, name=call.action[:60], system=call.system, page=call.page, created=now())


def call_row(run: int, call: ModelCall) -> Row:
    plain = {name: getattr(call, name) for name in _PLAIN}
    return dict(name=f"{call.arm} ask {call.number}", run=run, prompt=call.prompt, made=now(), **plain)


def answer_rows(number: int, call: ModelCall) -> list[Row]:
    return [
        dict(
            call=number,
            position=i,
            digest=content_digest(a.text),
            text=a.text,
            finish=a.finish,
            tokens=a.tokens,
            stage=a.stage,
            reason=a.reason,
            kernel=a.kernel,
        )
        for i, a in enumerate(call.answers)
    ]


def call_of(row: Row, answers: Iterable[Row]) -> ModelCall:
    """row: a call joined with its prompt."""
    found = tuple(Answered(a["text"], a["finish"], a["tokens"], a["stage"], a["reason"], a["kernel"]) for a in answers)
    plain = {name: row[name] for name in _PLAIN}
    return ModelCall(**plain, system=row["system"], page=row["page"], answers=found)
