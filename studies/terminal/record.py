"""Records a command's run in a terminal, with its times and colours.

    python studies/terminal/record.py OUT [WORD ...]

Runs `kernelsearch WORD ...` (left out: a search on the shipped cross entropy) in a pseudo-terminal of 100 columns, in a
folder of its own beside the shipped tasks. Writes OUT.cast (asciicast v2: `asciinema play OUT.cast`) and OUT.svg, the
last screen.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 100, 40
ROOT = Path(__file__).resolve().parents[2]
SEARCH = shlex.split("optimize studies/cross_entropy/cross_entropy.py --trials 60")


def run_in_terminal(command: list[str], folder: str) -> list[tuple[float, str]]:
    """What a command writes to a terminal, each piece with its second."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    wanted = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    began, pieces = time.monotonic(), []
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=kept | wanted)
    os.close(theirs)
    while select.select([ours], [], [], 1.0)[0] or process.poll() is None:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        pieces.append((time.monotonic() - began, data.decode(errors="replace")))
    os.close(ours)
    process.wait()
    return pieces


def read_last_screen(text: str) -> str:
    """The lines as they stand at the end: of one that is redrawn in place, what was drawn last."""
    lines = [line.rstrip("\r").split("\r\x1b[2K")[-1] for line in text.replace("\r\n", "\n").split("\n")]
    return re.sub(r"\x1b\[\?[0-9;]*[a-zA-Z]", "", "\n".join(lines)).rstrip()


def main(out: str, words: list[str]) -> None:
    shown = "$ " + shlex.join(["kernelsearch", *words]) + "\r\n"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("studies", "strategies"):
            (Path(folder) / name).symlink_to(ROOT / name)
        program = str(Path(sys.executable).with_name("kernelsearch"))
        pieces = [(0.0, shown), *run_in_terminal([program, *words], folder)]
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": shown[2:].strip()}
    events = [json.dumps([round(second, 3), "o", piece]) for second, piece in pieces]
    Path(f"{out}.cast").write_text("\n".join([json.dumps(head), *events]) + "\n")
    console = {"file": io.StringIO(), "color_system": "truecolor", "force_terminal": True}
    screen = Console(record=True, width=COLUMNS, **console)
    screen.print(Text.from_ansi(read_last_screen("".join(piece for _, piece in pieces))), soft_wrap=True)
    drawn = screen.export_svg(title="kernelsearch")
    Path(f"{out}.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))  # no font of the web
    print(f"wrote {out}.cast and {out}.svg: {len(pieces)} pieces in {pieces[-1][0]:.0f} s")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:] or SEARCH)
