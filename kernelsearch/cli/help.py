"""`help`: the reference pages, and the help of any command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

PAGES = Path(__file__).resolve().parent / "pages"
KERNEL = PAGES.parents[1] / "kernel" / "kernel_file.md"
"""The page `kernel`, which models are shown too."""
TOPICS = {
    "task": "A task file: its three forms and every option, with an example each.",
    "kernel": "A kernel file: what a proposer writes and `verify` takes.",
    "models": "Language models as proposers: engines, budgets, recorded answers.",
    "agents": "Coding agents: the loop to follow, what the referee refuses, the MCP server.",
    "python": "From Python: functions with typed results; strategies, edits and engines of your own.",
    "machines": "Many GPUs and many machines: Ray, cards that differ, faults.",
    "how": "How a trial goes, from strategy to database.",
    "trust": "What the numbers and verdicts are worth, with the studies behind them.",
}


@click.command("help")
@click.argument("topic", required=False)
@click.pass_context
def help_(ctx: click.Context, topic: str | None) -> None:
    """Shows a reference page, or the help of a command."""
    group = ctx.parent.command if ctx.parent else None
    if topic is None:
        width = max(map(len, TOPICS))
        click.echo("\n".join(f"kernelsearch help {name:{width}}  {text}" for name, text in TOPICS.items()))
    elif topic in TOPICS:
        _show(path_of(topic).read_text(encoding="utf-8"))
    elif isinstance(group, click.Group) and topic in group.commands:
        command = group.commands[topic]
        with click.Context(command, info_name=topic, parent=ctx.parent) as inner:
            click.echo(command.get_help(inner))
    else:
        raise click.UsageError(f"no page and no command {topic!r}; the pages are {', '.join(TOPICS)}")


SKILL = """---
name: kernelsearch
description: Makes Triton GPU kernels faster and proves them right. Use it to write a kernel or to speed one up.
---

"""


def render_skill() -> str:
    """The SKILL.md for coding agents: the pages `agents` and `kernel`."""
    return SKILL + "\n".join(path_of(topic).read_text(encoding="utf-8") for topic in ("agents", "kernel"))


def path_of(topic: str) -> Path:
    """The file of a page."""
    return KERNEL if topic == "kernel" else PAGES / f"{topic}.md"


def _show(text: str) -> None:
    """Markdown, rendered where a person reads it and as it is where a program does."""
    stream = sys.stdout
    if not stream.isatty():
        click.echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(file=getattr(stream, "bare", stream), width=min(100, Console().width))
    console.print(Markdown(text, code_theme="ansi_dark"))
