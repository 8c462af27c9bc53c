"""How much faster whole searches are with two cards than with one: simulated cards with cold caches.

`python studies/scale/two_cards.py`. Every candidate compiles, as many side by side as a card has processors, and then
has a card for a while; both are sleeps. Crew, search and database are real. What it printed is in README.md here.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from simulated_workers import Crewed, make_search
from unequal import ROOM, SimulatedStation

from kernelsearch.cluster.crew import Crew
from kernelsearch.record.store import Store

KINDS = {"like softmax": (0.8, 0.1), "like a product": (2.5, 0.15)}
"""By name: seconds that a candidate compiles with a cold cache, and that it has the card."""
COMPILERS = 15
SEARCHES = 4


def run(cards: int, kind: str, trials: int, searches: int) -> float:
    """Seconds from the first question to the last landed trial of so many searches at once, with their own windows."""
    compile_s, card_s = KINDS[kind]
    stations = [SimulatedStation(f"card {n}", card_s, COMPILERS, compile_s) for n in range(cards)]
    evaluator = Crewed(Crew(stations), 0.0)
    window = min(ROOM * cards, trials // (24 if cards == 1 else 12))

    def search(number: int) -> None:
        with Store.open(folder / "run.db") as store:
            make_search(store, evaluator, trials, window).run(lambda trial, progress: None)

    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(searches) as threads:
        folder = Path(name)
        Store.open(folder / "run.db").close()
        begun = time.monotonic()
        list(threads.map(search, range(searches)))
        return time.monotonic() - begun


if __name__ == "__main__":
    for kind in KINDS:
        for trials, searches in ((200, 1), (400, 1), (800, 1), (200, SEARCHES)):
            one, two = (run(cards, kind, trials, searches) for cards in (1, 2))
            print(f"| {kind} | {searches} x {trials} | {one:.1f} | {two:.1f} | {one / two:.2f} |", flush=True)
