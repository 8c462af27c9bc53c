"""The commands about a database: `leaderboard`, `lineage`, `show`, `ui` and `import`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelsearch.cli.options import OutputFile, db_option, json_option, say_what_takes_long
from kernelsearch.core.errors import StoreError

if TYPE_CHECKING:
    from kernelsearch.record.store import Store


@contextmanager
def _open_store(db: str, doing: str) -> Iterator[Store]:
    """The database to read from; after a second it is said what is being done."""
    from kernelsearch.record.store import Store

    with say_what_takes_long(doing), Store.open(db, write=False) as store:
        yield store


@click.command()
@db_option
@click.option("--task", help="Only this task's kernels.")
@click.option("--device", help="Only this device or target.")
@click.option(
    "--limit",
    default=10,
    show_default=True,
    type=click.IntRange(min=0),
    help="Kernels per task, device and evidence; 0 for all.",
)
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--html", type=OutputFile(), help="Write one self-contained page to this file.")
def leaderboard(
    db: str, task: str | None, device: str | None, limit: int, as_json: bool, as_csv: bool, html: str | None
) -> None:
    """Shows the best kernels found so far."""
    if as_json + as_csv + bool(html) > 1:
        raise click.UsageError("--json, --csv and --html are three forms of the same table: choose one")
    from kernelsearch.report import leaderboard as board
    from kernelsearch.report.terminal import print_text

    with _open_store(db, f"making {html}" if html else f"reading {db}") as store:
        if html:
            from kernelsearch.core.files import write_user_file
            from kernelsearch.report.html import render_page

            write_user_file(html, render_page(store, task, device, limit or None))
            click.echo(f"wrote {html}", err=True)
            return
        machine = as_json or as_csv
        rows = board.build_rows(store, task, device, limit or None if machine else None)
        if not rows:
            board.refuse_unknown(store, task, device)
        gained = {} if machine else board.compute_gains_by_shape(store, task, device)
    text = board.as_json(rows) if as_json else board.as_csv(rows) if as_csv else None
    print_text(text or board.as_text(rows, gained, limit=limit or None))


_task_option = click.option("--task", help="Whose `best` is meant (default: the newest run's task).")


@click.command()
@click.argument("digest")
@db_option
@_task_option
@click.option("--diff/--no-diff", default=True, show_default=True, help="Show what each step changed.")
@json_option
def lineage(digest: str, db: str, task: str | None, diff: bool, as_json: bool) -> None:
    """Shows how a kernel was made, step by step.

    Shows who proposed each step, and what it gained. DIGEST is a kernel's digest, or its first digits, or `best`.
    """
    from kernelsearch.record.family_tree import find_best_kernel
    from kernelsearch.report import lineage as report
    from kernelsearch.report.terminal import print_text

    with _open_store(db, f"reading {db}") as store:
        whole = find_best_kernel(store, task) if digest == "best" else store.find_digest(digest)
        if as_json:
            click.echo(json.dumps(report.as_dict(store, whole), indent=2))
        else:
            print_text(report.as_text(store, whole, diffs=diff))


@click.command()
@click.argument("digest")
@db_option
@_task_option
def show(digest: str, db: str, task: str | None) -> None:
    """Prints a kernel as a file.

    For example: `kernelsearch show best > best.py`. DIGEST is a kernel's digest, or its first digits, or `best`. The
    file has the kernel's best config.
    """
    from kernelsearch.report.kernel_file import render_kernel_file

    with _open_store(db, f"reading {db}") as store:
        click.echo(render_kernel_file(store, digest, task), nl=False)


@click.command()
@db_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on.")
def ui(db: str, host: str, port: int) -> None:
    """Serves the page of the database while searches write it. Ctrl-C ends it."""
    from kernelsearch.cli import live_page

    live_page.serve(db, host, port)


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False))
@db_option
def import_(file: str, db: str) -> None:
    """Merges another database into --db.

    What is already there is not added again.
    """
    from kernelsearch.record import merge
    from kernelsearch.record.store import Store
    from kernelsearch.verify import gate

    path = Path(file)
    try:
        if path.open("rb").read(16) != b"SQLite format 3\0":
            raise StoreError(f"{path} is not a database of kernelsearch")
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from None
    if Path(db).exists() and path.samefile(db):
        raise StoreError(f"{path} is the database itself: name another --db to merge it into")
    with Store.open(db) as store:
        new = merge.merge(store, path, gate.check_stored)
    confirmations = new.rows.get("confirmation", 0)
    click.echo(f"{new.runs} new runs, {new.trials} new trials, {confirmations} confirmations into {db}")
