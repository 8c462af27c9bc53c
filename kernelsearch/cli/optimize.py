"""The command that searches: `optimize`."""

from __future__ import annotations

import sys
from typing import Any

import click

from kernelsearch.cli import complete
from kernelsearch.cli.options import db_option, json_option, model_options, target_option, task_argument


@click.command()
@task_argument
@click.option("--trials", default=200, show_default=True, type=click.IntRange(min=1), help="Candidates to evaluate.")
@click.option(
    "--strategy",
    default="evolve",
    show_default=True,
    shell_complete=complete.strategies,
    help="A shipped strategy's name, or a path to a file.",
)
@click.option(
    "--proposer",
    default="",
    metavar="NAME|SPEC",
    help="Who writes rewrites: edits (typed edits), mix (with --model, then the default), or one model's spec.",
)
@model_options
@target_option
@db_option
@click.option("--seed", default=0, show_default=True, help="Seed of every choice of the search.")
@click.option("--shape", "shapes", multiple=True, help="Time only this shape: its number, or a label like rows=8192.")
@click.option("--window", type=click.IntRange(min=1), help="Candidates in flight (default: the cores, at least 8).")
@click.option("--budget-seconds", type=click.FloatRange(min=0, min_open=True), help="Stop asking after this long.")
@click.option("--resume", is_flag=True, help="Go on with this task's last unfinished run in the database.")
@click.option("--out", type=click.Path(dir_okay=False, writable=True), help="Write the best kernel to this file.")
@click.option(
    "--confirm/--no-confirm",
    default=True,
    show_default=True,
    help="End by confirming the finalists against every baseline (with a GPU).",
)
@click.option("--fresh", is_flag=True, help="Measure again what this database already knows.")
@click.option(
    "--prune",
    metavar="FACTOR",
    type=click.FloatRange(min=1, min_open=True),
    help="Do not measure candidates that the static model puts at this many times the incumbent (with a GPU).",
)
@json_option
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def optimize(task: str, **options: Any) -> None:
    """Searches for a faster kernel than TASK's own.

    Every trial is kept in the database. Ctrl-C finishes what is in flight, prints the best and how to go on, and exits with 0; a second one drops it.
    """
    from kernelsearch.cli import run_optimize as run

    sys.exit(run.main(task, run.Options(**options)))
