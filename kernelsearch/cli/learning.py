"""The commands about a model that learns from the record: `dataset`."""

from __future__ import annotations

from pathlib import Path

import click

from kernelsearch.cli.options import quiet_option
from kernelsearch.record import DEFAULT_DB


def _read_families(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    if wrong := next((t for t in texts if "=" not in t), None):
        raise click.BadParameter(f"{wrong} is not TASK=NAME")
    return dict(t.split("=", 1) for t in texts)


@click.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--db", "databases", multiple=True, default=[DEFAULT_DB], show_default=True, type=click.Path(dir_okay=False),
    help="SQLite file of trials; may be repeated.",
)  # fmt: skip
@click.option(
    "--test", multiple=True, metavar="FAMILY", help="Hold out this family of tasks; may be repeated (default: 1 in 5)."
)
@click.option(
    "--family", "families", multiple=True, metavar="TASK=NAME", callback=_read_families,
    help="A task's family (default: the first word of its name); may be repeated.",
)  # fmt: skip
@quiet_option
def dataset(
    out: Path, databases: tuple[str, ...], test: tuple[str, ...], families: dict[str, str], quiet: bool
) -> None:
    """Writes training data out of databases.

    Into the folder OUT: pages with the answers that gained, in both forms; pairs of better and worse answers; a card.
    The files of the databases' tasks are opened to write the pages.
    """
    from kernelsearch.report.terminal import make_say
    from kernelsearch.train import dataset as data

    collected = data.collect(databases, make_say(quiet))
    card = data.write(out, collected, data.split_families(collected, families, test))
    click.echo(card.split(data.MARK)[1].strip())
