"""The commands about a model that learns from the record: `dataset` and `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kernelsearch.cli.options import quiet_option, target_option
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

    Into the folder OUT: pages with all their answers, in both forms, and a card. The files of the databases' tasks are
    opened to write the pages.
    """
    from kernelsearch.report.terminal import make_say
    from kernelsearch.train import dataset as data

    collected = data.collect(databases, make_say(quiet))
    card = data.write(out, collected, data.split_families(collected, families, test))
    click.echo(card.split(data.MARK)[1].strip())


@click.command()
@click.option("--base", required=True, metavar="PATH|tiny", help="A folder with a model, or `tiny`: a new small one.")
@click.option(
    "--data", required=True, type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="A folder of `kernelsearch dataset`.",
)  # fmt: skip
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the model.")
@click.option(
    "--form", default="edit", show_default=True, type=click.Choice(["edit", "kernel"]), help="The form of answers."
)
@click.option("--epochs", default=3.0, show_default=True, type=click.FloatRange(min=0), help="Supervised, first.")
@click.option("--steps", default=100, show_default=True, type=click.IntRange(min=0), help="By reward (GRPO), then.")
@click.option(
    "--group", default=8, show_default=True, type=click.IntRange(min=2), help="Answers to one page in a step by reward."
)
@click.option(
    "--reward", default="speed", show_default=True, type=click.Choice(["speed", "right"]),
    help="What is worth most: a faster kernel, or any right one.",
)  # fmt: skip
@click.option("--recorded", is_flag=True, help="By reward: draw only answers whose time is on record; judge none.")
@click.option("--rate", default=3e-4, show_default=True, help="Learning rate, supervised.")
@click.option("--reward-rate", default=3e-5, show_default=True, help="Learning rate, by reward.")
@click.option("--temperature", default=1.0, show_default=True, type=click.FloatRange(min=0.01), help="Of the answers.")
@click.option("--lora", is_flag=True, help="Train low-rank adapters only, merged at the end: for large bases.")
@click.option("--save-every", default=25, show_default=True, type=click.IntRange(min=1), help="Steps by checkpoint.")
@click.option("--seed", default=0, show_default=True, help="Random seed.")
@click.option("--resume", is_flag=True, help="Continue the training in --out from its last checkpoint.")
@target_option
@quiet_option
def train(quiet: bool, **options: Any) -> None:
    """Trains a model on a dataset, for `--model hf:OUT`.

    Supervised on each page's answers, the better ones to be likelier, then by reward. On a GPU where there is one.
    """
    from kernelsearch.report.terminal import make_say
    from kernelsearch.train import training

    out = training.train(training.TrainOptions(**options), make_say(quiet))
    click.echo(f"use it: kernelsearch optimize TASK.py --model hf:{out}")
