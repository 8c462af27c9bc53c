"""The commands about one kernel: `verify`, `try`, `measure` and `hints`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from kernelsearch.cli.options import (
    call_option,
    db_option,
    isolation_option,
    json_option,
    kernel_argument,
    quiet_option,
    record_task,
    shape_option,
    target_option,
    task_argument,
)


@click.command()
@task_argument
@kernel_argument
@call_option
@target_option
@click.option("--explain", is_flag=True, help="Also explain on stderr what is wrong.")
@isolation_option
@quiet_option
def verify(
    task: str, kernel: str | None, call: str | None, target: str, explain: bool, require_isolation: bool, quiet: bool
) -> None:
    """Judges a kernel at full depth.

    Judges KERNEL (default: TASK's own kernel) and prints JSON; exit code 0 for accept, 1 for any other verdict,
    and for a TASK's own kernel that is right at the sizes of its shapes alone and gives wrong answers at others. A
    KERNEL file is what `show` prints: @triton.jit functions named like the task's, and nothing that runs on the host.
    """
    from kernelsearch.report.terminal import make_say, print_text
    from kernelsearch.trial import referee
    from kernelsearch.trial.coverage import format_coverage

    task = record_task(task, call, quiet)
    own = referee.read_kernel_argument(task, kernel) is None
    verdict = referee.verify(task, kernel, target, make_say(quiet), require_isolation)
    click.echo(json.dumps(referee.as_json(verdict)))
    narrowed = f"accept {verdict.reason}\n" if verdict.accepted and verdict.reason else ""
    if said := referee.explain(verdict) if explain else "" if quiet else narrowed + format_coverage(verdict):
        print_text(said, sys.stderr)
    sys.exit(0 if referee.is_right(verdict, own) else 1)


@click.command("try")
@task_argument
@click.argument("kernel", type=click.Path(dir_okay=False), metavar="KERNEL.py")
@click.option(
    "--parent", default="", metavar="DIGEST|best", help="The kernel it was made from (default: the task's own)."
)
@click.option("--why", default="", help="The idea in a sentence (default: the file's docstring).")
@click.option(
    "--tune", default=0, show_default=True, type=click.IntRange(min=0), help="More trials that tune its SPACE."
)
@click.option("--by", default="hand", show_default=True, help="Who wrote it, for the record.")
@target_option
@db_option
@shape_option
@json_option
@quiet_option
def try_(task: str, **options: Any) -> None:
    """Judges, times and records one kernel.

    Like one trial of a search; --tune adds trials for its SPACE. Prints the verdict, times against the seed, the
    record's best and the roofline, and hints. Exit code 0 for accept, 1 for any other verdict.
    """
    from kernelsearch.cli import run_try

    sys.exit(run_try.main(task, run_try.TryOptions(**options)))


@click.command("measure")
@task_argument
@kernel_argument
@target_option
@db_option
@shape_option
@click.option(
    "--seconds", default=10.0, show_default=True, type=click.FloatRange(min=0.1), help="Sampling time per shape."
)
@isolation_option
@json_option
@quiet_option
def measure_command(task: str, **options: Any) -> None:
    """Times a kernel by the confirmed protocol.

    Times KERNEL (default: TASK's own kernel) against every baseline. A wrong kernel is not timed: exit code 1.
    """
    from kernelsearch.api.measurement import measure
    from kernelsearch.report.terminal import print_text

    as_json = options.pop("as_json")
    done = measure(task, **options)
    if as_json:
        refused = done.evidence is None  # one line, as `verify` prints it
        click.echo(json.dumps(done.facts, indent=None if refused else 2))
    else:
        print_text(done.text)
    sys.exit(0 if done.right_and_timed else 1)


@click.command()
@task_argument
@kernel_argument
@target_option
@db_option
@shape_option
@click.option(
    "--counters/--no-counters", default=True, show_default=True, help="Run Nsight Compute too: some seconds per shape."
)
@isolation_option
@json_option
@quiet_option
def hints(task: str, **options: Any) -> None:
    """Says where a kernel's time goes, and what to change.

    The hints are about KERNEL (default: TASK's own kernel).
    """
    from kernelsearch.cli import run_hints

    sys.exit(run_hints.main(task, **options))
