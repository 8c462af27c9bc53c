"""Does a model that learnt from other families of tasks find more? `python studies/train/proof.py OUT --db LINEAGE.db`.

For each held-out family: a dataset of the lineage of all others, tiny models trained on it (supervised, then by
reward with speed and, from the same supervised model, by reward without it; `--trainings` of each, with seeds of their
own), and a `kernelsearch study` of each arm at equal trials: edits drawn evenly, by the bandit that knows nothing
beforehand, by the one that is told what each edit gained in that lineage, and by each model. With N trainings the
search of seed S asks the model of training S modulo N. A stage that OUT has already is not done again, and what a study
has found is there as it comes: RESULTS/FAMILY.ARM.TRAINING.db. `--report` prints the tables alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import fmean

from usual_gains import list_gains, smooth

from kernelsearch.report.study_facts import bootstrap_interval
from kernelsearch.train import dataset

HERE = Path(__file__).resolve().parent
STUDIES = HERE.parent
FAMILIES = {
    "softmax": ["softmax/softmax.py", "softmax_wide/softmax_wide.py"],
    "norm": ["layernorm/layernorm.py", "rmsnorm/rmsnorm.py", "train/tasks/norm_residual.py"],
    "reduce": ["column_sum/column_sum.py", "train/tasks/reduce_logsumexp.py", "train/tasks/reduce_pool.py"],
    "loss": ["cross_entropy/cross_entropy.py", "train/tasks/loss_cosine.py", "train/tasks/loss_huber.py"],
    "map": ["swiglu/swiglu.py", "train/tasks/map_quantize.py"],
    "scan": ["train/tasks/scan_gate.py", "train/tasks/scan_sum.py"],
}
"""The families that are held out, one at a time, with the tasks that are searched."""
RENAMED = {"layernorm": "norm", "rmsnorm": "norm", "column_sum": "reduce", "cross_entropy": "loss", "swiglu": "map",
           "matmul": "product", "linear_gelu": "product", "attention": "attend"}  # fmt: skip
"""Tasks whose name does not begin with their family."""
ON_RECORD = {
    "supervised": ("speed", "supervised alone"),
    "GRPO with speed": ("speed", "trained"),
    "GRPO without speed": ("right", "trained"),
    "by the edit's name alone": ("speed", "by the edit's name"),
}
"""Columns of the table of choices among known answers: the folder of a model and the arm of `leave_one_out.py`."""
EVENLY = {"direct": 0.0, "compose": 0.0, "survey": 0.0, "insert": 0.0, "sharpness": 0.0, "hinted": 0.0}
MODELS = {"speed": "speed", "right": "right", "supervised": "speed/supervised", "random": "speed/base"}
"""The folders of the models that are arms, in a training's: by reward with speed and without it, before, random."""
ARMS = ("evenly", "bandit", "told", *MODELS)
TOLD = """from dataclasses import replace

from kernelsearch.search.strategies import load

evolve = load("evolve")
Params = evolve.Params


class Strategy(evolve.Strategy):
    def __init__(self, params, start):
        super().__init__(params, replace(start, usual_gains={gains}))
"""
"""The shipped strategy with other usual gains."""
CHECKPOINTS = (25, 50, 100)


def run(*words: object) -> str:
    """A command of kernelsearch; its standard output."""
    command = [sys.executable, "-m", "kernelsearch", *map(str, words)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def write_data(out: Path, families: list[str], databases: list[str]) -> None:
    """The datasets of these families; the databases are read once for all of them."""
    if missing := [f for f in families if not (out / f / "data" / "pages").is_dir()]:
        collected = dataset.collect(databases, print)
        names = {task: family for task, family in RENAMED.items() if task in collected.kernels}
        for family in missing:
            dataset.write(out / family / "data", collected, dataset.split_families(collected, names, [family]))


def train_family(folder: Path, seed: int, given: argparse.Namespace) -> None:
    """The models of a family: supervised alone, then by reward with speed, and by reward without it."""
    data, speed, right = folder / "data", folder / str(seed) / "speed", folder / str(seed) / "right"
    speed.parent.mkdir(exist_ok=True)
    rewards = ["--seed", seed]
    rewards += ["--steps", given.steps, "--group", given.group, "--reward-rate", given.reward_rate, "--quiet"]
    rewards += ["--recorded"] * (not given.judged)
    if not any(speed.glob("model*.safetensors")):  # what a finished training has
        resume = ["--resume"] * speed.is_dir()
        supervised = ["--epochs", given.epochs, "--rate", given.rate]
        run("train", "--base", "tiny", "--data", data, "--out", speed, *supervised, *rewards, *resume)
    if not any(right.glob("model*.safetensors")):
        start = ["--base", speed / "supervised", "--data", data, "--out", right, "--epochs", 0, "--reward", "right"]
        run("train", *start, *rewards, *["--resume"] * right.is_dir())


def ask_record(folder: Path, seed: int, model: str) -> dict[tuple[str, str], dict[str, float]]:
    """By (model, arm of `leave_one_out.py`): the gain over even drawing of a training's choice at each page."""
    told = folder / str(seed) / f"{model}.json"
    if not told.exists():
        words = [HERE / "leave_one_out.py", folder / "data", folder / str(seed) / model, "--pages", "0", "--json", told]
        subprocess.run([sys.executable, *words], check=True, stdout=sys.stderr)
    return {(model, row["arm"]): row["pages"] for row in json.loads(told.read_text())}


def compare_on_record(out: Path, families: list[str], given: argparse.Namespace) -> None:
    """Prints, for each family, how well its models choose among answers whose gain is known; means over trainings."""
    print("| held out | pages | " + " | ".join(ON_RECORD) + " |\n|" + "---|" * (2 + len(ON_RECORD)))
    rows = []
    for family in families:
        told = [{**ask_record(out / family, seed, "speed"), **ask_record(out / family, seed, "right")}
                for seed in range(given.trainings)]  # fmt: skip
        pages = list(told[0]["speed", "trained"])
        means = {arm: [fmean(one[of][page] for one in told) for page in pages] for arm, of in ON_RECORD.items()}
        rows.append(means)
        print(f"| {family} | {len(pages)} | " + " | ".join(bound(values) for values in means.values()) + " |")
    print("| mean | | " + " | ".join(f"{fmean(fmean(row[arm]) for row in rows):+.3f}" for arm in ON_RECORD) + " |")


def write_arm(out: Path, results: Path, family: str, arm: str, training: int, given: argparse.Namespace) -> Path:
    """The study of one arm. The strategy is the same for all but the bandits: what differs is who draws the edit."""
    seeds = list(range(training, given.seeds, given.trainings if arm in MODELS else 1))
    reached = [n for n in CHECKPOINTS if n <= given.trials] or [given.trials]
    lines = [f"trials = {given.trials}", f"seeds = {seeds}", "window = 8", f"checkpoints = {reached}", "baselines = []"]
    for task in FAMILIES[family][: given.tasks]:
        lines += ["[[task]]", f'path = "{STUDIES / task}"']
    lines += ["[[arm]]", f'name = "{arm}"']
    if arm in ("bandit", "told"):
        names = (family, *(task for task, of in RENAMED.items() if of == family))
        gains = smooth(list_gains(given.db, names))[0] if arm == "told" else {}
        strategy = results / f"{family}_{arm}.py"
        strategy.write_text(TOLD.replace("{gains}", repr(gains)))
        lines += [f'strategy = "{strategy.resolve()}"']
    else:
        drawn = ", ".join(f"{name} = {value}" for name, value in EVENLY.items())
        lines += ['strategy = "evolve"', "params = { " + drawn + " }"]
    if arm in MODELS:
        lines += [f'proposer = "hf:{(out / family / str(training) / MODELS[arm]).resolve()}?device=cpu&ahead=off"']
    file = results / f"{family}.{arm}.{training}.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def run_study(out: Path, results: Path, family: str, given: argparse.Namespace) -> None:
    """All arms of a family side by side, a process each, until they are done or the seconds are over."""
    pairs = [(arm, n) for arm in given.arms for n in range(given.trainings if arm in MODELS else 1)]
    files = [write_arm(out, results, family, *pair, given) for pair in pairs]
    limits = ["--jobs", given.jobs] + ["--budget-seconds", given.seconds] * bool(given.seconds)
    alone = os.environ | {"OMP_NUM_THREADS": "1"}  # a tiny model gains nothing from more threads
    begun = []
    for file in files:
        command = [sys.executable, "-m", "kernelsearch", "study", file, "--json", *limits]
        log = file.with_suffix(".log").open("w")
        begun.append(subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, env=alone))
    for file, process in zip(files, begun, strict=True):
        if process.wait():
            print(f"{file.stem} ended with {process.returncode}: see {file.with_suffix('.log')}")


def count_levels(databases: list[Path]) -> Counter:
    """How far answers got: the stage that refused one, or its kernel's first verdict."""
    asked = "SELECT verdict FROM trial WHERE kind = 'rewrite'"
    asked += " UNION ALL SELECT stage FROM answer WHERE stage <> 'kernel'"
    return Counter(word for db in databases for (word,) in sqlite3.connect(db).execute(asked))


Gains = dict[tuple[str, int], list[float]]
"""The log gain over the seed after each number of trials, by task and seed."""


def read_gains(databases: list[Path]) -> Gains:
    """The curves of the runs of an arm, as far as each came."""
    found: Gains = {}
    for db in databases:
        if not sqlite3.connect(db).execute("SELECT 1 FROM run LIMIT 1").fetchone():
            continue
        for one in json.loads(run("study", db, "--report", "--json"))["runs"]:
            curve, gain = dict(map(tuple, one["curve"])), 0.0
            gains = [gain := -math.log(curve[n]) if n in curve else gain for n in range(1, one["trials"] + 1)]
            found[one["task"], one["seed"]] = gains
    return found


def bound(values: list[float]) -> str:
    """The mean with its 95 % interval over runs."""
    low, high = bootstrap_interval(values)
    return f"{fmean(values):+.3f} [{low:+.3f}, {high:+.3f}]"


def report(results: Path) -> None:
    """Prints, for each family that is there, log gains, those over even drawing, and levels; then their mean."""
    families: dict[str, dict[str, Gains]] = {}
    for family in FAMILIES:
        databases = {arm: sorted(results.glob(f"{family}.{arm}.*.db")) for arm in ARMS}
        arms = {arm: read_gains(found) for arm, found in databases.items() if found}
        if "evenly" not in arms:
            continue
        families[family] = arms
        print(f"\n## {family} held out\n")
        print("| arm | runs | " + " | ".join(f"after {n}, over evenly" for n in CHECKPOINTS) + " | evenly needs |")
        print("|" + "---|" * (3 + len(CHECKPOINTS)))
        for arm, gains in arms.items():
            cells = []
            for n in CHECKPOINTS:
                both = [k for k, g in gains.items() if len(g) >= n and len(arms["evenly"].get(k, ())) >= n]
                more = [gains[k][n - 1] - arms["evenly"][k][n - 1] for k in both]
                mean = fmean(gains[k][n - 1] for k in both) if both else 0.0
                cells.append(f"{mean:.3f}, {bound(more)} ({len(both)})" if both else "")
            print(f"| {arm} | {len(gains)} | {' | '.join(cells)} | {count_needed(gains, arms['evenly'])} |")
        for arm in arms:
            words = count_levels(databases[arm])
            shares = ", ".join(f"{word} {count / words.total():.0%}" for word, count in words.most_common())
            print(f"\n{arm}: {words.total()} proposals: {shares}")
    if len(families) > 1:
        print(f"\n## Mean of {', '.join(families)}\n\n| after 50 trials | log gain |\n|---|---|")
        for arm in ARMS[1:]:
            for other in ("evenly", "supervised", "right") if arm == "speed" else ("evenly",):
                each = [compare_arms(arms, arm, other) for arms in families.values()]
                if seeds := sorted(set.intersection(*map(set, each))):
                    print(f"| {arm} over {other} | {bound([fmean(e[s] for e in each) for s in seeds])} |")


def compare_arms(arms: dict[str, Gains], arm: str, other: str, after: int = 50) -> dict[int, float]:
    """By seed of the search, the mean over tasks of one arm's log gain over another's."""
    one, two = ({k: g[after - 1] for k, g in arms.get(a, {}).items() if len(g) >= after} for a in (arm, other))
    seeds = {seed for _, seed in one.keys() & two.keys()}
    return {s: fmean(one[k] - two[k] for k in one.keys() & two.keys() if k[1] == s) for s in seeds}


def count_needed(gains: Gains, evenly: Gains, after: int = 50) -> str:
    """The number of trials after which even drawing has, in the mean, the gain that these runs have after 50."""
    both = [k for k, g in gains.items() if len(g) >= after and len(evenly.get(k, ())) >= after]
    if not both:
        return ""
    wanted, longest = fmean(gains[k][after - 1] for k in both), min(len(evenly[k]) for k in both)
    return next((str(n) for n in range(1, longest + 1) if fmean(evenly[k][n - 1] for k in both) >= wanted),
                f"more than {longest}")  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--db", action="append", default=[], help="databases of searches over all tasks")
    options.add_argument("--only", nargs="*", choices=list(FAMILIES), default=list(FAMILIES))
    options.add_argument("--arms", nargs="*", choices=ARMS, default=list(ARMS))
    options.add_argument("--results", type=Path, help="folder of the studies (default: OUT)")
    options.add_argument("--tasks", type=int, default=1, help="tasks of each family, the first ones")
    options.add_argument("--trials", type=int, default=100)
    options.add_argument("--seeds", type=int, default=5, help="of the search")
    options.add_argument("--trainings", type=int, default=1, help="models of each kind and family, by seed")
    options.add_argument("--jobs", type=int, default=2, help="runs at the same time, of each arm")
    options.add_argument("--seconds", type=float, default=0.0, help="for each family's study (0: no limit)")
    options.add_argument("--epochs", type=float, default=30.0)
    options.add_argument("--rate", type=float, default=1e-3)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--group", type=int, default=8)
    options.add_argument("--reward-rate", type=float, default=3e-4)
    options.add_argument("--judged", action="store_true", help="by reward: judge answers that the record does not know")
    options.add_argument("--train-only", action="store_true")
    options.add_argument("--study-only", action="store_true")
    options.add_argument("--by-record", action="store_true", help="only: choices among answers whose gain is known")
    options.add_argument("--report", action="store_true")
    given = options.parse_args()
    results = given.results or given.out
    results.mkdir(parents=True, exist_ok=True)
    if given.by_record:
        compare_on_record(given.out, given.only, given)
        return
    trains, studies = not (given.report or given.study_only), not (given.report or given.train_only)
    if trains:
        write_data(given.out, given.only, given.db)
    for family in given.only:
        for seed in range(given.trainings if trains else 0):
            train_family(given.out / family, seed, given)
        if studies:
            run_study(given.out, results, family, given)
    report(results)


if __name__ == "__main__":
    main()
