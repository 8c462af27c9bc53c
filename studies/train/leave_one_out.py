"""How far answers get on a family of tasks that was held out: `python studies/train/leave_one_out.py DATA MODEL`.

    kernelsearch dataset DATA --db ... --test FAMILY
    kernelsearch train --base tiny --data DATA --out MODEL
    python studies/train/leave_one_out.py DATA MODEL [--pages 12] [--answers 4] [--seed 0] [--json OUT.json]

Arms: MODEL, its base with random weights, and typed edits drawn evenly; all under one grammar, on the same held-out
pages of edits, judged by the environment. Prints the share of answers at each level, the mean reward with a bootstrap
interval over pages, and seconds an answer. Without a GPU times are the static model's estimates, and the rows say so.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from kernelsearch.env import Environment, Question, Reward
from kernelsearch.env.levels import LEVELS
from kernelsearch.propose.engines import Ask, Failure, open_engine
from kernelsearch.propose.grammar import Grammar

Row = dict[str, Any]
Arm = Callable[[Row, Grammar, int, int], list[str]]
"""Answers to a page under its grammar, by their number and a seed."""


def load_pages(data: Path, most: int, seed: int) -> list[Row]:
    """Held-out pages of edits, drawn at random."""
    rows = [json.loads(line) for line in (data / "pages" / "test.jsonl").open(encoding="utf-8")]
    edits = [row for row in rows if row["form"] == "edit"]
    return random.Random(seed).sample(edits, min(most, len(edits)))


def make_model_arm(folder: Path) -> Arm:
    engine = open_engine(f"hf:{folder}")

    def answer(row: Row, grammar: Grammar, count: int, seed: int) -> list[str]:
        ask = Ask(row["system"], row["page"], grammar.for_engine, count, 96, 1.0, seed)
        reply = engine.complete(ask)
        return [reply.reason] * count if isinstance(reply, Failure) else [s.text for s in reply.samples]

    return answer


def draw_evenly(row: Row, grammar: Grammar, count: int, seed: int) -> list[str]:
    """An edit that applies, each as likely as the next, then one of its variants."""
    rng, drawn = random.Random(seed), []
    for _ in range(count):
        name = rng.choice(sorted(grammar.edits)) if grammar.edits else ""
        drawn.append(f"EDIT {name} {rng.randint(1, len(grammar.edits[name]))}\nEND" if name else "")
    return drawn


def bound_mean(pages: list[list[Reward]], rng: random.Random) -> tuple[float, float]:
    """The 95 % interval of the mean reward by drawing pages again."""
    means = [fmean(r.value for page in pages for r in page)] if len(pages) < 2 else sorted(
        fmean(r.value for page in rng.choices(pages, k=len(pages)) for r in page) for _ in range(1000)
    )  # fmt: skip
    return means[int(0.025 * len(means))], means[int(0.975 * len(means))]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("data", type=Path)
    options.add_argument("model", type=Path)
    options.add_argument("--pages", type=int, default=12)
    options.add_argument("--answers", type=int, default=4)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--json", dest="out", type=Path)
    given = options.parse_args()
    pages = load_pages(given.data, given.pages, given.seed)
    arms = {"trained": make_model_arm(given.model), "random weights": make_model_arm(given.model / "base")}
    if (given.model / "supervised").is_dir():
        arms["supervised alone"] = make_model_arm(given.model / "supervised")
    arms["drawn evenly"] = draw_evenly
    print(f"{len(pages)} pages of {', '.join(sorted({p['task'] for p in pages}))}, {given.answers} answers each")
    found: list[Row] = []
    with Environment() as environment:
        for name, arm in arms.items():
            judged, seconds = [], 0.0
            for number, page in enumerate(pages):
                question = Question(page["task_file"], page["parent"], "edit")
                grammar = environment.make_form(question)
                started = time.perf_counter()
                answers = arm(page, grammar, given.answers, given.seed + number)
                seconds += time.perf_counter() - started
                judged.append(environment.judge_all([question] * len(answers), answers))
            every = [r for page in judged for r in page]
            low, high = bound_mean(judged, random.Random(given.seed))
            shares = Counter(r.level for r in every)
            row = {
                "arm": name,
                "answers": len(every),
                "reward": fmean(r.value for r in every),
                "low": low,
                "high": high,
            }
            row |= {level: shares[level] / len(every) for level in LEVELS}
            row |= {"seconds an answer": seconds / len(every), "evidence": sorted({r.evidence for r in every} - {""})}
            found.append(row)
            levels = ", ".join(f"{level} {row[level]:.0%}" for level in LEVELS if row[level])
            print(f"{name:<17} {row['reward']:+.3f} [{low:+.3f}, {high:+.3f}]  {seconds / len(every):.2f} s  {levels}",
                  flush=True)  # fmt: skip
    if given.out:
        given.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
