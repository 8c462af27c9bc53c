"""The command line: data on stdout, progress on stderr.

Exit codes: 0 done (also when nothing was gained), 1 the answer is no, 2 misuse, 130 Ctrl-C before there was anything to
keep. A file of this folder holds the
commands of one subject; heavy modules are imported by the command that needs them, so that `--help` is instant.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import click

from kernelsearch import __version__
from kernelsearch.cli.agents import mcp, skill
from kernelsearch.cli.database import import_, leaderboard, lineage, show, ui
from kernelsearch.cli.export import export
from kernelsearch.cli.help import help_
from kernelsearch.cli.kernel import hints, measure_command, try_, verify
from kernelsearch.cli.learning import dataset, train
from kernelsearch.cli.models import apply, collect
from kernelsearch.cli.search import optimize_command, page, study
from kernelsearch.cli.start import doctor, new, seed
from kernelsearch.core.errors import KernelsearchError
from kernelsearch.report.terminal import PlainOutput, print_text

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of an output that takes no more; click handles a reader who went away (EPIPE)."""


SECTIONS = {
    "Begin": (new, seed, doctor, help_),
    "Search": (optimize_command, study),
    "See what was found": (leaderboard, ui, lineage, show),
    "Whole models": (collect, apply),
    "One kernel": (verify, measure_command, hints, try_, page),
    "Take it elsewhere": (export, import_),
    "A model that learns": (dataset, train),
    "Coding agents": (mcp, skill),
}


class _Group(click.Group):
    """Lists commands in sections; turns the project's own errors, a full output and Ctrl-C into one line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([((c.name or "").ljust(width), c.get_short_help_str(limit=80)) for c in commands])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with redirect_stdout(PlainOutput(sys.stdout)), redirect_stderr(PlainOutput(sys.stderr)):
                return self.invoke_command(ctx)
        except OSError as error:
            if error.errno not in FULL:
                raise
            click.echo(f"kernelsearch: standard output cannot be written: {error.strerror}", err=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in its buffer fails no exit
            sys.exit(2)

    def invoke_command(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KernelsearchError as error:
            print_text(f"kernelsearch: {error}", sys.stderr)
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("kernelsearch: interrupted", err=True)
            ctx.exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version")
def main() -> None:
    """Finds the fastest Triton kernel that it can prove right.

    Start with `kernelsearch new softmax`, then `kernelsearch optimize softmax.py --trials 200`.
    """


for _commands in SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)
