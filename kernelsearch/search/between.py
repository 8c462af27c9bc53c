"""What the tree of a run's table costs at sizes between those of the shapes, over the fastest of the table there."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from kernelsearch.core.decision_tree import Tree
from kernelsearch.core.dispatch import Times, find_regrets, fit_dispatch
from kernelsearch.core.slow_steps import Say, report_progress
from kernelsearch.core.types import Evidence, ShapeFact, TaskFacts, Trial
from kernelsearch.measure.timing.finalists import list_entries
from kernelsearch.record.store import Store
from kernelsearch.search.facts import Result
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.evaluation import Evaluation


def fit_trees(task: TaskFacts, result: Result) -> tuple[dict[str, Tree], dict[str, Trial]]:
    """The trees of a run's table, and its candidates by the names that people are told, the seed first."""
    entries = list_entries([s.key for s in task.shapes], result.trials, result.run.facts.kernels)
    called = {"the seed": result.trials[0], **{f"trial {f.trial.number}": f.trial for f in entries}}
    times = {n: t.outcome.measurement.by_shape for n, t in called.items() if t.outcome.measurement}
    return fit_dispatch(task.shapes, times), called


def find_regret(bench: Bench, task: TaskFacts, store: Store, result: Result, say: Say) -> dict[str, Any] | None:
    """What the trees cost at sizes that are drawn between those of the shapes; None where that is not known."""
    (trees, called), structures = fit_trees(task, result), store.load_structures(result.run.id)
    shapes = list(_draw_shapes(bench, task)) if len(called) > 1 else []
    evaluation, times = Evaluation(bench, tuple(s.key for s in shapes)), dict[str, Times]()
    for name, trial in called.items() if shapes else ():
        with report_progress(say, f"timing {name} at sizes between those of the shapes"):
            verdict, times[name] = evaluation.time_drawn(structures[trial.kernel].kernel, trial.config)
        if not verdict.accepted:
            say(f"note: between the shapes {name} was refused: {verdict.word.value}, {verdict.reason}")
            return None
    regrets = {s.label: regret for s, regret in zip(shapes, find_regrets(trees, shapes, times), strict=True)}
    if not regrets:
        return None
    evidence, worst = Evidence.MEASURED if bench.device else Evidence.ESTIMATED, max(regrets, key=regrets.__getitem__)
    middle = median(regrets.values())
    return {"evidence": evidence.value, "sizes": regrets, "median": middle, "worst": regrets[worst], "at": worst}


def _draw_shapes(bench: Bench, task: TaskFacts) -> Iterator[ShapeFact]:
    shapes = {s.key: s for s in task.shapes}
    for key in (case.shape for case in bench.cases("between")):
        _, kind, number, sizes = key.split(":")
        drawn = {name: int(value) for name, value in (size.split("=") for size in sizes.split())}
        yield ShapeFact(key, bench.labels[key], {**shapes[f"{kind}:{number}"].params, **drawn})
