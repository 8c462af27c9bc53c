"""Times of a run's table at sizes between those of the shapes: they shape its tree, and say what that costs there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from statistics import median
from typing import Any

from kernelsearch.core.decision_tree import Tree
from kernelsearch.core.dispatch import Times, choose_all, find_regrets, fit_dispatch
from kernelsearch.core.slow_steps import Say, report_progress
from kernelsearch.core.timed_shapes import split_drawn
from kernelsearch.core.types import Evidence, Measurement, ShapeFact, TaskFacts, Trial, Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.timing.finalists import list_entries
from kernelsearch.record.store import Store
from kernelsearch.search.facts import Drawn, Result
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.evaluation import Evaluation

SEED = "the seed"
"""What people are told of a task's own kernel."""
FEWEST = 4
"""Sizes at which the task's own kernel is right, of those that are drawn, with fewer of which nothing is learned."""
ASKED, MORE, MEDIAN, WORST = 8, 3, 0.05, 0.15
"""At how many sizes a table is compared, how often at others, and the regrets at which it is good enough."""
SPREAD = 1_000_003
"""What keeps the draws of successive seeds apart."""


def fit_trees(task: TaskFacts, result: Result) -> tuple[dict[str, Tree], dict[str, Trial]]:
    """The trees of a run's table, and its candidates by the names that people are told, the seed first."""
    called, drawn = _name_candidates(task, result), result.drawn
    times: dict[str, Times] = {n: t.outcome.measurement.by_shape for n, t in called.items() if t.outcome.measurement}
    if drawn is None or not drawn.times.keys() >= times.keys():
        return fit_dispatch(task.shapes, times), called
    times = {name: {**known, **drawn.times[name]} for name, known in times.items()}
    return fit_dispatch(task.shapes, times, drawn.shapes), called


def _name_candidates(task: TaskFacts, result: Result) -> dict[str, Trial]:
    entries = list_entries([s.key for s in task.shapes], result.trials, result.run.facts.kernels)
    return {SEED: result.trials[0], **{f"trial {f.trial.number}": f.trial for f in entries}}


def time_between(bench: Bench, task: TaskFacts, store: Store, result: Result, say: Say) -> Result:
    """The result with its table's times at sizes that are drawn between those of the shapes; the store gets these too.

    The tree learns from sizes that follow from the run's seed, ASKED at a time, as long as it is too slow at the next
    ones, MORE times at most: so a seed has one tree. regret is what it costs at ASKED secret sizes, over the fastest
    candidate there; None where that is not known. Nothing follows from these but that who is wrong there is refused.
    """
    called, structures = _name_candidates(task, result), store.load_structures(result.run.id)
    kernels = {name: structures[trial.kernel].kernel for name, trial in called.items()}
    seen, rows, before, learned = set[str](), dict[str, Measurement](), result, list[ShapeFact]()

    def time_next(draws: Iterator[ShapeFact]) -> tuple[list[ShapeFact], dict[str, Times]]:
        shapes, timed = _time_all(bench, called, kernels, list(islice(draws, ASKED)), say)
        rows.update(
            {n: replace(m, times=(*rows[n].times, *m.times) if n in rows else m.times) for n, m in timed.items()}
        )
        return shapes if timed else [], {name: m.by_shape for name, m in rows.items()}

    draws = _draw_shapes(bench, seen, result.run.facts.seed) if len(called) > 1 else iter(())
    for _ in range(1 + MORE):
        shapes, times = time_next(draws)
        if not shapes:
            break
        regret = _find_regret(fit_trees(task, result)[0], shapes, times, bench.device is not None)
        learned += shapes
        drawn = Drawn([*learned], {name: {s.key: own[s.key] for s in learned} for name, own in times.items()})
        result = replace(result, drawn=drawn)
        if regret["median"] <= MEDIAN and regret["worst"] <= WORST:
            break
    asked, times = time_next(_draw_shapes(bench, seen)) if learned else ([], {})
    if not asked:
        return before
    trees = fit_trees(task, result)[0]
    served = {*zip(choose_all(trees, every := (*learned, *asked)), (s.key for s in every), strict=True)}
    if not _judge_served(bench, called, kernels, served, say):
        return before
    keys = {s.key for s in learned}
    kept = [(called[n], replace(m, times=tuple(t for t in m.times if t.shape in keys))) for n, m in rows.items()]
    store.add_measurements(result.run, [(trial.kernel, trial.config, m) for trial, m in kept if m.times])
    return replace(result, regret=_find_regret(trees, asked, times, bench.device is not None))


def _time_all(
    bench: Bench, called: dict[str, Trial], kernels: dict[str, Kernel], shapes: list[ShapeFact], say: Say
) -> tuple[list[ShapeFact], dict[str, Measurement]]:
    """The shapes at which the seed, the first, is right, and the measurements of all there; none where one is refused.

    What was refused is said.
    """
    timed, drawn = dict[str, Measurement](), len(shapes)
    for name, trial in called.items() if bench.device else ():  # the compilers are ahead of the timing
        BoundCandidate(bench, kernels[name], trial.config).compile_ahead(tuple(s.key for s in shapes))
    for name, trial in called.items() if shapes else ():
        with report_progress(say, f"timing {name} at sizes between those of the shapes"):
            verdict, measurement, shapes = _time_drawn(bench, kernels[name], trial, shapes)
        if measurement is None and len(shapes) < min(drawn, FEWEST):
            say("note: between the shapes nothing is timed: the task's own kernel is wrong at most sizes there")
            return [], {}
        if measurement is None:
            _say_refused(say, name, verdict)
            return [], {}
        timed[name] = measurement
    return shapes, timed


def _time_drawn(
    bench: Bench, kernel: Kernel, trial: Trial, shapes: list[ShapeFact]
) -> tuple[Verdict, Measurement | None, list[ShapeFact]]:
    """A verdict and the times at shapes that were drawn, and those of the shapes at which the seed is right."""
    while True:
        evaluation = Evaluation(bench, tuple(s.key for s in shapes))
        verdict, measurement = evaluation.time_drawn(kernel, trial.config)
        if measurement is not None and not trial.number:
            verdict = evaluation.judge_drawn(kernel, trial.config)
            measurement = measurement if verdict.accepted else None
        right = [s for s in shapes if s.key != verdict.detail.get("shape")]
        if trial.number or measurement is not None or verdict.word is not Word.WRONG or len(right) == len(shapes):
            return verdict, measurement, shapes
        shapes = right
        if len(shapes) < FEWEST:
            return verdict, None, shapes


def _judge_served(
    bench: Bench, called: dict[str, Trial], kernels: dict[str, Kernel], served: set[tuple[str, str]], say: Say
) -> bool:
    """Whether candidates are right at drawn shapes, given by names and keys; what was refused is said."""
    for name in called:
        keys = tuple(sorted(key for own, key in served if own == name))
        if keys and name != SEED:  # which was judged at all of them before it was timed
            verdict = Evaluation(bench, keys).judge_drawn(kernels[name], called[name].config)
            if not verdict.accepted:
                _say_refused(say, name, verdict)
                return False
    return True


def _say_refused(say: Say, name: str, verdict: Verdict) -> None:
    say(f"note: between the shapes {name} was refused: {verdict.word.value}, {verdict.reason}")


def _find_regret(
    trees: dict[str, Tree], shapes: list[ShapeFact], times: dict[str, Times], on_gpu: bool
) -> dict[str, Any]:
    regrets = {s.label: regret for s, regret in zip(shapes, find_regrets(trees, shapes, times), strict=True)}
    evidence, worst = Evidence.MEASURED if on_gpu else Evidence.ESTIMATED, max(regrets, key=regrets.__getitem__)
    middle = median(regrets.values())
    return {"evidence": evidence.value, "sizes": regrets, "median": middle, "worst": regrets[worst], "at": worst}


def _draw_shapes(bench: Bench, seen: set[str], seed: int | None = None) -> Iterator[ShapeFact]:
    """Shapes of other sizes than those seen before, until a draw has none; secret ones without a seed."""
    shapes = {s.key: s for s in bench.facts.shapes}
    for draw in count():
        cases = bench.cases("between", draw, None if seed is None else seed * SPREAD + draw)
        new = [key for key in dict.fromkeys(c.shape for c in cases) if key not in seen]
        for key in new:
            seen.add(key)
            base, sizes = split_drawn(key)
            yield ShapeFact(key, bench.labels[key], {**shapes[base].params, **sizes})
        if not new:
            return
