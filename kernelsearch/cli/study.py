"""The command that compares strategies: `study`."""

from __future__ import annotations

import sys
from typing import Any

import click

from kernelsearch.cli.options import json_option, target_option


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--db", type=click.Path(), help="SQLite file of all trials (default: beside FILE, ending in .db).")
@target_option
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Runs under way at a time (default: one per arm with a GPU, else 1)."
)
@click.option("--budget-seconds", type=click.FloatRange(min=0, min_open=True), help="Stop asking after this long.")
@click.option(
    "--report", is_flag=True, help="Only print the report, from the database alone; FILE may be the database."
)
@json_option
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def study(file: str, **options: Any) -> None:
    """Compares strategies at equal budget.

    Runs the tasks, arms and seeds of FILE (.toml) and prints a report. A file, least first:

    \b
        trials = 100
        seeds = 3
        [[task]]
        path = "softmax.py"
        [[arm]]
        name = "evolve"
        [[arm]]
        name = "tpe"

    The same command goes on where it was cut. Ctrl-C finishes what is in flight. Exit code 1: a run could not be done.
    """
    from kernelsearch.cli import run_study

    sys.exit(run_study.main(file, run_study.Options(**options)))
