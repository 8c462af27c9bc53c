"""How far random answers get under the grammar of a parent that an edit has made, as most parents of a search are.

    python studies/grammar/edited.py [TASK...] [--samples 20] [--compile 4] [--show]

A row a task: its edits' variants, the share of answers that pass each stage here, and how many of those that change the
source compile for the target at the first timed shape. Answers are drawn from the rules, with no model and no engine.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sample import TASKS

from kernelsearch.core.types import Config
from kernelsearch.kernel.launch import LaunchError
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import EDITS, NotApplicable
from kernelsearch.propose.grammar import STAGES, Answer, NoGrammar, build_grammar
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.tune import make_seed_tuners, space_of, start_of
from kernelsearch.verify import gate

STUDIES = Path(__file__).resolve().parents[1]


def parents(bench: Bench) -> list[tuple[str, Kernel, Config]]:
    """Every variant of every edit of the seed, with the config that a search would try first."""
    seed, tuners = Kernel.parse(bench.facts.seed), make_seed_tuners(bench.facts, Kernel.parse(bench.facts.seed), 0)
    found = []
    for edit in EDITS:
        made = edit.apply(seed, bench.facts)
        for n, variant in enumerate(() if isinstance(made, NotApplicable) else made):
            space = space_of(variant.kernel, tuners.space_by_digest(seed.digest).values)
            config = start_of(variant.kernel, tuners.best_config(seed.digest), space, seed.config or bench.facts.config)
            found.append((f"{edit.name} {n + 1}", variant.kernel, config))
    return found


def refused(bench: Bench, kernel: Kernel, config: Config) -> str:
    """Why the kernel does not compile; empty when it does."""
    try:
        bound = bench.bind_launches(kernel, config, (bench.facts.shapes[0].key,))
        specs = tuple(dict.fromkeys((s, b.of_seed) for fact, b in bound for s in b.specialise_steps(fact)))
    except LaunchError as error:
        return f"launch: {error}"
    _, verdict = bench.build_binaries(kernel, specs)
    return verdict.reason if verdict is not None else ""


def study(task: str, samples: int, most: int, show: bool) -> str:
    stages, tried, bad, made, none = Counter(), 0, Counter(), 0, 0
    with Bench.open(STUDIES / task / f"{task}.py", "h100", compiled=default_folder()) as bench:
        for name, parent, config in parents(bench):
            try:
                grammar = build_grammar(parent, bench.facts)
            except NoGrammar:
                none += 1
                continue
            made += 1
            rng, left = random.Random(f"{task}/{name}"), most
            for _ in range(samples):
                text = grammar.rules.sample(grammar.start, rng)
                answer = grammar.apply(text, stopped=True, gate=gate.check)
                stages["asked"] += 1
                if not isinstance(answer, Answer):
                    stages[answer.stage] += 1
                    print(f"{task} {name}: {answer.stage}: {answer.reason}\n{text}", file=sys.stderr)
                elif left and answer.kernel.digest != parent.digest:
                    left, tried = left - 1, tried + 1
                    said = refused(bench, answer.kernel, {**config, **answer.kernel.config})
                    if said:
                        bad[name] += 1
                        if show:
                            print(f"== {task} {name}: {said[-400:]}\n{text}", file=sys.stderr, flush=True)
    passed = ", ".join(f"{s} {100 * (1 - stages[s] / stages['asked']):.1f} %" for s in STAGES)
    right = f"{tried - sum(bad.values())} of {tried}"
    return f"| {task} | {made} | {stages['asked']} | {passed} | {right} | {dict(bad) or ''} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--compile", type=int, default=4)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    for task in given.tasks or TASKS:
        print(study(task, given.samples, given.compile, given.show), flush=True)
