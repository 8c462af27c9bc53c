"""When to stop measuring a candidate over several shapes: `python studies/strategies/pruning.py --seeds 20`.

Candidates are those of `evolve` on simulated landscapes, in its order; each of their shapes takes what the landscape
says, times a deviation of the shape's own (log-normal, sd `apart`, a function of shape, structure and config, so that
kernels suit some shapes better than others), times noise (sd 0.5 %). Shapes are measured one after the other, always in
the same order.
A policy sees the ratios to the incumbent (the best candidate that it let finish) and says when to stop. Printed are
the share of shape measurements that it spared, the share of true improvements that it threw away, and how far its final
best and the best of each shape alone (an export dispatches on those; mean over shapes) are behind those of measuring
everything. The deviations are an assumption, not a measurement.
"""

import math
import random
import statistics
import sys
import warnings
from pathlib import Path

import click
import optuna

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import simulated
from kernelsearch.core.types import config_key
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import Search, Settings, make_start, strategies

NOISE = 0.005


class Everything:
    """Measures all shapes of all candidates."""

    def stops(self, ratios, shapes):
        return False

    def told(self, ratios):
        """What was measured of a candidate, as ratios to the seed."""


class Twice(Everything):
    """What the package does: gives up at a shape that takes twice the incumbent's time."""

    def stops(self, ratios, shapes):
        return ratios[-1] > math.log(2.0)


class Wilcoxon(Everything):
    """Optuna's WilcoxonPruner: a signed-rank test of the shapes so far against the best trial's."""

    def __init__(self, p=0.1):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.pruner = optuna.pruners.WilcoxonPruner(p_threshold=p, n_startup_steps=2)

    def stops(self, ratios, shapes):
        study = optuna.create_study(pruner=self.pruner)
        best = optuna.trial.create_trial(value=0.0, intermediate_values=dict.fromkeys(range(shapes), 0.0))
        study.add_trial(best)
        running = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING, intermediate_values=dict(enumerate(ratios))
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.pruner.prune(study, running)


class WilcoxonTwice(Wilcoxon):
    """Either of the two."""

    def stops(self, ratios, shapes):
        return ratios[-1] > math.log(2.0) or super().stops(ratios, shapes)


class Mean(Everything):
    """Gives up when the mean so far is `margin` above the incumbent's, over the root of the shapes seen."""

    def __init__(self, margin=0.3):
        self.margin = margin

    def stops(self, ratios, shapes):
        return statistics.fmean(ratios) > self.margin / math.sqrt(len(ratios))


def candidates(seed, trials, shapes, apart):
    """The log ratios to the seed, true and as measured, of every candidate that evolve had accepted, in its order."""
    task, land = simulated.task(), simulated.Landscape(seed)
    strategy = strategies.make("evolve", make_start(task, seed, trials))
    settings = Settings(RunFacts("evolve", "simulated", seed, 8, trials), workers=1)
    with Store.open_in_memory() as store:
        search = Search(task, strategy, simulated.SimulatedProposer(land), simulated.Simulated(land), store, settings)
        trials = tuple(search.run().trials)
    rows = []
    for trial in trials:
        if trial.accepted:
            rng = random.Random(f"{seed}/{trial.kernel}/{config_key(trial.config)}")
            own = [rng.gauss(0.0, apart) if trial.number else 0.0 for _ in range(shapes)]
            true = [math.log(trial.score) + o for o in own]
            rows.append((true, [t + rng.gauss(0.0, NOISE) for t in true]))
    return rows


def replayed(policy, rows):
    """The shares of shape measurements spared and of improvements thrown away, and two true mean log ratios.

    They are those of the final best, and of the best seen at each shape.
    """
    alone = list(zip(rows[0][1], rows[0][0], strict=True))
    incumbent, measured, possible, improvements, lost = rows[0], len(rows[0][0]), len(rows[0][0]), 0, 0
    for true, seen in rows[1:]:
        shapes, stopped = len(seen), False
        possible += shapes
        better = statistics.fmean(true) < statistics.fmean(incumbent[0]) - math.log(1.01)
        improvements += better
        for n in range(1, shapes + 1):
            measured += 1
            alone[n - 1] = min(alone[n - 1], (seen[n - 1], true[n - 1]))
            if n < shapes and policy.stops([seen[i] - incumbent[1][i] for i in range(n)], shapes):
                stopped = True
                break
        lost += better and stopped
        if not stopped and statistics.fmean(seen) < statistics.fmean(incumbent[1]):
            incumbent = (true, seen)
    return (
        1 - measured / possible,
        lost / max(1, improvements),
        statistics.fmean(incumbent[0]),
        statistics.fmean(t for _, t in alone),
    )


def _mean(values):
    return f"{statistics.fmean(values):+.3f} (s.e. {statistics.stdev(values) / math.sqrt(len(values)):.3f})"


POLICIES = {
    "everything": Everything, "twice (the package's)": Twice, "Wilcoxon p 0.1": Wilcoxon,
    "Wilcoxon p 0.2": lambda: Wilcoxon(0.2), "Wilcoxon p 0.1 or twice": WilcoxonTwice,
    "mean 0.3": Mean, "mean 0.15": lambda: Mean(0.15), "mean 0.6": lambda: Mean(0.6),
}  # fmt: skip


@click.command()
@click.option("--seeds", default=12, show_default=True)
@click.option("--trials", default=150, show_default=True)
@click.option("--shapes", default=(3, 8), multiple=True, show_default=True)
@click.option("--apart", default=(0.05, 0.2), multiple=True, show_default=True)
def main(seeds, trials, shapes, apart):
    """Prints a table for each number of shapes and each deviation."""
    for count in shapes:
        for width in apart:
            sets = [candidates(2000 + seed, trials, count, width) for seed in range(seeds)]
            print(f"\n{count} shapes, deviation {width:g}\n")
            print("| policy | spared | improvements lost | final best behind | best of a shape behind |")
            print("|---|---|---|---|---|")
            whole = [replayed(Everything(), rows) for rows in sets]
            for name, policy in POLICIES.items():
                found = [replayed(policy(), rows) for rows in sets]
                behind, alone = ([f[i] - w[i] for f, w in zip(found, whole, strict=True)] for i in (2, 3))
                spared, lost = (statistics.fmean(f[i] for f in found) for i in (0, 1))
                print(f"| {name} | {spared:.0%} | {lost:.1%} | {_mean(behind)} | {_mean(alone)} |", flush=True)


if __name__ == "__main__":
    main()
