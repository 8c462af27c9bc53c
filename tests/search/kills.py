"""Kills a real search process at random moments and resumes it, until it is done: `python tests/search/kills.py 50`.

What must hold afterwards: the database is intact, no row is lost, none is there twice, and the finished
run is the run that was never killed and that waited for every `full` verdict.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "studies"))

import simulated
from kernelsearch.core.types import Config, Outcome, Trial, Verdict, Word, config_key
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import Search, Settings, make_start, strategies
from kernelsearch.trial.evaluator import Evaluator

TRIALS = 120
LAND = simulated.Landscape(5)
SEED = Kernel.parse(simulated.task().seed).digest


@dataclass(frozen=True)
class Report:
    """What `kill_and_resume` saw: kills that hit a running process, rows at the end, and faults (none is right)."""

    kills: int
    rows: int
    faults: tuple[str, ...]


class Proving:
    """Evaluates through `inner`; a `full` verdict takes ten times as long, rejects a third of new bests."""

    def __init__(self, inner: Evaluator, seconds: float) -> None:
        self.evaluate, self.seconds = inner.evaluate, seconds

    def complete(self, kernel: Kernel, config: Config, outcome: Outcome) -> Outcome:
        time.sleep(self.seconds)
        wrong = random.Random(f"{kernel.digest} {config_key(config)}").random() < 1 / 3
        if wrong and kernel.digest != SEED:
            return Outcome(Verdict(Word.WRONG, "judge", "wrong where only full looks", "full"))
        return replace(outcome, verdict=replace(outcome.verdict, depth="full"))


def search_in(path: str, trials: int = TRIALS, seconds: float = 0.004) -> tuple[Trial, ...]:
    """Begins the one run of a database, or resumes it; with no time to take it waits for each `full` verdict."""
    task = simulated.task()
    inner = simulated.Slow(simulated.Failing(simulated.Noisy(simulated.Simulated(LAND), 0.02), 0.2), seconds)
    evaluator = Proving(inner, 10 * seconds)
    made = partial(strategies.make, "evolve", make_start(task, 0, trials))
    with Store.open(path) if path != ":memory:" else Store.open_in_memory() as store:
        runs = store.load_runs(task.digest)
        settings = Settings(RunFacts("evolve", "simulated", 0, 4, trials), anew=made if seconds else None)
        proposer = simulated.SimulatedProposer(LAND)
        search = Search(task, made(), proposer, evaluator, store, settings, runs[0] if runs else None)
        print("running", flush=True)
        return tuple(search.run().trials)


def kill_and_resume(path: str, kills: int, seed: int = 0, trials: int = TRIALS) -> Report:
    """Kills a search in its own process up to `kills` times, at moments drawn from seed, then lets it finish."""
    rng, faults, done, before = random.Random(seed), [], 0, []
    here = Path(__file__).resolve()
    places = [str(here.parent), str(here.parents[2] / "studies")]
    code = f"import sys; sys.path[:0] = {places!r}; import kills; kills.search_in({path!r}, {trials})"
    for _ in range(kills):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if rng.random() < 0.8:
            process.stdout.readline()
        time.sleep(rng.random() * 0.1)
        done += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        before = _checked(path, before, faults)
    last = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if last.returncode:
        faults.append(f"the last run failed: {last.stderr.strip().splitlines()[-1]}")
    rows = _checked(path, before, faults)
    if rows != [_story(t) for t in search_in(":memory:", trials, 0.0)]:
        faults.append("the resumed run is not the unbroken one")
    return Report(done, len(rows), tuple(faults))


def _checked(path: str, before: list, faults: list[str]) -> list:
    with Store.open(path) as store:
        if store.query("PRAGMA integrity_check") != [{"integrity_check": "ok"}] or store.query(
            "PRAGMA foreign_key_check"
        ):
            faults.append("the database is damaged")
        if len(store.load_runs()) > 1:
            faults.append("there is more than one run")
        rows = [_story(t) for t in store.load_trials(1)]
        whole = store.query("SELECT count(DISTINCT candidate) AS n FROM trial")[0]["n"]
    if rows[: len(before)] != before:
        faults.append("a stored row was lost or changed")
    if whole != len(rows) or [r[0] for r in rows] != list(range(len(rows))):
        faults.append("a row is missing or there twice")
    return rows


def _story(trial: Trial) -> tuple:
    return (trial.number, trial.kernel, config_key(trial.config), trial.outcome.verdict.word, trial.score)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        report = kill_and_resume(f"{folder}/kills.db", int(sys.argv[1]) if sys.argv[1:] else 50, trials=1500)
    print(f"{report.kills} kills, {report.rows} rows, faults: {', '.join(report.faults) or 'none'}")
    sys.exit(bool(report.faults))
