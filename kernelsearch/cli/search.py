"""The commands that search, `optimize` and `study`, and `page`, which shows what a model is shown."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import click
from click.core import ParameterSource

from kernelsearch.cli.options import (
    OutputFile,
    SectionedCommand,
    call_option,
    db_option,
    edit_option,
    isolation_option,
    json_option,
    kernel_argument,
    machine_options,
    model_options,
    quiet_option,
    read_params,
    record_task,
    seconds_option,
    shape_option,
    target_option,
    task_argument,
)

_OPTIMIZE = {
    "The search": "call hours trials strategy params seed starts shapes window budget_seconds fresh resume",
    "Who proposes": "proposer edits models max_tokens max_usd price record",
    "The result": "kernels db out confirm as_json quiet",
    "The machine": "target gpus ray device require_isolation",
}


@click.command("optimize", cls=SectionedCommand, sections=_OPTIMIZE)
@click.argument("task", type=click.Path(dir_okay=False), metavar="[TASK.py]", required=False)
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True),
    help="Without TASK: how long all regions of --db are searched.",
)
@call_option
@click.option("--trials", default=200, show_default=True, type=click.IntRange(min=1), help="Candidates to evaluate.")
@click.option("--strategy", default="evolve", show_default=True, help="A shipped strategy's name, or a path to a file.")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    callback=read_params,
    help="A parameter of the strategy; may be repeated.",
)
@click.option(
    "--proposer",
    default="",
    metavar="NAME|SPEC",
    help="Who writes rewrites: edits (typed edits), mix (with --model, then the default), or one model's spec.",
)
@edit_option
@model_options
@target_option
@machine_options
@db_option
@click.option("--seed", default=0, show_default=True, help="Random seed of the search.")
@shape_option
@click.option(
    "--start",
    "starts",
    multiple=True,
    metavar="KERNEL.py",
    type=click.Path(dir_okay=False),
    help="Start from this kernel and tune it; may be repeated.",
)
@click.option(
    "--window",
    type=click.IntRange(min=1),
    help="Candidates in flight (default: at least 8, more with cores and trials).",
)
@seconds_option
@click.option(
    "--resume", is_flag=True, help="Continue this task's last unfinished run in the database, with its own options."
)
@click.option(
    "--kernels",
    default=4,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many kernels may share the shapes of a task that times several.",
)
@click.option("--out", type=OutputFile(), help="Write the best kernel to this file.")
@click.option(
    "--confirm/--no-confirm",
    default=True,
    show_default=True,
    help="End by confirming the finalists against every baseline (with a GPU).",
)
@click.option("--fresh", is_flag=True, help="Measure again what this database has already measured.")
@isolation_option
@json_option
@quiet_option
def optimize_command(task: str | None, hours: float | None, call: str | None, **options: Any) -> None:
    """Searches for a faster kernel than TASK's own.

    With --hours in place of TASK it searches the regions of models that `collect` put into --db, those first that the
    model's step can gain most from.

    Every trial is kept in the database. Ctrl-C finishes what is in flight, prints the best and how to go on, and exits
    with 0; a second one drops it.
    """
    from kernelsearch.api.optimization import optimize
    from kernelsearch.record import DEFAULT_DB
    from kernelsearch.report.terminal import make_say, print_text

    source = click.get_current_context().get_parameter_source
    given = frozenset(name for name in options if source(name) is not ParameterSource.DEFAULT)
    task = record_task(task, call, options["quiet"]) if task else None
    as_json, db = options.pop("as_json"), options["db"]
    if (task is None) != (hours is not None):
        raise click.UsageError("name a TASK.py, or give --hours for the regions that `collect` put into --db")
    if task is None:
        assert hours is not None  # else it is refused above
        from kernelsearch.graphs.schedule import optimize_regions

        print_text(
            optimize_regions(
                db, hours, make_say(options["quiet"]), {name: options[name] for name in given & set(options)}
            )
        )
        return
    done = optimize(task, **options, ending=True, given=given)
    if as_json:
        click.echo(json.dumps(done.facts, indent=2))
    else:
        print_text(done.text)
    named = "" if db == DEFAULT_DB else f" --db {shlex.quote(db)}"
    commands = "".join(f"\n  kernelsearch {name}{named}" for name in ("leaderboard", "lineage best", "show best"))
    make_say(options["quiet"])(f"stored in {db}; see:{commands}")


@click.command()
@task_argument
@kernel_argument
@click.option(
    "--answers",
    default="kernel",
    show_default=True,
    type=click.Choice(["kernel", "edit"]),
    help="The form of answer to ask for: a whole kernel file, or an edit of a few lines.",
)
@click.option("--tokens", type=click.IntRange(min=1), help="Tokens that the page may have, about three letters each.")
@click.option("--seed", default=0, show_default=True, help="Random seed that draws what to ask for.")
@db_option
@target_option
@shape_option
@quiet_option
def page(task: str, **options: Any) -> None:
    """Prints what a model is shown of a kernel.

    The page is about KERNEL (default: TASK's own kernel), with what the task's runs in the database have tried.
    """
    from kernelsearch.cli import run_page

    sys.exit(run_page.main(task, run_page.PageOptions(**options)))


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--db", type=click.Path(), help="SQLite file of all trials (default: beside FILE, ending in .db).")
@target_option
@machine_options
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Runs at the same time (default: one per arm with a GPU, else 1)."
)
@seconds_option
@click.option(
    "--report", is_flag=True, help="Only print the report, from the database alone; FILE may be the database."
)
@isolation_option
@json_option
@quiet_option
def study(file: str, **options: Any) -> None:
    """Compares strategies at equal budget.

    Runs the tasks, arms and seeds of FILE (.toml) and prints a report. A minimal file:

    \b
        trials = 100
        seeds = 3
        [[task]]
        path = "softmax.py"
        [[arm]]
        name = "evolve"
        [[arm]]
        name = "tpe"

    The same command continues an interrupted study. Ctrl-C finishes what is in flight. Exit code 1: a run failed.
    """
    from kernelsearch.cli import run_study

    sys.exit(run_study.main(file, run_study.StudyOptions(**options)))
