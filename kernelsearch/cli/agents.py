"""The commands for coding agents: `mcp` and `skill`."""

from __future__ import annotations

import importlib.util
import sys

import click

from kernelsearch.cli.help import render_skill
from kernelsearch.cli.options import db_option, quiet_option, target_option


@click.command()
@db_option
@target_option
@quiet_option
def mcp(db: str, target: str, quiet: bool) -> None:
    """Serves agents over standard input and output.

    Speaks the Model Context Protocol, with the tools open, page, try, tune, best and lineage (see `kernelsearch help
    agents`). Ends when its client does.
    """
    from kernelsearch.core import extras
    from kernelsearch.core.errors import KernelsearchError

    if importlib.util.find_spec("mcp") is None:
        raise KernelsearchError(f"mcp is not installed for {sys.executable}: {extras.install_command('mcp')}")
    from kernelsearch.cli import run_mcp
    from kernelsearch.report.terminal import make_say
    from kernelsearch.trial.bench import choose_target

    choose_target(target)  # an unknown one is said now
    run_mcp.main(db, target, make_say(quiet))


@click.command()
def skill() -> None:
    """Prints a SKILL.md for coding agents.

    For example: `kernelsearch skill > .claude/skills/kernelsearch/SKILL.md`.
    """
    click.echo(render_skill(), nl=False)
