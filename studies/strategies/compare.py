"""Strategies with their parameters at equal budget: on simulated landscapes, and on the recorded spaces.

    python studies/strategies/compare.py landscapes --seeds 20 best_of_n:sampler=tpe best_of_n:sampler=surrogate
    python studies/strategies/compare.py spaces --seeds 8 evolve:sampler=tpe evolve

An arm is a strategy's name, then parameters. On landscapes a run's gain is the seed's time over its best time; the
first arm is what the others are compared with, landscape by landscape: the mean of the paired differences of log gains
with its standard error. On a recorded space there is one kernel, so that what is compared is how an arm chooses
numbers.
"""

import ast
import math
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import click
from table import printed

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import simulated
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import Search, Settings, make_start, strategies
from recorded import simulation

SPACES = Path(__file__).parent.parent / "spaces"
WINDOW = 16


def parsed(arm):
    """The strategy's name and its parameters."""
    name, _, rest = arm.partition(":")
    pairs = (part.partition("=") for part in rest.split(",") if part)
    return name, {key: _value(text) for key, _, text in pairs}


def _value(text):
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


def made(arm, start):
    name, params = parsed(arm)
    return strategies.make(name, start, **params)


def run(arm, number, trials, noise, window, like):
    """The gains after a quarter, half and all of the budget on landscape `number`, and processor ms a trial."""
    land, task = simulated.Landscape(number, **like), simulated.task()
    proposer = simulated.SimulatedProposer(land)
    strategy = made(arm, make_start(task, number, trials, proposer))
    settings = Settings(RunFacts(arm, "simulated", number, window, trials), workers=1)
    evaluator = simulated.Noisy(simulated.Simulated(land), noise, number)
    begun = time.process_time()
    best, gains = math.inf, []
    with Store.open_in_memory() as store:
        for trial in Search(task, strategy, proposer, evaluator, store, settings).run().trials:
            best = min(best, trial.score or math.inf)
            gains.append(1 / best)
    spent = time.process_time() - begun
    return [gains[len(gains) * part // 4 - 1] for part in (1, 2, 4)], 1000 * spent / len(gains)


@click.group()
def main():
    """Compares strategies."""


@main.command()
@click.argument("arms", nargs=-1, required=True)
@click.option("--seeds", default=20, show_default=True, help="Landscapes, from number `first` on.")
@click.option("--first", default=1000, show_default=True, help="No parameter was chosen on landscapes above 1000.")
@click.option("--trials", default=200, show_default=True)
@click.option("--noise", default=0.01, show_default=True)
@click.option("--window", default=WINDOW, show_default=True, help="Candidates in flight.")
@click.option(
    "--measured", is_flag=True, help="With idle parameters, edits that change nothing, and edits that close others."
)
def landscapes(arms, seeds, first, trials, noise, window, measured):
    """Gains over the seed after a quarter, half and all of the trials."""
    print(f"| arm | {trials // 4} | {trials // 2} | {trials} | log gain against the first arm | ms a trial |")
    print("|---|---|---|---|---|---|")
    reference, like = None, simulated.MEASURED if measured else {}
    for arm in arms:
        runs = [run(arm, number, trials, noise, window, like) for number in range(first, first + seeds)]
        logs = [[math.log(g) for g in gains] for gains, _ in runs]
        means = [math.exp(statistics.fmean(log[i] for log in logs)) for i in range(3)]
        last = [log[2] for log in logs]
        reference = reference or last
        apart = [a - b for a, b in zip(last, reference, strict=True)]
        error = statistics.stdev(apart) / math.sqrt(len(apart))
        against = f"{statistics.fmean(apart):+.3f} (s.e. {error:.3f})" if last is not reference else ""
        print(f"| {arm} | " + " | ".join(f"{m:.3f}" for m in means) + f" | {against} "
              f"| {statistics.fmean(ms for _, ms in runs):.1f} |", flush=True)  # fmt: skip


@main.command()
@click.argument("arms", nargs=-1, required=True)
@click.option("--seeds", default=8, show_default=True)
@click.option("--first", default=0, show_default=True)
@click.option("--window", default=1, show_default=True)
@click.option("--space", "names", multiple=True, help="Only these.")
def spaces(arms, seeds, first, window, names):
    """Median evaluations to come within 2 % of the optimum, and the score against random search."""
    paths = sorted(p for p in SPACES.glob("*.json.xz") if not names or p.name.split(".")[0] in names)
    printed("arm", arms, paths, range(first, first + seeds), lambda arm, name, space, most, seed:
            simulation.simulate(space, partial(made, arm), most, seed, window=window))  # fmt: skip


if __name__ == "__main__":
    main()
