"""An answer of a model as a value: a new kernel with what was changed, or the stage that refuses it and why.

The format, which `build.py` writes as rules and this module reads back:

    LINE 12          the statement of line 12 becomes the indented lines that follow
    BEFORE 12        the lines are put before it
    DELETE 12        the statement goes
    EDIT name 1      instead of lines: the typed edit of this name, its first variant
    GRID (...)       the kernel's grid, an expression of the launch spec
    SET BLOCK 1024   a constexpr or a launch option
    END
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernelsearch.core.types import Value
from kernelsearch.kernel.source import Kernel

STAGES = ("stopped", "grammar", "parses", "names", "gate")
"""The checks of an answer, in order, before it is a kernel that may be compiled."""


@dataclass(frozen=True)
class Answer:
    """A well-formed answer: the kernel that it makes of the parent, and how.

    edit is `lines`, `launch` (only GRID and SET), `kernel` (a whole one) or the name of the typed edit, whose variant
    counts from 1. config has the values of SET, which kernel.config has too. why is a whole kernel's own sentence on
    its idea.
    """

    text: str
    kernel: Kernel
    edit: str = "lines"
    variant: int = 0
    config: Mapping[str, Value] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class AnswerRejection:
    """The first stage that refuses an answer, and why, in one sentence."""

    text: str
    stage: str
    reason: str

    def __post_init__(self) -> None:
        if self.stage not in STAGES:
            raise ValueError(f"a stage is one of {', '.join(STAGES)}, not {self.stage!r}")


@dataclass(frozen=True)
class LineChange:
    """One line directive: LINE, BEFORE or DELETE, the parent's line, the new lines."""

    word: str
    line: int
    new: tuple[str, ...] = ()


@dataclass(frozen=True)
class Directives:
    """The directives of an answer, not yet applied to a parent."""

    changes: tuple[LineChange, ...]
    edit: tuple[str, int] | None
    settings: Mapping[str, str]
    grid: str | None


class Malformed(ValueError):
    """An answer that is not in the format; the message says which line."""


def parse(text: str) -> Directives:
    """Reads an answer's directives. Raises Malformed with the line of the answer."""
    lines = text.rstrip("\n").split("\n")
    if lines[-1] != "END":
        raise Malformed("the answer does not close with END")
    changes: list[LineChange] = []
    edit, grid = None, None
    settings: dict[str, str] = {}
    for number, line in enumerate(lines[:-1], 1):
        in_lines = not (edit or grid or settings)
        match line.split(" "):
            case ["", *_] if changes and changes[-1].word != "DELETE" and in_lines:
                changes[-1] = replace(changes[-1], new=(*changes[-1].new, line))
            case [("LINE" | "BEFORE" | "DELETE") as word, at] if at.isdecimal() and in_lines:
                changes.append(LineChange(word, int(at)))
            case ["EDIT", name, variant] if variant.isdecimal() and not changes and not edit and not grid:
                edit = name, int(variant)
            case ["GRID", *rest] if rest and not grid:
                grid = " ".join(rest)
            case ["SET", name, value] if name not in settings:
                settings[name] = value
            case _:
                raise Malformed(f"line {number} of the answer is not in the format: {line[:60]!r}")
    if not (changes or edit or grid or settings):
        raise Malformed("the answer says nothing before END")
    return Directives(tuple(changes), edit, settings, grid)


def apply_changes(lines: Sequence[str], spans: Mapping[int, int], changes: Sequence[LineChange]) -> str:
    """The source after the changes. spans has the last line of the statement that begins at a line, both from 1.

    Raises Malformed for a line at which no statement begins, and for changes out of order.
    """
    out: list[str] = []
    at = 1
    for change in changes:
        if change.line not in spans:
            raise Malformed(f"no statement that may be changed begins at line {change.line}")
        if change.line < at:
            raise Malformed(f"{change.word} {change.line} comes after a later line: line numbers ascend")
        out.extend(lines[at - 1 : change.line - 1])
        out.extend(change.new)
        if change.word == "DELETE":
            line = lines[change.line - 1]
            out.append(line[: len(line) - len(line.lstrip(" "))] + "pass")
        at = change.line if change.word == "BEFORE" else spans[change.line] + 1
    out.extend(lines[at - 1 :])
    return "\n".join(out) + "\n"


# ------------------------------------------------------------ what a model really answers

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_END = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)
"""The end of thinking that a chat template began."""
_OPEN = re.compile(r"<(?:think|thinking|reasoning)>.*\Z", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*$")


def strip_thinking(text: str) -> str:
    """The text without its thinking; thinking that never ended leaves nothing behind it."""
    return _OPEN.sub("", _END.sub("", _THINKING.sub("", text)))


def find_blocks(text: str, whole: bool = True) -> list[str]:
    """The blocks between code fences, in order, without their common indentation; whole: the last may lack its end."""
    blocks: list[str] = []
    lines: list[str] | None = None
    mark = indent = ""
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if lines is None and fence:
            lines, mark, indent = [], fence[1], line[: len(line) - len(line.lstrip(" \t"))]
        elif lines is not None and fence and line.strip() == fence[1] and fence[1].startswith(mark):
            blocks.append("\n".join(lines))
            lines = None
        elif lines is not None:
            lines.append(line.removeprefix(indent))
    if lines and whole:
        blocks.append("\n".join(lines))
    return blocks
