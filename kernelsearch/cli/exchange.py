"""The commands that exchange results with other tools: `import` and `trials`."""

from __future__ import annotations

from pathlib import Path

import click

from kernelsearch.cli.options import OutputFile, db_option
from kernelsearch.core.errors import StoreError


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False))
@db_option
def import_(file: str, db: str) -> None:
    """Merges another database into --db.

    What is already there is not added again.
    """
    from kernelsearch.record.exchange import merge
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


@click.command()
@db_option
@click.option("--task", help="Only this task's trials.")
@click.option("--device", help="Only this device's or target's.")
@click.option("--out", type=OutputFile(), help="File to write.")
def trials(db: str, task: str | None, device: str | None, out: str | None) -> None:
    """Writes every trial as CSV for other programs."""
    from kernelsearch.record.exchange import trial_dump as dump
    from kernelsearch.record.store import Store
    from kernelsearch.report.leaderboard import refuse_unknown

    with Store.open(db, write=False) as store:
        rows = dump.load_rows(store, task, device)
        if not rows:
            refuse_unknown(store, task, device)
    text = dump.as_csv(rows)
    if out:
        from kernelsearch.core.files import write_user_file

        write_user_file(out, text)
        click.echo(f"wrote {out}: {len(rows)} trials", err=True)
    else:
        click.echo(text.rstrip("\n"))
