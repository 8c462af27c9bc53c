"""The command that asks a proposer and nothing else: `propose`."""

from __future__ import annotations

import sys
from typing import Any

import click

from kernelsearch.cli.options import json_option, kernel_argument, target_option, task_argument

_STAGES = ("stopped", "grammar", "parses", "names", "gate", "compiles", "right", "faster")


@click.command()
@task_argument
@kernel_argument
@click.option(
    "--proposer",
    required=True,
    metavar="edits|SPEC",
    help="Typed edits, or a model: openai:URL#MODEL, hf:PATH, vllm:MODEL, replay:FILE.",
)
@click.option("-n", "n", default=8, show_default=True, type=click.IntRange(min=1), help="Answers to ask for.")
@click.option(
    "--until", default="faster", show_default=True, type=click.Choice(_STAGES), help="The last stage to look at."
)
@click.option(
    "--temperature", default=0.8, show_default=True, type=click.FloatRange(min=0), help="Of the model's sampling."
)
@click.option("--seed", default=0, show_default=True, help="Seed of ideas and of the model's sampling.")
@click.option("--price", type=(float, float), metavar="IN OUT", help="US dollars for a million tokens, in and out.")
@click.option("--record", type=click.Path(dir_okay=False), help="Write the answers to a file for replay:FILE.")
@target_option
@click.option("--shape", "shapes", multiple=True, help="Time only this shape: its number, or a label like rows=8192.")
@click.option("--page", is_flag=True, help="Print the prompt and ask nobody.")
@json_option
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def propose(task: str, **options: Any) -> None:
    """Asks for edits of a kernel, and says how far each comes.

    N edits of KERNEL, or of TASK's own, each up to a faster kernel.
    """
    from kernelsearch.cli import run_propose

    sys.exit(run_propose.main(task, run_propose.Options(**options)))
