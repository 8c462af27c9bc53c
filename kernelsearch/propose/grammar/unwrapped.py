"""What a model really answers: its text without its thinking, and the blocks between its code fences."""

from __future__ import annotations

import re

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
