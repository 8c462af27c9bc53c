"""Prints how the driver and the database scale: seconds a trial at any length of run, and what 100,000 trials cost.

With the simulated evaluator, so that all that is timed is this package; times are of the processor, so that a busy
machine does not change them: `python studies/scale.py [--long N] [--rows N]`.
What it printed on which day and machine is kept in studies/README.md.
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import simulated
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.report import leaderboard
from kernelsearch.search import Search, Settings, make_start, strategies

TASK = simulated.task()
WINDOW = 16


def search(store: Store, name: str, trials: int, seed: int = 0, resume=None) -> Search:
    """A run over a landscape with as many edits as a long run can use."""
    land = simulated.Landscape(seed, edits=40)
    strategy = strategies.make(name, make_start(TASK, seed, trials))
    settings = Settings(RunFacts(name, "simulated", seed, WINDOW, trials), workers=1)
    return Search(TASK, strategy, simulated.SimulatedProposer(land), simulated.Simulated(land), store, settings, resume)


def overhead(name: str, trials: int) -> list[tuple[str, str, str]]:
    """Milliseconds a trial at several lengths of one run: the mean over the 100 trials before each."""
    marks: dict[int, float] = {}
    at = sorted({n for n in (200, 1_000, 5_000, 20_000) if n <= trials} | {trials})

    def told(trial, progress) -> None:
        if trial.number + 1 in at or trial.number + 101 in at:
            marks[trial.number + 1] = time.process_time()

    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "run.db") as store:
        result = search(store, name, trials).run(told)
    said = ", ".join(f"{(marks[n] - marks[n - 100]) * 10:.1f} at {n:,}" for n in at if n in marks and n - 100 in marks)
    return [(f"driver, {name}, ms a trial", f"{said} ({len(result.trials):,} trials)", "<= 5 ms")]


def filled(path: Path, rows: int) -> int:
    """A database with so many trials: 25 searched runs of 200, then copies of them as runs of their own."""
    with Store.open(path) as store:
        for seed in range(25):
            search(store, "evolve", 200, seed).run()
    copies = max(0, rows - 25 * 200) // 200
    with sqlite3.connect(path) as db:
        for table in ("run", "trial", "structure", "hint"):
            names = [r[1] for r in db.execute(f"PRAGMA table_info({table})")]
            own = "id" if table == "run" else "run"
            rest = ", ".join(n for n in names if n != own)
            for copy in range(copies):
                db.execute(f"INSERT INTO {table} ({own}, {rest}) SELECT ?, {rest} FROM {table} WHERE {own} = ?",
                           [1000 + copy, 1 + copy % 25])  # fmt: skip
        return db.execute("SELECT count(*) FROM trial").fetchone()[0]


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(call) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


def database(rows: int) -> list[tuple[str, str, str]]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "many.db"
        count = filled(path, rows)
        before = megabytes()
        with Store.open(path, write=False) as store:
            first = timed(lambda: leaderboard.build_rows(store, limit=10))
            again = timed(lambda: leaderboard.build_rows(store, limit=10))
        found.append((f"leaderboard, {count:,} trials", f"{first:.2f} s, again {again:.2f} s", "<= 0.5 s"))
        with Store.open(path) as store:
            cut = search(store, "evolve", 1000, 99)
            steps = cut.run(lambda trial, progress: None)
            store.query("SELECT 1")
            resumed = timed(lambda: search(store, "evolve", 1000, 99, store.load_run(steps.run.id)).run())
        found.append(("--resume of a run of 1,000 trials there", f"{resumed:.2f} s", "<= 5 s"))
        found.append(("memory that this added", f"{megabytes() - before:.0f} MiB", "flat"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", type=int, default=5_000, help="trials of the long runs")
    parser.add_argument("--rows", type=int, default=100_000, help="trials in the database")
    options = parser.parse_args()
    rows = [row for name in ("random_walk", "evolve", "best_of_n") for row in overhead(name, options.long)]
    rows += database(options.rows)
    width = max(len(name) for name, _, _ in rows)
    for name, value, aim in rows:
        print(f"{name:{width}}  {value:60}  {aim}".rstrip())


if __name__ == "__main__":
    main()
