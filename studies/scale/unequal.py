"""How busy unequal workers are kept: simulated cards of which one is slow, or has fewer compilers than the others.

`python studies/scale/unequal.py`. A candidate compiles for a while, some side by side, and then has the card for a
while, alone; both are sleeps. Crew, search and database are real. What it printed is in README.md here.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from simulated_workers import Crewed, SimulatedHolder, make_search

from kernelsearch.cluster.crew import Crew, Station
from kernelsearch.record.store import Store

CARD_S, COMPILE_S, COMPILERS, ROOM = 0.15, 0.3, 4, 8
CASES = {
    "4 equal": (4, 1, COMPILERS),
    "4, one card 4 times slower": (4, 4, COMPILERS),
    "4, one card 10 times slower": (4, 10, COMPILERS),
    "8, one card 10 times slower": (8, 10, COMPILERS),
    "4, one with a quarter of the compilers": (4, 1, COMPILERS // 4),
}
"""By name: how many workers, how much slower the last one's card is, its compilers."""


class SimulatedStation(Station):
    """A worker with a card, which takes so long for a candidate, and so many compilers."""

    def __init__(self, name: str, card_s: float, compilers: int, compile_s: float = COMPILE_S) -> None:
        self.name, self.node, self.room, self.compilers = name, name, ROOM, compilers
        self.card_s, self.card, self.free = card_s, threading.Lock(), threading.Semaphore(compilers)
        self.compile_s = compile_s
        self.holder = SimulatedHolder()

    @property
    def rate(self) -> float:
        return min(1 / self.card_s, self.compilers / self.compile_s)

    def ask(self, method, *args):
        with self.free:
            time.sleep(self.compile_s)
        with self.card:
            time.sleep(self.card_s)
        return getattr(self.holder, method)(0.0, *args[1:])

    def restart(self, kill, welcome): ...
    def end(self): ...


def measure(stations: list[SimulatedStation], trials: int) -> tuple[float, float]:
    """Trials a second between the first and the last window, and what the workers could do."""
    window = min(ROOM * len(stations), trials // 12)
    landed: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "run.db") as store:
        evaluator = Crewed(Crew(stations), 0.0)
        make_search(store, evaluator, trials, window).run(lambda trial, progress: landed.append(time.monotonic()))
    return (trials - 2 * window) / (landed[-window] - landed[window]), sum(s.rate for s in stations)


if __name__ == "__main__":
    for name, (count, slower, compilers) in CASES.items():
        stations = [SimulatedStation(f"worker {n}", CARD_S, COMPILERS) for n in range(count - 1)]
        stations.append(SimulatedStation("the last", CARD_S * slower, compilers))
        rate, most = measure(stations, 150 * count)
        print(f"| {name} | {most:.1f} | {rate:.1f} | {rate / most:.0%} |", flush=True)
