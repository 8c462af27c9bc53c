"""The arguments and options that several commands share."""

from __future__ import annotations

import click

DEFAULT_DB = "kernelsearch.db"

db_option = click.option("--db", default=DEFAULT_DB, show_default=True, type=click.Path(), help="SQLite file of all trials.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
target_option = click.option(
    "--target", default="auto", show_default=True,
    help="Machine to compile for: auto (the live GPU, else h100), or h100, h200, a100, l4, l40s, rtx4090, b200.",
)  # fmt: skip
task_argument = click.argument("task", type=click.Path(dir_okay=False))
