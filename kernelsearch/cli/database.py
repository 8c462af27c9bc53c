"""The commands that read a database: `leaderboard`, `lineage` and `show`."""

from __future__ import annotations

import json

import click

from kernelsearch.cli import complete
from kernelsearch.cli.options import db_option, json_option


@click.command()
@db_option
@click.option("--task", help="Only this task's kernels.", shell_complete=complete.tasks)
@click.option("--device", help="Only this device or target.", shell_complete=complete.devices)
@click.option(
    "--limit",
    default=10,
    show_default=True,
    type=click.IntRange(min=0),
    help="Kernels per task, device and evidence; 0 for all.",
)
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option(
    "--html", type=click.Path(dir_okay=False, writable=True), help="Write one self-contained page to this file."
)
def leaderboard(
    db: str, task: str | None, device: str | None, limit: int, as_json: bool, as_csv: bool, html: str | None
) -> None:
    """Shows the best kernels found so far."""
    if as_json + as_csv + bool(html) > 1:
        raise click.UsageError("--json, --csv and --html are three forms of the same table: choose one")
    from kernelsearch.record.store import Store
    from kernelsearch.report import leaderboard as board

    with Store.open(db, write=False) as store:
        if html:
            from kernelsearch.core.files import write_user_file
            from kernelsearch.report.html import page

            write_user_file(html, page(store, task, device, limit or None))
            click.echo(f"wrote {html}", err=True)
            return
        rows = board.rows(store, task, device, limit or None)
        if not rows:
            board.must_know(store, task, device)
        gained = board.gains_by_shape(store, task, device) if not (as_json or as_csv) else {}
    text = board.as_json(rows) if as_json else board.as_csv(rows) if as_csv else board.as_text(rows, gained)
    click.echo(text.rstrip("\n"))


_task_option = click.option(
    "--task", help="Whose `best` is meant (default: the newest run's task).", shell_complete=complete.tasks
)


@click.command()
@click.argument("digest", shell_complete=complete.kernels)
@db_option
@_task_option
@click.option("--diff/--no-diff", default=True, show_default=True, help="Show what each step changed.")
@json_option
def lineage(digest: str, db: str, task: str | None, diff: bool, as_json: bool) -> None:
    """Shows how a kernel came about, step by step.

    Who proposed what, and what it gained. DIGEST is a kernel's, or the beginning of it, or `best`.
    """
    from kernelsearch.record import lineage as recorded
    from kernelsearch.record.store import Store
    from kernelsearch.report import lineage as tree

    with Store.open(db, write=False) as store:
        whole = recorded.best(store, task) if digest == "best" else store.digest(digest)
        text = json.dumps(tree.as_dict(store, whole), indent=2) if as_json else tree.as_text(store, whole, diffs=diff)
        click.echo(text.rstrip("\n"))


@click.command()
@click.argument("digest", shell_complete=complete.kernels)
@db_option
@_task_option
def show(digest: str, db: str, task: str | None) -> None:
    """Prints a kernel as a file.

    As in `kernelsearch show best > best.py`. DIGEST is a kernel's, or the beginning of it, or `best`. The file has the kernel's best config.
    """
    from kernelsearch.record.store import Store
    from kernelsearch.report import show as showing

    with Store.open(db, write=False) as store:
        click.echo(showing.kernel_file(store, digest, task), nl=False)
