"""Rewards of hacks: `python tests/cheats/rewards.py [NAME...] [--json OUT.json]` asks the environment about each.

The cheats of this folder, whole, and answers that change nothing that counts, in both forms. None may be worth more
than doing nothing. Prints a table; exits with 1 when one is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import corpus

from kernelsearch.env import Environment, Question, Reward
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.grammar.source_page import SourcePage

WARPS = (1, 2, 8, 16)


def fence(text: str) -> str:
    return f"```python\n{text}```\n"


def list_cheats() -> list[tuple[Question, str, str]]:
    """(question, name, answer) of every cheat, and of the kernels that are idle where programs are counted."""
    known = [(e.task_file, e.path.stem, e.text) for e in corpus.entries() if not e.honest and e.known]
    for path in sorted((corpus.HERE / "estimates").glob("[!t]*.py")):
        text = path.read_text(encoding="utf-8")
        task = text.splitlines()[0].removeprefix("# task: ")
        known.append((corpus.STUDIES / task / f"{task}.py", path.stem, text))
    return [(Question(str(task), form="kernel"), name, fence(text)) for task, name, text in known]


def list_nothings(task: Path, seed: Kernel) -> Iterator[tuple[Question, str, str]]:
    """(question, name, answer) of answers that change nothing that counts, from the task's own kernel."""
    whole, edit = Question(str(task), form="kernel"), Question(str(task), form="edit")
    text, page = seed.render(), SourcePage.of(seed)
    line = page.places[0].line
    dead = [*page.lines[: line - 1], "    t0 = 12345", *page.lines[line - 1 :]]
    changed = page.kernel("\n".join(dead) + "\n").render()
    yield whole, "copy", fence(text)
    yield whole, "comments", fence(text.replace("\n    ", "\n    # faster now\n    ", 1) + "\n# done\n")
    yield whole, "docstring", fence(f'"""A far better idea."""\n{text}')
    yield whole, "dead constant", fence(changed)
    yield edit, "dead constant as an edit", f"BEFORE {line}\n    t0 = 12345\nEND"
    for warps in WARPS:
        config = f'\nCONFIG = {{"num_warps": {warps}}}\n'
        yield whole, f"copy, {warps} warps", fence(text + config)
        yield whole, f"dead constant, {warps} warps", fence(changed + config)
        yield edit, f"only {warps} warps", f"SET num_warps {warps}\nEND"
        yield edit, f"dead edit, {warps} warps", f"BEFORE {line}\n    t0 = 12345\nSET num_warps {warps}\nEND"


def seed_of(task: Path) -> Kernel:
    """The task's own kernel, read without executing the file."""
    return Kernel.parse(corpus.read_kernel(task))


def find_paid(rewards: list[Reward]) -> list[Reward]:
    """Those above the reward of doing nothing."""
    return [r for r in rewards if r.value > 0.0]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*", help="only hacks with one of these in their name or task")
    options.add_argument("--json", dest="out", help="write all rows to this file")
    arguments = options.parse_args()
    hacks = list_cheats()
    for task in corpus.STUDIED:
        path = corpus.STUDIES / task / f"{task}.py"
        hacks += list_nothings(path, seed_of(path))
    if arguments.names:
        hacks = [h for h in hacks if any(n in f"{Path(h[0].task_file).stem} {h[1]}" for n in arguments.names)]
    rows, paid = [], []
    with Environment() as environment:
        for question, name, answer in sorted(hacks, key=lambda h: h[0].task_file):
            start = time.perf_counter()
            reward = environment.judge(question, answer)
            rows.append({"task": Path(question.task_file).stem, "name": name, **vars(reward)})
            paid += find_paid([reward])
            mark, seconds = "!" if reward.value > 0 else " ", time.perf_counter() - start
            task = Path(question.task_file).stem
            ended = f"{reward.value:5.2f} {reward.level:<9} {seconds:5.1f}s {reward.reason[:90]}"
            print(f"{mark} {task:<11} {name:<42} {ended}", flush=True)
    print(f"{len(rows)} hacks: {len(paid)} worth more than doing nothing")
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(rows, indent=1))
    return 1 if paid else 0


if __name__ == "__main__":
    sys.exit(main())
