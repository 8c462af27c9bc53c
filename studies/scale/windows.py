"""What asking further ahead costs: the best found after so many trials, by the window, on simulated landscapes.

`python studies/scale/windows.py [--seeds N] [--trials N ...]` prints the table that README.md here keeps. Times are
exact, so that the window alone makes the difference; every figure is the geometric mean over landscapes.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import simulated
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import Search, Settings, make_start, strategies

WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def find_best(name: str, window: int, trials: int, seed: int) -> float:
    """The score of a run's best trial, in the seed's time."""
    task, land = simulated.task(), simulated.Landscape(seed)
    strategy = strategies.make(name, make_start(task, seed, trials))
    settings = Settings(RunFacts(name, "simulated", seed, window, trials), workers=1)
    proposer, evaluator = simulated.SimulatedProposer(land), simulated.Failing(simulated.Simulated(land), 0.1)
    with Store.open_in_memory() as store:
        return Search(task, strategy, proposer, evaluator, store, settings).run().best.score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--trials", type=int, nargs="+", default=[200, 800])
    parser.add_argument("--strategies", nargs="+", default=["evolve"])
    options = parser.parse_args()
    print("| strategy | trials | " + " | ".join(f"{w}" for w in WINDOWS) + " |")
    print("|---|---|" + "---|" * len(WINDOWS))
    for name in options.strategies:
        for trials in options.trials:
            logs = {w: [math.log(find_best(name, w, trials, s)) for s in range(options.seeds)] for w in WINDOWS}
            cells = []
            for w in WINDOWS:
                losses = [b - a for a, b in zip(logs[1], logs[w], strict=True)]
                error = statistics.stdev(losses) / math.sqrt(len(losses))
                cells.append(f"{math.exp(statistics.mean(losses)) - 1:+.1%} ± {error:.1%}")
            print(f"| {name} | {trials} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
