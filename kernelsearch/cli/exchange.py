"""The commands that exchange results with other tools: `import` and `trials`."""

from __future__ import annotations

import click

from kernelsearch.cli.options import OutputFile, db_option, force_option, target_option


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False))
@db_option
@click.option("--task", type=click.Path(dir_okay=False), help="Write this task's kernel under the file's best config.")
@click.option("--out", type=OutputFile(), help="File to write.")
@target_option
@force_option
def import_(file: str, db: str, task: str | None, out: str | None, target: str, force: bool) -> None:
    """Imports another database, or what Triton's autotuner measured.

    A database is merged into --db; what is already there is not added again. A Triton *.autotune.json becomes a
    recorded space for `kernelsearch simulate`; with --task, a kernel file: the task's own kernel under the best config.
    """
    from kernelsearch.cli import run_import

    run_import.main(file, db, task, out, target, force)


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
