"""Searches a task from several seeds and confirms all winners in one session: how much is luck?

    python studies/seeds.py TASK.py --seeds 5 --trials 200 [--db FILE] [--json OUT.json]

Each seed is a search of its own by `kernelsearch optimize`, in one database, so that a candidate that two searches draw
is measured once; `--runs 1 2 3` takes runs that the database has already. Then for each timed shape the best of each
seed (which the referee accepts at full depth) is timed with the seed's kernel and all baselines, block by block, by the
confirmed protocol. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from kernelsearch.core.types import ShapeFact, Trial
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.measure.timing.paired_statistics import level_for_comparisons
from kernelsearch.record.store import Store
from kernelsearch.report.findings import build_finding
from kernelsearch.search.history import time_of
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.confirmation import Confirmation, ConfirmationPlan, Contestant
from kernelsearch.trial.own_configs import tune_seed


def search(task: str, seed: int, trials: int, db: str) -> int:
    """Runs one search without its confirmation. Returns the number of its run."""
    command = [sys.executable, "-m", "kernelsearch", "optimize", task, "--trials", str(trials), "--seed", str(seed)]
    done = subprocess.run([*command, "--db", db, "--no-confirm", "--json", "--quiet"], stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"the search of seed {seed} ended with exit code {done.returncode}")
    told = json.loads(done.stdout)
    best = " ".join(f"{shape['best_us']:.1f}" for shape in told["best"]["shapes"])
    print(f"seed {seed}: run {told['run']}, {best} us, {told['best']['evidence']}, {told['seconds']:.0f} s", flush=True)
    return int(told["run"])


def find_best(store: Store, run: int, shape: ShapeFact, evaluation: Evaluation) -> tuple[Trial, Contestant]:
    """The run's fastest candidate at a shape among those that are accepted at full depth."""
    structures = store.load_structures(run)
    timed = [t for t in store.load_trials(run) if t.outcome.measurement and not t.outcome.measurement.abandoned]
    for trial in sorted(timed, key=lambda t: (time_of(t, shape.key), t.number)):
        kernel = structures[trial.kernel].kernel
        if evaluation.verify(kernel, trial.config).accepted:
            return trial, Contestant(f"run {run}", kernel, dict(trial.config))
    raise SystemExit(f"run {run} has no accepted candidate at {shape.label}")


def confirm(task: str, runs: list[int], db: str, seconds: float) -> list[dict]:
    """A row for each timed shape and run."""
    rows, begun = [], time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:.0f} s: {text}", flush=True)

    with Bench.open(task, say=say) as bench, Store.open(db) as store:
        facts = tune_seed(bench, bench.facts, Evaluation.of(bench, bench.facts))
        evaluation = Evaluation.of(bench, facts)
        plan = ConfirmationPlan(seconds, level=level_for_comparisons(len(runs) * len(facts.shapes)))
        with Confirmation(bench, plan, say) as confirmation:
            say("the seed is tuned")
            confirmation.prepare()
            say("baselines are compiled")
            ceilings = confirmation.find_ceilings(store)
            for shape in facts.shapes:
                best = {run: find_best(store, run, shape, evaluation) for run in runs}
                say("winners are judged")
                seed = Contestant(SEED, bench.seed, dict(facts.config))
                result = confirmation.confirm_shape(shape, [seed, *(contestant for _, contestant in best.values())])
                for run, (trial, contestant) in best.items():
                    finding = build_finding(contestant, [result], bench.device.name, ceilings, plan.level)
                    rows.append({"shape": shape.label, "run": run, "trial": trial.number, **finding})
                    say(as_line(rows[-1]))
    return rows


def as_line(row: dict) -> str:
    if not row["shapes"]:
        return f"{row['shape']}: run {row['run']}, {row['status']}: {row['reason']}"
    (shape,), interval = row["shapes"], row["vs_fastest"]
    baseline = min((b for b in shape["baselines"] if "time_us" in b), key=lambda b: b["time_us"])
    return (
        f"{row['shape']}: run {row['run']}, trial {row['trial']}, {row['kernel'][:8]}: {row['time_us']:.1f} us, "
        f"{interval['ratio']:.3f}x [{interval['low']:.3f}, {interval['high']:.3f}] {baseline['name']} "
        f"({baseline['time_us']:.1f} us), {row['vs_seed']['ratio']:.2f}x the seed; {row['status']}"
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("task")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--trials", type=int, default=200)
    options.add_argument("--runs", type=int, nargs="+", help="confirm these runs instead of searching")
    options.add_argument("--seconds", type=float, default=10.0, help="sampling time per shape")
    options.add_argument("--db", default="seeds.db")
    options.add_argument("--json", dest="out", help="write all findings to this file")
    given = options.parse_args()
    seeds = range(1, given.seeds + 1)
    runs = given.runs or [search(given.task, seed, given.trials, given.db) for seed in seeds]
    rows = confirm(given.task, runs, given.db, given.seconds)
    for shape in dict.fromkeys(row["shape"] for row in rows):
        own = [row for row in rows if row["shape"] == shape and row["shapes"]]
        times, ratios = [row["time_us"] for row in own], [row["vs_fastest"]["ratio"] for row in own]
        if times:
            spread = max(times) / min(times) - 1
            print(f"{shape}: worst {min(ratios):.3f}x, best {max(ratios):.3f}x, times within {spread:.1%} of the best")
    if given.out:
        Path(given.out).write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
