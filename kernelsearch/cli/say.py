"""Progress messages of the commands, on stderr."""

from __future__ import annotations

import sys

from kernelsearch.report.terminal import print_text
from kernelsearch.trial.slow_steps import Say


def make_say(quiet: bool = False) -> Say:
    """A function that prints a line on stderr at once, or nothing if quiet."""
    if quiet:
        return lambda text: None
    return lambda text: print_text(text, sys.stderr)
