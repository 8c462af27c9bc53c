"""The commands about recorded spaces: `record` and `simulate`."""

from __future__ import annotations

import sys
from typing import Any

import click

from kernelsearch.cli.options import task_argument


@click.command()
@task_argument
@click.argument("out", type=click.Path(dir_okay=False))
@click.option("--shape", "shapes", multiple=True, help="Time only this shape: its number, or a label like rows=8192.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def record(task: str, out: str, **options: Any) -> None:
    """Measures every config of TASK's own kernel and writes them to OUT (.json, .json.gz or .json.xz).

    Needs a GPU. Ctrl-C keeps what was measured; the same command goes on from there. Exit code 1: cut short.
    """
    from kernelsearch import recording

    sys.exit(recording.main(task, out, recording.Options(**options)))
