"""Does a model that learnt from other families of tasks find more? `python studies/train/proof.py OUT --db LINEAGE.db`.

For each held-out family: a dataset of the lineage of all others, a tiny model trained on it (supervised, then by
reward with speed and, from the same supervised model, by reward without it), and `kernelsearch study` with these arms
at equal trials: edits by the bandit, edits drawn evenly, the three models, and their base with random weights. A stage
that OUT has already is not done again. `--only` does the families one by one, `--report` prints the tables alone.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

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
EVENLY = {"direct": 0.0, "compose": 0.0, "survey": 0.0, "insert": 0.0, "sharpness": 0.0, "hinted": 0.0}
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


def train_family(folder: Path, family: str, given: argparse.Namespace) -> dict[str, Path]:
    """The models of a family, by arm."""
    data, speed, right = folder / "data", folder / "speed", folder / "right"
    rewards = ["--steps", given.steps, "--group", given.group, "--reward-rate", given.reward_rate, "--quiet"]
    if not (speed / "rewards.svg").is_file():
        resume = ["--resume"] * speed.is_dir()
        supervised = ["--epochs", given.epochs, "--rate", given.rate]
        run("train", "--base", "tiny", "--data", data, "--out", speed, *supervised, *rewards, *resume)
    if not (right / "rewards.svg").is_file():
        start = ["--base", speed / "supervised", "--data", data, "--out", right, "--epochs", 0, "--reward", "right"]
        run("train", *start, *rewards, *["--resume"] * right.is_dir())
    return {"speed": speed, "right": right, "supervised": speed / "supervised", "random weights": speed / "base"}


def write_study(folder: Path, family: str, models: dict[str, Path], given: argparse.Namespace) -> Path:
    reached = [n for n in CHECKPOINTS if n <= given.trials]
    lines = [f"trials = {given.trials}", f"seeds = {given.seeds}", "window = 8", f"checkpoints = {reached}"]
    for task in FAMILIES[family]:
        lines += ["[[task]]", f'path = "{STUDIES / task}"']
    lines += ["[[arm]]", 'name = "evenly"', 'strategy = "evolve"']
    lines += ["params = { " + ", ".join(f"{name} = {value}" for name, value in EVENLY.items()) + " }"]
    lines += ["[[arm]]", 'name = "bandit"', 'strategy = "evolve"']
    for name, model in models.items():
        lines += ["[[arm]]", f'name = "{name}"', 'strategy = "evolve"', f'proposer = "hf:{model.resolve()}"']
    file = folder / "study.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def count_levels(db: Path) -> dict[str, Counter]:
    """How far answers got, by the proposer of their runs: the stage that refused one, or its kernel's verdict."""
    found: dict[str, Counter] = {}
    rows = sqlite3.connect(db).execute(
        "SELECT r.proposer, t.verdict FROM trial t JOIN run r ON r.id = t.run WHERE t.kind = 'rewrite' UNION ALL "
        "SELECT r.proposer, a.stage FROM answer a JOIN model_call c ON c.id = a.call JOIN run r ON r.id = c.run "
        "WHERE a.stage <> 'kernel'"
    )
    for proposer, word in rows:
        found.setdefault(Path(proposer).name, Counter())[word] += 1
    return found


def report(out: Path) -> None:
    """Prints a table for each family that is there: the gain over the seed after so many trials."""
    for file in sorted(out.glob("*/study.json")):
        facts: dict[str, Any] = json.loads(file.read_text())
        print(f"\n## {file.parent.name} held out ({', '.join(facts['evidence'])})\n")
        print("| task | arm | " + " | ".join(f"after {n}" for n in CHECKPOINTS) + " |\n|" + "---|" * 5)
        for task, found in facts["tasks"].items():
            for arm, row in found["arms"].items():
                cells = [row["at"].get(str(n)) for n in CHECKPOINTS]
                texts = [f"{c['mean']:.3f} [{c['low']:.3f}, {c['high']:.3f}]" if c else "" for c in cells]
                print(f"| {task} | {arm} | {' | '.join(texts)} |")
        for proposer, words in count_levels(file.with_suffix(".db")).items():
            shares = ", ".join(f"{word} {count / words.total():.0%}" for word, count in words.most_common())
            print(f"\n{proposer}: {words.total()} proposals: {shares}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--db", action="append", default=[], help="databases of searches over all tasks")
    options.add_argument("--only", nargs="*", choices=list(FAMILIES), default=list(FAMILIES))
    options.add_argument("--trials", type=int, default=100)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--epochs", type=float, default=10.0)
    options.add_argument("--rate", type=float, default=1e-3)
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--group", type=int, default=8)
    options.add_argument("--reward-rate", type=float, default=1e-4)
    options.add_argument("--train-only", action="store_true")
    options.add_argument("--report", action="store_true")
    given = options.parse_args()
    if not given.report:
        write_data(given.out, given.only, given.db)
    for family in [] if given.report else given.only:
        folder = given.out / family
        folder.mkdir(parents=True, exist_ok=True)
        models = train_family(folder, family, given)
        if not given.train_only:
            text = run("study", write_study(folder, family, models, given), "--json", "--quiet")
            (folder / "study.json").write_text(text)
    report(given.out)


if __name__ == "__main__":
    main()
