"""The commands about one kernel: `verify`, `measure` and `hints`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from kernelsearch.cli.options import db_option, json_option, target_option, task_argument


@click.command()
@task_argument
@click.argument("kernel", type=click.Path(dir_okay=False))
@target_option
@click.option("--explain", is_flag=True, help="Also say in words what is wrong, on stderr.")
def verify(task: str, kernel: str, target: str, explain: bool) -> None:
    """Judges KERNEL against TASK at full depth. Prints JSON; exit code 0 accept, 1 any other verdict."""
    from kernelsearch import referee

    verdict = referee.verify(task, kernel, target)
    click.echo(json.dumps(referee.as_json(verdict)))
    if explain:
        click.echo(referee.explained(verdict), err=True)
    sys.exit(0 if verdict.accepted else 1)


@click.command()
@task_argument
@click.argument("kernel", type=click.Path(dir_okay=False), required=False)
@target_option
@db_option
@click.option("--shape", "shapes", multiple=True, help="Time only this shape: its number, or a label like rows=8192.")
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(min=0.1), help="Sampling time per shape.")
@json_option
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def measure(task: str, **options: Any) -> None:
    """Times KERNEL (or TASK's own) by the confirmed protocol against every baseline; refuses a wrong one."""
    from kernelsearch import measuring

    sys.exit(measuring.main(task, measuring.Options(**options)))


@click.command()
@task_argument
@click.argument("kernel", type=click.Path(dir_okay=False), required=False)
@target_option
@db_option
@click.option("--shape", "shapes", multiple=True, help="Only this shape: its number, or a label like rows=8192.")
@click.option("--counters/--no-counters", default=True, show_default=True, help="Ask Nsight Compute, some seconds a shape.")
@json_option
def hints(task: str, **options: Any) -> None:
    """Says where the time of KERNEL (or TASK's own) goes, and what to change."""
    from kernelsearch import hinting

    sys.exit(hinting.main(task, hinting.Options(**options)))
