"""The commands about recorded spaces: `record` and `simulate`."""

from __future__ import annotations

import json
import sys

import click

from kernelsearch.cli.options import (
    OutputFile,
    isolation_option,
    machine_options,
    quiet_option,
    shape_option,
    task_argument,
)


@click.command()
@task_argument
@click.argument("out", type=OutputFile())
@shape_option
@machine_options
@isolation_option
@quiet_option
def record(task: str, out: str, shapes: tuple[str, ...], require_isolation: bool, quiet: bool, **machines: str) -> None:
    """Measures every config of a kernel, for `simulate`.

    The configs of TASK's own kernel go to OUT (.json, .json.gz or .json.xz). Needs a GPU. Ctrl-C keeps what was
    measured; the same command continues from there. Exit code 1: cut short.
    """
    from kernelsearch.cli import run_record
    from kernelsearch.cluster.machines import MachineOptions

    sys.exit(run_record.main(task, out, shapes, quiet, require_isolation, MachineOptions(**machines)))


@click.command()
@click.argument("space", type=click.Path(dir_okay=False))
@click.option(
    "--strategy",
    default="surrogate",
    show_default=True,
    help="A strategy's name or file, or a sampler of the tuner: surrogate, tpe, random.",
)
@click.option("--trials", default=100, show_default=True, type=click.IntRange(min=1), help="Unique evaluations.")
@click.option("--seeds", default=8, show_default=True, type=click.IntRange(min=1), help="Runs, with seeds 0, 1, ...")
@click.option("--noise", is_flag=True, help="Draw each time at random from the recorded samples.")
@click.option("--window", default=1, show_default=True, type=click.IntRange(min=1), help="Candidates in flight.")
@click.option("--quiet", is_flag=True, help="No summary on stderr.")
def simulate(space: str, strategy: str, trials: int, seeds: int, noise: bool, window: int, quiet: bool) -> None:
    """Replays a recorded space with a strategy.

    Prints JSON: the best time after 1, 2, ... unique trials of each run.
    """
    from kernelsearch.record import recorded_space
    from kernelsearch.search.replay import score, simulation

    recorded = recorded_space.read(space)
    simulation.find_strategy(strategy)
    runs = [simulation.simulate(recorded, strategy, trials, seed, noise, window) for seed in range(seeds)]
    click.echo(json.dumps(simulation.as_json(recorded, strategy, runs)))
    if not quiet:
        click.echo(score.as_text(recorded, runs), err=True)
