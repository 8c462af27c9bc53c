"""The command line: options in, one stage's answer out; data on stdout, progress on stderr.

Exit codes: 0 done (also when nothing was gained), 1 the answer is no, 2 misuse. Heavy modules are
imported by the command that needs them, so that `--help` is instant.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from kernelsearch import __version__
from kernelsearch.errors import KernelsearchError

DEFAULT_DB = "kernelsearch.db"


class _Group(click.Group):
    """Turns the project's own errors into one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KernelsearchError as error:
            click.echo(f"kernelsearch: {error}", err=True)
            ctx.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version")
def main() -> None:
    """Finds the fastest Triton kernel that it can prove right.

    Start with `kernelsearch new softmax`, then `kernelsearch optimize softmax.py --trials 200`.
    """


db_option = click.option("--db", default=DEFAULT_DB, show_default=True, type=click.Path(), help="SQLite file of all trials.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
target_option = click.option(
    "--target", default="auto", show_default=True,
    help="Machine to compile for: auto (the live GPU, else h100), or h100, h200, a100, l4, l40s, rtx4090, b200.",
)  # fmt: skip
task_argument = click.argument("task", type=click.Path(dir_okay=False))


@main.command()
@task_argument
@click.option("--trials", default=200, show_default=True, type=click.IntRange(min=1), help="Candidates to evaluate.")
@click.option("--strategy", default="evolve", show_default=True, help="A shipped strategy's name, or a path to a file.")
@click.option("--proposer", default="edits", show_default=True, help="Who writes rewrites: edits (typed edits, no model).")
@target_option
@db_option
@click.option("--seed", default=0, show_default=True, help="Seed of every choice of the search.")
@click.option("--shape", "shapes", multiple=True, help="Time only this shape: its number, or a label like rows=8192.")
@click.option("--window", type=click.IntRange(min=1), help="Candidates in flight (default: the cores, at least 8).")
@click.option("--budget-seconds", type=click.FloatRange(min=0, min_open=True), help="Stop asking after this long.")
@click.option("--resume", is_flag=True, help="Go on with this task's last unfinished run in the database.")
@click.option("--out", type=click.Path(dir_okay=False, writable=True), help="Write the best kernel to this file.")
@click.option("--confirm/--no-confirm", default=True, show_default=True,
              help="End by confirming the finalists against every baseline (with a GPU).")  # fmt: skip
@json_option
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def optimize(task: str, **options: Any) -> None:
    """Searches for a faster kernel than TASK's own, and keeps every trial.

    Ctrl-C finishes what is in flight, prints the best and how to go on, and exits with 0; a second one drops it.
    """
    from kernelsearch import optimize as run

    sys.exit(run.main(task, run.Options(**options)))


@main.command()
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


@main.command()
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


@main.command()
@task_argument
@click.argument("kernel", type=click.Path(dir_okay=False), required=False)
@target_option
@click.option("--shape", "shapes", multiple=True, help="Only this shape: its number, or a label like rows=8192.")
@json_option
def hints(task: str, **options: Any) -> None:
    """Says where the time of KERNEL (or TASK's own) goes, and what to change."""
    from kernelsearch import hinting

    sys.exit(hinting.main(task, hinting.Options(**options)))


@main.command()
@db_option
@click.option("--task", help="Only this task's kernels.")
@click.option("--device", help="Only this device or target.")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(min=0),
              help="Kernels per task, device and evidence; 0 for all.")  # fmt: skip
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
def leaderboard(db: str, task: str | None, device: str | None, limit: int, as_json: bool, as_csv: bool) -> None:
    """Shows the best kernels found so far."""
    from kernelsearch.record.store import Store
    from kernelsearch.report import leaderboard as board

    with Store.open(db, write=False) as store:
        rows = board.rows(store, task, device, limit or None)
    form = board.as_json if as_json else board.as_csv if as_csv else board.as_text
    click.echo(form(rows).rstrip("\n"))


@main.command()
@click.argument("digest")
@db_option
@click.option("--diff/--no-diff", default=True, show_default=True, help="Show what each step changed.")
@json_option
def lineage(digest: str, db: str, diff: bool, as_json: bool) -> None:
    """Shows the ancestors of a kernel, who proposed what and what it gained. DIGEST may be `best`."""
    from kernelsearch.record import lineage as recorded
    from kernelsearch.record.store import Store
    from kernelsearch.report import lineage as tree

    with Store.open(db, write=False) as store:
        whole = recorded.best(store) if digest == "best" else store.digest(digest)
        text = json.dumps(tree.as_dict(store, whole), indent=2) if as_json else tree.as_text(store, whole, diffs=diff)
        click.echo(text.rstrip("\n"))


@main.command()
@click.argument("digest")
@db_option
def show(digest: str, db: str) -> None:
    """Prints a kernel as a file, with its best config: `kernelsearch show best > best.py`."""
    from kernelsearch.record.store import Store
    from kernelsearch.report import show as showing

    with Store.open(db, write=False) as store:
        click.echo(showing.kernel_file(store, digest), nl=False)


@main.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def new(name: str, force: bool) -> None:
    """Copies a shipped task into this folder, to try or to start from."""
    from kernelsearch.errors import TaskError
    from kernelsearch.tasks import shipped

    text = shipped.text(name)
    path = Path(f"{name}.py")
    if path.exists() and not force:
        raise TaskError(f"{path} exists already; give --force to overwrite it")
    path.write_text(text)
    click.echo(f"wrote {path}; next: kernelsearch optimize {path} --trials 200")


@main.command()
@json_option
def doctor(as_json: bool) -> None:
    """Says what works here, what is missing and how to get it."""
    from kernelsearch import doctor as examination

    findings = examination.findings()
    click.echo(json.dumps(findings) if as_json else examination.render(findings), nl=as_json)


if __name__ == "__main__":
    main()
