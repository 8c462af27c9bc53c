"""How far answers get on a family of tasks that was held out: `python studies/train/leave_one_out.py DATA MODEL`.

    kernelsearch dataset DATA --db ... --test FAMILY
    kernelsearch train --base tiny --data DATA --out MODEL
    python studies/train/leave_one_out.py DATA MODEL [--pages 12 (0: none)] [--answers 4] [--seed 0] [--json OUT.json]

First, of the answers that the record knows to a held-out page (two at least): the mean reward of a choice among them,
evenly, by what each edit gained in training whatever the page, and by each model's odds. No GPU is needed: the gains
are the record's, measured where it was.

Then answers written anew. Arms: MODEL, its base with random weights, and typed edits drawn evenly; all under one
grammar, on the same held-out pages of edits, judged by the environment. Prints the share of answers at each level, the
mean reward with a bootstrap interval over pages, and seconds an answer. Without a GPU times are the static model's
estimates, and the rows say so.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from kernelsearch.env import Environment, Question, Reward
from kernelsearch.env.levels import LEVELS
from kernelsearch.propose.engines import Ask, Failure, open_engine
from kernelsearch.propose.grammar import Grammar
from kernelsearch.train.dataset import list_rewards
from kernelsearch.train.ranking import pad_choice, weigh_answers

Row = dict[str, Any]
PRIOR = 0.05
"""A mean reward that is higher by this much makes an edit's name likelier by a factor of e."""
Weigh = Callable[[Row], list[float]]
"""The log odds of each known answer to a page."""
Arm = Callable[[Row, Grammar, int, int], list[str]]
"""Answers to a page under its grammar, by their number and a seed."""


def load_pages(data: Path, split: str) -> list[Row]:
    """Pages of edits, with the reward of each answer that is known."""
    rows = [json.loads(line) for line in (data / "pages" / f"{split}.jsonl").open(encoding="utf-8")]
    for row in rows:
        row["rewards"] = [reward.value for reward in list_rewards(row)]
    return [row for row in rows if row["form"] == "edit"]


def weigh_by_name(pages: list[Row]) -> Weigh:
    """Odds by the mean reward of an edit over all pages of training: what is learnt without reading a page."""
    rewards: dict[str, list[float]] = {}
    for page in pages:
        for answer, reward in zip(page["answers"], page["rewards"], strict=True):
            rewards.setdefault(answer.split()[1], []).append(reward)
    usual = fmean(r for found in rewards.values() for r in found)
    means = {name: (3 * usual + sum(found)) / (3 + len(found)) for name, found in rewards.items()}
    return lambda page: [means.get(a.split()[1], usual) / PRIOR for a in page["answers"]]


def weigh_by_model(folder: Path) -> Weigh:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

    def weigh(page: Row) -> list[float]:
        prompt = tokenizer(Ask(page["system"], page["page"], None).plain)["input_ids"]
        answers = [tokenizer(a)["input_ids"] for a in page["answers"]]
        with torch.inference_mode():
            batch = pad_choice(prompt, answers, page["rewards"], tokenizer.eos_token_id)
            return weigh_answers(model, batch).tolist()

    return weigh


def choose_among_known(pages: list[Row], arms: dict[str, Weigh], rng: random.Random) -> list[Row]:
    """The mean reward of each arm's choice among the known answers, over drawing evenly; prints a row each."""
    pages, found = [page for page in pages if len(page["answers"]) > 1], []
    even = [fmean(page["rewards"]) for page in pages]
    print(f"{len(pages)} pages with known answers; the best one of each: {fmean(max(p['rewards']) for p in pages):.3f}")
    for name, weigh in arms.items():
        chosen = []
        for page in pages:
            weights = weigh(page)
            odds = [math.exp(w - max(weights)) for w in weights]
            chosen.append(sum(o * r for o, r in zip(odds, page["rewards"], strict=True)) / sum(odds))
        more = [a - b for a, b in zip(chosen, even, strict=True)]
        means = sorted(fmean(rng.choices(more, k=len(more))) for _ in range(1000))
        row = {"arm": name, "known": fmean(chosen), "over evenly": fmean(more), "low": means[25], "high": means[974]}
        found.append({**row, "pages": dict(zip((f"{p['task']} {p['base'][:8]}" for p in pages), more, strict=True))})
        interval = f"[{means[25]:+.3f}, {means[974]:+.3f}]"
        print(f"{name:<18} {fmean(chosen):.3f}  over drawing evenly {fmean(more):+.3f} {interval}", flush=True)
    return found


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
    held_out, rng = load_pages(given.data, "test"), random.Random(given.seed)
    folders = {
        "trained": given.model,
        "supervised alone": given.model / "supervised",
        "random weights": given.model / "base",
    }
    weighs = {name: weigh_by_model(folder) for name, folder in folders.items() if folder.is_dir()}
    weighs["by the edit's name"] = weigh_by_name(load_pages(given.data, "train"))
    found = choose_among_known(held_out, weighs, rng)
    pages = rng.sample(held_out, min(given.pages, len(held_out)))
    there = {name: folder for name, folder in folders.items() if pages and folder.is_dir()}
    arms: dict[str, Arm] = {name: make_model_arm(folder) for name, folder in there.items()}
    arms["drawn evenly"] = draw_evenly
    print(f"{len(pages)} pages of {', '.join(sorted({p['task'] for p in pages}))}, {given.answers} answers each")
    with Environment() as environment:
        for name, arm in arms.items() if pages else ():
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
