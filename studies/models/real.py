"""What a useless model in the mix costs on a real task: typed edits alone against the mix, run for run.

    python studies/models/real.py TASK OUT.jsonl [first seed] [seeds] [trials]
    python studies/models/real.py --table OUT.jsonl...

The model has random weights: it draws its answers from the grammar that it is given, so that they compile and mean
nothing, and it costs nothing but the trials of its kernels. Both arms of a pair have the same task, seed, strategy,
window and trials. Times are the static model's of an h100, no GPU needed. To have many pairs, what is known is not
found out again: measurements are shared by all runs, a kernel's verdict at one config stands for its other configs, and
of one parent the model knows a few sets of answers only. A row a run: task, arm, seed, score over the seed's.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import time
from pathlib import Path

from kernelsearch.kernel.targets import target_by_name
from kernelsearch.propose.engines import Ask, Engine, Reply, Sample
from kernelsearch.propose.mix import ProposerMix, RunLimits
from kernelsearch.propose.models.model import ModelProposer, Models
from kernelsearch.propose.models.prompt import PromptDevice
from kernelsearch.propose.typed_edits import TypedEdits
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import Search, Settings, make_start, strategies
from kernelsearch.trial import Evaluation
from kernelsearch.trial import bench as benches
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.trial.reuse import ReuseTerms, ReusingEvaluator
from kernelsearch.verify import gate

STUDIES = Path(__file__).resolve().parents[1]
ARMS = ("edits", "mix")
WINDOW, TOKENS, SETS = 8, 30, 6


class RandomWeights(Engine):
    """An engine that draws from the grammar at no cost, so that nothing but its uselessness speaks against it."""

    name, label = "random:", "random"

    def complete(self, ask: Ask) -> Reply:
        rng = random.Random(f"{ask.grammar.digest}/{ask.seed % SETS}")
        texts = (ask.grammar.rules.sample(ask.grammar.start, rng) for _ in range(ask.n))
        return Reply(tuple(Sample(t, tokens=TOKENS) for t in texts), 1500, TOKENS * ask.n)


class Judged:
    """An evaluator for which one accepting verdict of a kernel at each depth is enough."""

    def __init__(self, evaluation: Evaluation, inner: ReusingEvaluator) -> None:
        stages, verdicts = evaluation.stages, {}
        plain = stages.judge

        def judged(candidate, cases, depth):
            key = candidate.kernel.digest, depth
            if key not in verdicts:
                verdicts[key] = plain(candidate, cases, depth)
            return verdicts[key]

        if not hasattr(evaluation, "judged_once"):
            evaluation.judged_once = True
            stages.judge = judged
        self.evaluate, self.complete = inner.evaluate, inner.complete


def run(bench: Bench, evaluation: Evaluation, store: Store, arm: str, seed: int, trials: int) -> dict:
    facts = bench.facts
    if arm == "mix":
        shared = Models(gate.check, PromptDevice("h100", target_by_name("h100")))
        proposer = ProposerMix([ModelProposer(RandomWeights(), shared)], shared, RunLimits(trials))
    else:
        proposer = TypedEdits()
    told = RunFacts("evolve", arm, seed, WINDOW, trials, target=bench.target.name, versions=benches.versions())
    evaluator = Judged(evaluation, ReusingEvaluator(evaluation, ReuseTerms.of(evaluation, facts), store))
    strategy = strategies.make("evolve", make_start(facts, seed, trials))
    settings = Settings(told, 3)
    started = time.monotonic()
    result = Search(facts, strategy, proposer, evaluator, store, settings).run()
    made = [s.edit or "" for s in store.load_structures(result.run.id).values()]
    return {"task": facts.name, "arm": arm, "seed": seed, "trials": len(result.trials), "score": result.best.score,
            "structures": len(made), "by_model": sum(":" in e for e in made), "wall_s": time.monotonic() - started,
            "course": course(result.trials)}  # fmt: skip


def course(trials) -> list[float]:
    """The best score after every tenth trial."""
    best, found = math.inf, []
    for trial in trials:
        best = min(best, trial.score if trial.score is not None else math.inf)
        if (trial.number + 1) % 10 == 0:
            found.append(best)
    return found


def table(paths: list[str]) -> None:
    """For each task: the geometric mean over the seeds of mix over edits, 1 is equal and more is a loss."""
    rows = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    every = []
    for task in dict.fromkeys(r["task"] for r in rows):
        score = {(r["arm"], r["seed"]): r["score"] for r in rows if r["task"] == task}
        seeds = sorted(s for arm, s in score if arm == "mix" and ("edits", s) in score)
        logs = [math.log(score["mix", s] / score["edits", s]) for s in seeds]
        every += [(task, x) for x in logs]
        asked = statistics.fmean(
            r["by_model"] / r["structures"] for r in rows if r["task"] == task and r["arm"] == "mix"
        )
        print(f"{task}: {said(logs)}; kernels by the model {100 * asked:.0f} %; "
              f"by seed {' '.join(f'{100 * math.expm1(x):+.1f}' for x in logs)}")  # fmt: skip
    print(f"all: {said([x for _, x in every])}")


def said(logs: list[float]) -> str:
    """The mean loss in percent with its standard error and 95 % bootstrap interval."""
    rng = random.Random(0)
    error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    means = sorted(statistics.fmean(rng.choices(logs, k=len(logs))) for _ in range(10_000))
    mean, low, high = (100 * math.expm1(x) for x in (statistics.fmean(logs), means[250], means[9749]))
    return (
        f"{len(logs)} pairs, time of the best kernel with the model {mean:+.1f} % "
        f"(s.e. {100 * error:.1f}; 95 % {low:+.1f} to {high:+.1f})"
    )


def main(task: str, out: str, first: int = 0, seeds: int = 8, trials: int = 200) -> None:
    path = Path(out)
    done = {(r["task"], r["arm"], r["seed"], r["trials"]) for r in map(json.loads, path.read_text().splitlines())} \
        if path.exists() else set()  # fmt: skip
    with Bench.open(STUDIES / task / f"{task}.py", "h100", compiled=default_folder()) as bench:
        evaluation = Evaluation(bench, tuple(s.key for s in bench.facts.shapes))
        with Store.open(path.with_suffix(f".{task}.db")) as store:
            for seed in range(first, first + seeds):
                for arm in ARMS:
                    if (bench.facts.name, arm, seed, trials) not in done:
                        row = run(bench, evaluation, store, arm, seed, trials)
                        with path.open("a") as file:
                            file.write(json.dumps(row) + "\n")
                        print(json.dumps({k: v for k, v in row.items() if k != "course"}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        table(sys.argv[2:])
    else:
        main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
