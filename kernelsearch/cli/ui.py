"""The command that starts a viewer: `ui`."""

from __future__ import annotations

import sys

import click

from kernelsearch.cli.options import db_option


@click.command()
@click.argument("tool", type=click.Choice(["optuna", "datasette"]))
@db_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on.")
@click.option("--runs", type=click.IntRange(min=1), help="Show only this many of the newest runs (optuna).")
@click.option("--artifacts", type=click.Path(file_okay=False), help="Folder for the best kernels' sources (optuna).")
def ui(tool: str, db: str, host: str, port: int, runs: int | None, artifacts: str | None) -> None:
    """Opens the database in Optuna's dashboard or in Datasette. Ctrl-C ends it.

    Optuna's dashboard reads a copy beside the database, brought up to date at every start.
    """
    from kernelsearch.cli import run_ui

    sys.exit(run_ui.main(tool, db, host, port, runs, artifacts))
