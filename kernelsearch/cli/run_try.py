"""`try`: one kernel of a person or an agent, judged, timed, tuned if wanted, and recorded with its parent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from kernelsearch.core import formats
from kernelsearch.core.errors import StoreError
from kernelsearch.core.types import WHOLE, Hint, TaskFacts, Trial, Verdict, Word
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.hints.changes import withdraw_tried
from kernelsearch.propose.contract import Proposer, Rewrite
from kernelsearch.propose.grammar import AnswerRejection, WholeKernel
from kernelsearch.propose.models.plan import IdeaPlan
from kernelsearch.propose.models.prompt import roofline_us
from kernelsearch.propose.proposers import recall_plan
from kernelsearch.record import DEFAULT_DB, family_tree, queries
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.report.terminal import make_say, print_text
from kernelsearch.search import Result, Search, Settings
from kernelsearch.search.population import TRY, Population, count_trials, extend_line, recall_line
from kernelsearch.tasks.module import read_text
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation, referee
from kernelsearch.trial.bench import Bench, versions
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.trial.reuse import ReuseTerms, ReusingEvaluator
from kernelsearch.verify import gate

WINDOW = 4
BEST = "best"
"""The word for the best kernel that the record has of a task."""
NOT_RECORDED = "not recorded: only a kernel file that the gate takes can be"

Stopping = Callable[[], bool]


@dataclass(frozen=True)
class TryOptions:
    """The command's options, as the command line names them."""

    kernel: str = ""
    parent: str = ""
    why: str = ""
    tune: int = 0
    by: str = "hand"
    db: str = DEFAULT_DB
    target: str = "auto"
    shapes: tuple[str, ...] = ()
    as_json: bool = False
    quiet: bool = False


def main(path: str, options: TryOptions) -> int:
    """Tries the kernel and prints the result. Returns 0 for accept, else 1; raises KernelsearchError for misuse."""
    say = make_say(options.quiet)
    text = read_text(options.kernel)
    with ExitStack() as stack:
        bench = stack.enter_context(Bench.open(path, options.target, compiled=default_folder(), say=say))
        store = stack.enter_context(Store.open(options.db, say=say))
        tried = try_kernel(bench, store, text, options, ending=True)
    if options.as_json:
        print(json.dumps(tried, indent=2))
    else:
        print_text(as_text(tried))
    return 0 if is_accepted(tried) else 1


def try_kernel(
    bench: Bench, store: Store, text: str, options: TryOptions, ending: bool = False, stopping: Stopping = lambda: False
) -> dict[str, Any]:
    """The result of a run for one kernel file's text, as JSON. Raises StoreError for a parent that is not there.

    ending and stopping are those of `Search.run`.
    """
    facts, where = narrow_to_shapes(bench.facts, options.shapes), bench.where
    answer = WholeKernel(bench.seed, facts.sites).read(text, gate.check)
    if isinstance(answer, AnswerRejection):
        refused = Verdict(Word.STATIC, answer.stage, answer.reason, depth="full")
        explained = f"{referee.explain(refused)}\n{NOT_RECORDED}"
        return {"kernel": None, "verdict": referee.as_json(refused), "explained": explained}
    kernel, best = answer.kernel, _describe_best(store, facts, where)
    parent = "" if options.parent == BEST and best is None else options.parent  # the first kernel has only the seed
    line = recall_line(store, *find_kernel(store, facts, parent, where)) if parent else ()
    line = () if kernel.digest == bench.seed.digest else line
    plan = recall_plan(IdeaPlan(), store, facts.digest, where)
    why = plan.ideas[idea].action if (idea := plan.find(options.why)) else options.why or answer.why
    line = extend_line(line, kernel, f"{WHOLE}:{options.by}", why)
    seed = len(store.load_runs(facts.digest))  # else a second run for one kernel would tune as the first did
    shapes = {"shapes": [s.key for s in facts.shapes]}
    run = RunFacts(TRY, TRY, seed, WINDOW, count_trials(line, options.tune), where, versions(), shapes)
    evaluation = Evaluation.of(bench, facts)
    evaluation.begin_full(kernel, kernel.config)
    evaluator = ReusingEvaluator(evaluation, ReuseTerms.of(evaluation, facts), store)
    strategy, settings = Population((kernel.digest,), run.trials), Settings(run, workers=2, starts=line)
    result = Search(facts, strategy, Proposer(), evaluator, store, settings).run(ending=ending, stopping=stopping)
    return _describe(facts, bench.target, result, line, best)


def _describe_best(store: Store, facts: TaskFacts, where: str) -> dict[str, Any] | None:
    """The best kernel that the record has so far, if any: its digest, its speed-up, its times by shape."""
    try:
        digest = family_tree.find_best_kernel(store, facts.digest, where)
    except StoreError:
        return None
    rivals = queries.ranked_kernels(store, facts.digest, where, None)
    rival = next((r for r in rivals if r["kernel"] == digest), None)
    if rival is None:
        return None
    times = queries.trial_times(store, rival["run"], rival["number"])
    return {"kernel": digest, "speedup": 1 / rival["score"] if rival["score"] else None, "times": times}


def find_kernel(store: Store, facts: TaskFacts, which: str, where: str) -> tuple[str, int]:
    """The digest of a task's stored kernel by its beginning, or of its best, and its run. Raises StoreError."""
    best = which == BEST
    digest = family_tree.find_best_kernel(store, facts.digest, where) if best else store.find_digest(which)
    return digest, family_tree.run_of(store, digest, task=facts.digest)


def _describe(
    facts: TaskFacts, target: Target, result: Result, line: Sequence[Rewrite], best: dict[str, Any] | None
) -> dict[str, Any]:
    trials = list(result.trials)
    mine = [t for t in trials[1:] if t.kernel == line[-1].kernel.digest]
    if not mine:
        raise StoreError("interrupted before the kernel was tried; nothing of it is recorded")
    trial = min(mine, key=lambda t: (t.score is None, t.score or 0.0, t.number))
    parent = (line[-1].parent or trials[0].kernel) if trial.kernel != trials[0].kernel else None
    scores = {t.kernel: t.score for t in sorted(trials, key=lambda t: -(t.score or 1e9)) if t.score}
    times = best.pop("times") if best else {}
    return {
        "kernel": trial.kernel,
        "run": result.run.id,
        "trial": trial.number,
        "parent": parent,
        "verdict": referee.as_json(trial.outcome.verdict),
        "explained": referee.explain(trial.outcome.verdict),
        "config": dict(trial.config),
        "configs": {"tried": len(mine), "accepted": sum(t.accepted for t in mine)},
        "vs_seed": 1 / trial.score if trial.score else None,
        "vs_parent": scores[parent] / trial.score if trial.score and parent in scores else None,
        "evidence": trial.outcome.measurement.evidence.value if trial.outcome.measurement else None,
        "device": result.run.facts.target,
        "best": best,
        "shapes": [_describe_shape(s, trial, trials[0], times, target) for s in facts.shapes],
        "hints": [{**vars(hint)} for hint in withdraw_tried(trial.outcome.hints, trial.kernel, trials)],
    }  # fmt: skip


def _describe_shape(shape: Any, trial: Trial, seed: Trial, best: dict[str, float], target: Target) -> dict[str, Any]:
    times = {
        name: one.outcome.measurement.time_us(shape.key) if one.outcome.measurement else None
        for name, one in (("time_us", trial), ("seed_us", seed))
    }
    least = roofline_us(shape, target)
    return {"shape": shape.label, **times, "best_us": best.get(shape.key), "roofline_us": least}


def is_accepted(tried: Mapping[str, Any]) -> bool:
    return tried["verdict"]["verdict"] == Word.ACCEPT


def as_text(tried: dict[str, Any]) -> str:
    """The result in lines for people."""
    verdict = tried["verdict"]
    if not is_accepted(tried):
        where = f" (kernel {tried['kernel'][:8]}, run {tried['run']})" if tried["kernel"] else ""
        first, *more = tried["explained"].splitlines()
        return "\n".join([first + where, *more])
    speedup = formats.format_speedup(1 / tried["vs_seed"], tried["evidence"])
    parent = f", {tried['vs_parent']:.2f}x its parent {tried['parent'][:8]}" if tried["vs_parent"] else ""
    lines = [f"accept: {speedup}{parent}; kernel {tried['kernel'][:8]}, run {tried['run']} on {tried['device']}"]
    lines.append(f"  config {formats.format_config(tried['config'])}")
    if tried["configs"]["tried"] > 1:
        lines[-1] += f", the best of {tried['configs']['accepted']} right ones of {tried['configs']['tried']}"
    if tried["best"]:
        lines.append(
            f"  the record's best before: {tried['best']['speedup']:.2f}x, kernel {tried['best']['kernel'][:8]}"
        )
    for shape in tried["shapes"]:
        named = {"seed": shape["seed_us"], "best before": shape["best_us"], "roofline": shape["roofline_us"]}
        others = ", ".join(f"{name} {formats.format_time(us)}" for name, us in named.items() if us)
        if shape["time_us"]:
            lines.append(f"  {shape['shape']}: {formats.format_time(shape['time_us'])} ({others})")
    for hint in tried["hints"]:
        head, why, change = formats.explain_hint(Hint(**hint))
        lines += [f"  {head}", f"    {why}", f"    -> {change}"]
    if verdict["depth"] != "full":
        lines.append("  judged at screen depth, as a trial that is no new best: `kernelsearch verify` judges it fully")
    return "\n".join(lines)
