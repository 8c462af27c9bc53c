"""What a strong model adds: typed edits alone against edits and a model's recorded whole kernels, at equal trials.

    python studies/models/proof.py OUT [--trials 150] [--seeds 3] [--tasks softmax_wide ...] [--arms edits]
    python studies/models/proof.py OUT --table

The answers are in answers/TASK.jsonl, written by a strong language model that was shown what `kernelsearch page` prints
and nothing else; nobody edited them. OUT has one file for each finished search and its database: the same command goes
on where it was cut. With several GPUs each has a search of its own under way; without one, times are estimates.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sqlite3
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from kernelsearch.measure.timing.device import list_gpus

HERE = Path(__file__).resolve().parent
STUDIES = HERE.parent
FOLDERS = (HERE / "tasks", STUDIES / "gradients", STUDIES.parent / "tests" / "propose" / "edits")
ARMS = ("edits", "model")
Row = dict[str, Any]


def file_of(task: str) -> Path:
    """A task's file: shipped, of this study, or a test's."""
    shipped = STUDIES / task / f"{task}.py"
    return shipped if shipped.exists() else next(p for f in FOLDERS if (p := f / f"{task}.py").exists())


def search(task: str, arm: str, seed: int, gpu: str, options: argparse.Namespace) -> Row:
    """The row of one search; `why` says what failed."""
    database = options.out / f"{task}.{arm}.{seed}.db"
    database.unlink(missing_ok=True)
    model = ("--model", f"replay:{HERE / 'answers' / task}.jsonl") if arm == "model" else ()
    words = ("optimize", file_of(task), "--trials", options.trials, "--seed", seed, "--target", options.target)
    done = call(gpu, *words, "--no-confirm", "--json", "--quiet", "--db", database, *model)
    row: Row = {"task": task, "arm": arm, "seed": seed, "trials": options.trials}
    try:
        told = json.loads(done.stdout)
    except ValueError:
        return {**row, "why": (done.stderr.strip().splitlines() or ["nothing was printed"])[-1]}
    best = told["best"]
    times = {name: geometric_mean(s[name] for s in best["shapes"]) for name in ("seed_us", "best_us")}
    row |= {**times, "evidence": best["evidence"], "device": best["device"], "seconds": told["seconds"]}
    row |= judge_best(task, database, gpu, options.target, times["seed_us"])
    return {**row, "steps": [s["edit"] for s in best["steps"]], **(count_stages(database) if model else {})}


def call(gpu: str, *words: object) -> subprocess.CompletedProcess[str]:
    """One command of kernelsearch, finished, on this GPU."""
    seen = {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
    command = [sys.executable, "-m", "kernelsearch", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **seen})


def judge_best(task: str, database: Path, gpu: str, target: str, seed_us: float) -> Row:
    """The first kernel of the leaderboard that the referee accepts once more, and how many before it were refused.

    A search judges a new best at full depth on inputs of its own secret; these are others, as in a confirmation. What
    the referee says of those that it refuses goes to `refused_again`.
    """
    rows = json.loads(call(gpu, "leaderboard", "--db", database, "--json").stdout)
    kernel = database.with_suffix(".py")
    refused: list[str] = []
    for row in rows:
        kernel.write_text(call(gpu, "show", row["kernel"], "--db", database).stdout)
        told = call(gpu, "verify", file_of(task), kernel, "--target", target)
        if told.returncode == 0:
            return {"best_us": seed_us * row["score"], "kernel": row["kernel"], "refused_again": refused}
        refused.append(f"{row['kernel']}: {told.stdout.strip() or told.stderr.strip()[-1000:]}")
    return {"best_us": seed_us, "kernel": "the seed", "refused_again": refused}


def count_stages(database: Path) -> Row:
    """How far each answer came: read, through the gate, compiled, right, and at its best faster than the seed."""
    store = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    answers = store.execute("select stage, kernel, tokens, reason from answer").fetchall()
    stages: Counter[str] = Counter(answers=len(answers), tokens=sum(tokens for _, _, tokens, _ in answers))
    first = dict(store.execute("select kernel, min(score) from trial where verdict = 'accept' group by kernel"))
    words = store.execute("select kernel, verdict from trial order by number").fetchall()
    refused = []
    for stage, kernel, _, reason in answers:
        verdicts = [word for digest, word in words if digest == kernel]
        stages["read"] += bool(kernel)
        stages["compiles"] += any(word not in ("reject-static", "reject-compile") for word in verdicts)
        stages["right"] += "accept" in verdicts and not any(word.startswith("reject-w") for word in verdicts)
        stages["faster"] += first.get(kernel, 1.0) < 0.99
        refused += [f"{stage}: {reason}"] if not kernel else []
    return {"stages": dict(stages), "refused": refused}


def print_table(rows: list[Row]) -> None:
    """By task: the time of each seed's best in both arms, their ratio at each seed, and the worst."""
    print("| task | edits us | edits and model us | ratio, each seed | median | worst |\n|---|---|---|---|---|---|")
    ratios, total = [], Counter()
    for task in dict.fromkeys(r["task"] for r in rows):
        by = {(r["arm"], r["seed"]): r for r in rows if r["task"] == task and "best_us" in r}
        seeds = sorted(s for arm, s in by if arm == "edits" and ("model", s) in by)
        if not seeds:
            continue
        times = {arm: [by[arm, s]["best_us"] for s in seeds] for arm in ARMS}
        each = [a / b for a, b in zip(times["edits"], times["model"], strict=True)]
        ratios.append(median(each))
        total.update(by["model", seeds[0]].get("stages", {}))
        cells = (*(" ".join(f"{t:.1f}" for t in times[arm]) for arm in ARMS), " ".join(f"{r:.3f}" for r in each))
        print(f"| {task} | {' | '.join(cells)} | {median(each):.3f} | {min(each):.3f} |")
    if ratios:
        mean, worst = geometric_mean(ratios), min(ratios)
        print(f"\n{len(ratios)} tasks: geometric mean of the medians {mean:.3f}x, least median {worst:.3f}x")
    print("answers of the first seed: " + ", ".join(f"{n} {name}" for name, n in total.items()))
    for row in rows:
        lines = [f"refused when it was judged again: {one}" for one in row.get("refused_again", ())]
        for line in [*row.get("refused", ()), *lines, *([row["why"]] if "why" in row else [])]:
            print(f"- {row['task']}, {row['arm']}, seed {row['seed']}: {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--trials", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=sorted(p.stem for p in (HERE / "answers").glob("*.jsonl")))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--target", default="auto")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = [
        (task, arm, seed) for seed in range(1, options.seeds + 1) for task in options.tasks for arm in options.arms
    ]
    places = {one: options.out / f"{'.'.join(map(str, one))}.json" for one in wanted}
    if not options.table:
        free: queue.SimpleQueue[str] = queue.SimpleQueue()
        gpus = list_gpus() or [""]
        for gpu in gpus:
            free.put(gpu)

        def finish(one: tuple[str, str, int]) -> None:
            gpu = free.get()
            try:
                row = search(*one, gpu, options)
            finally:
                free.put(gpu)
            places[one].write_text(json.dumps(row))
            print({k: row[k] for k in row if k not in ("steps", "refused")}, flush=True)

        with ThreadPoolExecutor(len(gpus)) as pool:
            list(pool.map(finish, [one for one in wanted if not places[one].exists()]))
    print_table([json.loads(place.read_text()) for place in places.values() if place.exists()])


if __name__ == "__main__":
    main()
