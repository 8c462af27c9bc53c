"""A table of arms over recorded spaces: median evaluations to come within 2 % of the optimum, and the score."""

import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recorded import score
from recorded import space as recorded_space
from recorded.simulation import SimulatedRun
from recorded.space import RecordedSpace

Run = Callable[[str, str, RecordedSpace, int, int], SimulatedRun]
"""(arm, the space's name, the space, most trials, seed) to a run."""


def printed(head: str, arms: Iterable[str], paths: Sequence[Path], seeds: Sequence[int], run: Run) -> None:
    """Prints a row an arm as soon as it is known, a column a space; scores are against random search."""
    spaces = {path.name.split(".")[0]: recorded_space.read(path) for path in paths}
    print(f"| {head} | {' | '.join(spaces)} | mean score | worst score | most evaluations |")
    print("|---|" + "---|" * (len(paths) + 3))
    for arm in arms:
        cells, scores, medians = [], [], []
        for name, space in spaces.items():
            most = max(60, score.evaluation_budget(space))
            runs = [run(arm, name, space, most, seed) for seed in seeds]
            scores.append(score.score(space, runs, most))
            medians.append(statistics.median(score.count_evaluations(space, r) for r in runs))
            cells.append(f"{medians[-1]:g} ({scores[-1]:+.2f})")
        print(f"| {arm} | " + " | ".join(cells) + f" | {statistics.fmean(scores):+.3f} | {min(scores):+.2f} "
              f"| {max(medians):g} |", flush=True)  # fmt: skip
