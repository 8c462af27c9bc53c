"""What Ray costs: one worker against none, 64 simulated workers with real waits, and the driver's time a trial.

`python studies/scale/throughput.py [--workers 64] [--seconds 0.5]`. The waits are sleeps, so that many workers fit on
one machine; all the rest (Ray's calls, pickling, the search, the database) is real. What it printed is in README.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from simulated_workers import Crewed, SimulatedHolder, make_search

from kernelsearch.cluster.crew import Crew
from kernelsearch.cluster.ray_actors import LOCAL, Cluster, RayStation
from kernelsearch.core.types import Outcome
from kernelsearch.record.store import Store
from kernelsearch.trial.evaluator import Evaluator

AHEAD = 1.25
"""Candidates in flight for each that can be evaluated at once: the others wait beside a worker."""


class Here(Evaluator):
    """The same evaluations in this process, so many at a time."""

    def __init__(self, seconds: float, workers: int) -> None:
        self.holder, self.seconds = SimulatedHolder(), seconds
        self.places = threading.Semaphore(workers)

    def evaluate(self, kernel, config, incumbent=None) -> Outcome:
        with self.places:
            return self.holder.evaluate(self.seconds, kernel, config, incumbent)


def run(evaluator: Evaluator, trials: int, window: int) -> tuple[float, float]:
    """Seconds of a run's trials after the first, and the driver's processor seconds for them."""
    marks: list[tuple[float, float]] = []

    def told(trial, progress) -> None:
        if trial.number in (0, trials - 1):
            marks.append((time.monotonic(), time.process_time()))

    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "run.db") as store:
        make_search(store, evaluator, trials, window).run(told)
    (begun, before), (ended, after) = marks
    return ended - begun, after - before


def start_workers(cluster: Cluster, count: int, each: int) -> list[RayStation]:
    """Workers of which so many share an actor's process, since they only wait: 64 processes need 8 GiB."""
    actor = cluster.ray.remote(SimulatedHolder).options(num_cpus=0, max_concurrency=each)
    handles = [actor.remote() for _ in range(-(-count // each))]
    return [RayStation(cluster.ray, handles[n % len(handles)], f"worker {n}", 1, 2) for n in range(count)]


def measure(stations: list[RayStation], seconds: float, trials: int) -> tuple[float, float]:
    """Seconds of a run on these workers, one evaluation at a time each, and the driver's processor seconds."""
    return run(Crewed(Crew(stations), seconds), trials, max(2, round(AHEAD * len(stations))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--each", type=int, default=8, help="workers in one process")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--trials", type=int, default=100, help="for each pair of one worker and none")
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    with Cluster.connect(LOCAL) as cluster:
        stations = start_workers(cluster, options.workers, options.each)
        Crew(stations).ask_all("read_card")
        ratios = []
        for _ in range(options.pairs):
            alone, _ = run(Here(options.seconds, 1), options.trials, 2)
            through, _ = measure(stations[:1], options.seconds, options.trials)
            ratios.append(through / alone - 1)
        said = ", ".join(f"{r:+.1%}" for r in sorted(ratios))
        print(f"one worker through Ray against none, {options.seconds:g} s an evaluation: {said}", flush=True)
        count = 20 * options.workers
        took, spent = measure(stations, options.seconds, count)
        least = count * options.seconds / options.workers
        print(f"{options.workers} workers, {count} trials: {took:.1f} s, {least / took:.0%} busy")
        print(f"driver: {1e3 * spent / count:.2f} ms of processor a trial, {count / took:.0f} trials a second")


if __name__ == "__main__":
    main()
