"""The command that takes in what others measured: `import`."""

from __future__ import annotations

import sys

import click

from kernelsearch.cli.options import db_option, target_option


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False))
@db_option
@click.option("--task", type=click.Path(dir_okay=False), help="Write this task's kernel under the file's best config.")
@click.option("--out", type=click.Path(dir_okay=False, writable=True), help="File to write.")
@target_option
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def import_(file: str, db: str, task: str | None, out: str | None, target: str, force: bool) -> None:
    """Takes in FILE: another kernelsearch database, or another tuner's results.

    A database is merged into --db; what is there already is not added again. A KernelTuner cache, T4 results or a
    Triton *.autotune.json become a recorded space for `kernelsearch simulate`. With --task, they or a Helion config
    become a kernel file: the task's own kernel under the best config.
    """
    from kernelsearch import importing

    sys.exit(importing.main(file, db, task, out, target, force))
