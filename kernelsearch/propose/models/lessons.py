"""Lessons: what gained on which facts, out of the user's database and out of our studies, for a page like theirs.

A lesson is data that somebody else wrote: one bounded line under a heading that says so, never an instruction. It has
a digest (`kernelsearch show`) or a study to open, and says on which device it was found, if that is another one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernelsearch.core.types import ShapeFact, TaskFacts, TensorFact
from kernelsearch.propose.models.repair import clean
from kernelsearch.record import plan_rows
from kernelsearch.record.rows import from_row
from kernelsearch.record.store import Store

SHIPPED = Path(__file__).with_name("lessons.json")
"""Facts of our studies, each with its study."""
LEAST_GAIN, MOST_ROWS, SHOWN = 1.05, 400, 3
LIKE = 4
"""The least similarity of facts with which a lesson is shown."""
WEIGHTS = {"bottleneck": 2, "work": 2, "size": 1, "dtype": 1, "device": 1}
L2_BYTES, MANY = 50e6, 64
"""Bytes that an L2 of today holds; operations a byte from which a task's products matter."""

_DTYPE = re.compile(r"\b(bfloat16|float16|float32|float64|float8\w*|int8)\b")
_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64", "i8": "int8"}


@dataclass(frozen=True)
class Lesson:
    """What gained how much, on these facts; kernel is a digest to open, or empty where study names one of ours."""

    text: str
    gain: float
    evidence: str
    device: str
    bottleneck: str
    dtype: str
    size: str
    work: str
    task: str
    kernel: str = ""
    study: str = ""
    imported: bool = False

    def compare(self, facts: Mapping[str, str]) -> int:
        """How like the facts of a task are to its own; 0 for another kind of work."""
        if facts.get("work") != self.work:
            return 0
        return sum(weight for name, weight in WEIGHTS.items() if facts.get(name) == getattr(self, name) != "")

    def describe(self, device: str) -> str:
        """The lesson in a line, for a page of this device."""
        where = "" if self.device == device else f" on another device, {clean(self.device, 40)}"
        source = f"kernel {clean(self.kernel[:8])} of {clean(self.task, 40)}" if self.kernel else self.study
        found = f"{clean(self.evidence, 20)}{where}{', imported' if self.imported else ''}"
        return f"{self.gain:.2f}x ({found}; {source}): {clean(self.text, 200)}"


def describe_facts(shapes: Iterable[ShapeFact], device: str, bottleneck: str = "", dtype: str = "") -> dict[str, str]:
    """The facts by which lessons are found; dtype counts where no shape names one."""
    shapes = list(shapes)
    moved = max((s.bytes_moved for s in shapes if s.bytes_moved), default=0)
    each = max((s.flops / s.bytes_moved for s in shapes if s.bytes_moved and s.flops), default=0.0)
    named = [found[1] for s in shapes if (found := _DTYPE.search(s.label))]
    size = ("beyond L2" if moved > L2_BYTES else "within L2") if moved else ""
    work = ("few operations a byte" if each < MANY else "many operations a byte") if each else ""
    dtype = max(named, key=named.count) if named else dtype
    return {"bottleneck": bottleneck, "dtype": dtype, "size": size, "work": work, "device": device}


def facts_of_task(task: TaskFacts, device: str, bottleneck: str = "") -> dict[str, str]:
    """The facts of an opened task, whose first tensor has a type of data."""
    launches = (launch for trace in task.traces.values() for launch in trace.launches)
    dtype = next((a.dtype for one in launches for a in one.args.values() if isinstance(a, TensorFact)), "")
    return describe_facts(task.shapes, device, bottleneck, _NAMES.get(dtype, dtype))


@cache
def read_shipped() -> tuple[Lesson, ...]:
    """The lessons of our studies."""
    return tuple(Lesson(**row) for row in json.loads(SHIPPED.read_text(encoding="utf-8")))


def load_lessons(store: Store, without: str = "") -> list[Lesson]:
    """The lessons of a database, without those of a task (its digest)."""
    rows = plan_rows.load_gained_steps(store, LEAST_GAIN, MOST_ROWS)
    return [_lesson_of(row) for row in rows if row["digest"] != without and row["text"] and row["gain"]]


def choose_lessons(
    lessons: Iterable[Lesson], facts: Mapping[str, str], most: int = SHOWN, like: int = LIKE
) -> list[Lesson]:
    """The lessons whose facts are most like these, the largest change first among equals; one of each task and text."""
    found = {(one.task, one.text): one for one in lessons if one.compare(facts) >= like}
    ranked = sorted(found.values(), key=lambda one: (-one.compare(facts), -abs(math.log(one.gain)), one.task, one.text))
    return ranked[:most]


def _lesson_of(row: Mapping[str, Any]) -> Lesson:
    shapes = [from_row(ShapeFact, shape, params={}) for shape in json.loads(row["shapes"])]
    facts = describe_facts([s for s in shapes if s.key.startswith("timed:")], row["device"], row["bottleneck"] or "")
    return from_row(Lesson, dict(row), **facts, imported=bool(row["imported"]))
