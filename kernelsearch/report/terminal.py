"""Text for people: with colours where a terminal is there, elsewhere as it is.

`NO_COLOR` and `TERM=dumb` are honoured, as rich does.
"""

from __future__ import annotations

import re
import sys
import textwrap
from typing import TYPE_CHECKING, Any, TextIO

from kernelsearch.core.formats import make_printable
from kernelsearch.core.slow_steps import Say

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {
    r"^(note|warning):": "yellow",
    r"^(best|confirmed|next):": "bold green",
    r"\b(reject-[a-z]+|refused|timeout|crash|wrong|not shown to be faster)\b": "red",
    r"\b(accept(ed)?|faster)\b": "green",
    r"\b\d+\.\d+x": "bold",
    r"\((confirmed|measured)\)": "green",
    r"\((estimated|an estimate)\)": "yellow",
    r"`[^`\n]+`|\bkernelsearch (leaderboard|lineage|show|optimize|export|measure|help)\b[^,;`\n]*": "cyan",
    r"^ *-> ": "bold cyan",
}
"""The styles of what a line says, by pattern."""
COMMAND = re.compile(r"(: |^ *)kernelsearch [a-z]")
DIFF = re.compile(r" *(---|\+\+\+|@@) ")
"""Lines that are copied, commands and the code of diffs, are wrapped by the terminal: they stay one line."""


def open_console(stream: TextIO) -> Console:
    """A console that colours numbers and verdicts as this project says them."""
    from rich.console import Console
    from rich.highlighter import Highlighter
    from rich.text import Text

    class Words(Highlighter):
        """Puts the styles on a text."""

        def highlight(self, text: Text) -> None:
            for pattern, style in STYLES.items():
                for match in re.finditer(pattern, text.plain, re.MULTILINE):
                    text.stylize(style, *match.span())

    return Console(file=getattr(stream, "bare", stream), highlighter=Words(), markup=False, emoji=False)


class PlainOutput:
    """An output that lets no text steer the terminal; `bare` is the output itself, for this program's own colours."""

    encoding = "utf-8"

    def __init__(self, bare: Any) -> None:
        self.bare = bare
        if hasattr(bare, "reconfigure"):  # what its encoding lacks is written as Python does
            bare.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        return self.bare.write(make_printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Prints lines, in colour on a terminal."""
    stream, text = stream or sys.stdout, make_printable(text)
    if stream.isatty():
        print_wrapped(text, open_console(stream))
    else:
        print(text.rstrip(), file=stream, flush=True)


def print_wrapped(text: str, console: Console) -> None:
    """Prints lines that break between words, with what follows indented."""
    lines, in_diff = [], False
    for line in make_printable(text).rstrip().splitlines():
        in_diff = bool(DIFF.match(line)) or (in_diff and line.startswith(" "))
        if len(line) <= console.width or in_diff or COMMAND.search(line):
            lines.append(line)
        else:
            rest = " " * (len(line) - len(line.lstrip()) + 2)
            lines += textwrap.wrap(
                line, console.width, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
            )
    console.print("\n".join(lines), soft_wrap=True)


def make_say(quiet: bool = False) -> Say:
    """A function that prints a line on stderr at once, or nothing if quiet."""
    if quiet:
        return lambda text: None
    return lambda text: print_text(text, sys.stderr)
