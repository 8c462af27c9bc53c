"""Tunes a seed with `@triton.autotune` once, so that candidates are compared with its best own config.

Its list of configs is tuned once for a task, its timed shapes, a device and versions: a run's settings keep the result,
and later runs reuse it. Every figure that says `seed` then means that config.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from kernelsearch.core.slow_steps import Say
from kernelsearch.core.timed_shapes import Points, interpolate_ratios, place_shapes
from kernelsearch.core.types import Config, Measurement, TaskFacts
from kernelsearch.record.rows import SEED_SETTING, Run, geometric_mean
from kernelsearch.trial.bench import versions
from kernelsearch.trial.evaluator import Evaluator, OpenedBench


def as_facts(task: TaskFacts) -> dict[str, Any]:
    """The result as a run's settings keep it: how many configs the seed's own list has, and the best one."""
    return {SEED_SETTING: {"configs": task.tuned, "config": dict(task.config)}} if task.tuned else {}


def tune_seed(
    bench: OpenedBench, task: TaskFacts, evaluator: Evaluator, runs: Iterable[Run] = (), say: Say = lambda text: None
) -> TaskFacts:
    """The task with the best config of its seed's own list as the seed's config, also on the bench.

    runs are earlier ones of the task, in which it may have been found. A task without a list stays as it is.
    """
    if not task.own_configs:
        return task
    known = next((s for run in runs if (s := _setting_of(run, bench, task))), None)
    if known is None:
        count = sum(map(len, task.own_configs))
        say(f"tuning the task's own kernel over the {count} configs of its own list")
        known = {"configs": count, "config": _find_best(bench, task, evaluator)}
    bench.facts = replace(bench.facts, config=known["config"], tuned=known["configs"])
    return replace(task, config=known["config"], tuned=known["configs"])


def _setting_of(run: Run, bench: OpenedBench, task: TaskFacts) -> Mapping[str, Any] | None:
    facts, shapes = run.facts, [s.key for s in task.shapes]
    same = (facts.target, dict(facts.versions), facts.settings.get("shapes")) == (bench.where, versions(), shapes)
    return facts.settings.get(SEED_SETTING) if same else None


def _find_best(bench: OpenedBench, task: TaskFacts, evaluator: Evaluator) -> Config:
    """The best config of the lists, one list after the other; the first one where none is right."""
    best: Config = dict(task.config)
    points = place_shapes(task.shapes)
    leader = evaluator.evaluate(bench.seed, best).measurement
    for configs in task.own_configs:
        others = [merged for c in configs if (merged := {**best, **c}) != best]
        for config, rival in _measure_all(bench, evaluator, others, leader):
            if not rival.abandoned and (leader is None or _ratio(points, rival, leader) < 1.0):
                best, leader = config, rival
    return best


def _measure_all(
    bench: OpenedBench, evaluator: Evaluator, configs: Sequence[Config], leader: Measurement | None
) -> Iterator[tuple[Config, Measurement]]:
    """The configs that are right, with their times."""
    with ThreadPoolExecutor(bench.lanes) as pool:
        outcomes = list(pool.map(partial(evaluator.evaluate, bench.seed, incumbent=leader), configs))
    for config, outcome in zip(configs, outcomes, strict=True):
        if outcome.measurement is not None:
            yield config, outcome.measurement


def _ratio(points: Points, one: Measurement, other: Measurement) -> float:
    """One's times over the other's, geometric mean over the shapes; those that one lacks are interpolated."""
    known = {t.shape: t.time_us / other.by_shape[t.shape] for t in one.times}
    return geometric_mean([*interpolate_ratios(points, known).values()]) or 1.0
