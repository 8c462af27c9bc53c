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
from kernelsearch.core.types import Config, Measurement, TaskFacts, config_key
from kernelsearch.record.rows import SEED_SETTING, Run, geometric_mean
from kernelsearch.trial.bench import versions
from kernelsearch.trial.evaluator import Evaluator, OpenedBench
from kernelsearch.tune.blocks import find_blocks, share_parts


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
    """The best config of the lists; the first one where none is right.

    Where each kernel's own time is known, their lists are tried side by side: a trial has a config of each.
    """
    best, points = dict(task.config), place_shapes(task.shapes)
    leader = evaluator.evaluate(bench.seed, best).measurement
    lists = [list(configs) for configs in task.own_configs]
    if leader is not None and len(lists) > 1 and share_parts(leader, leader.by_shape):
        lists = _choose_by_parts(bench, evaluator, lists, best, leader)
    for configs in lists:
        others = [config for c in configs if (config := {**best, **c}) != best]
        for config, rival in _measure_all(bench, evaluator, others, leader):
            if not rival.abandoned and (leader is None or _ratio(points, rival, leader) < 1.0):
                best, leader = config, rival
    return best


def _choose_by_parts(
    bench: OpenedBench, evaluator: Evaluator, lists: list[list[Config]], first: Config, leader: Measurement
) -> list[list[Config]]:
    """What is left to compare by whole times: the configs at which each list's functions took least, as one config.

    A list stays as it is whose names share a function with another's, or of which a config failed beside others.
    """
    names = [dict.fromkeys(n for c in configs for n in c) for configs in lists]
    blocks = find_blocks(bench.seed, dict.fromkeys(n for own in names for n in own))
    owners = [[b for b in blocks if not own.keys().isdisjoint(b.names)] for own in names]
    alone = [n for n, own in enumerate(owners) if all(own != other for other in owners[:n] + owners[n + 1 :])]
    rows = [{n: lists[n][i] for n in alone if i < len(lists[n])} for i in range(max(map(len, lists)))]
    wanted = [{**first, **{name: v for c in row.values() for name, v in c.items()}} for row in rows]
    measured = {config_key(c): m for c, m in _measure_all(bench, evaluator, [c for c in wanted if c != first], leader)}
    measured[config_key(first)] = leader
    chosen: Config = {}
    left = [configs for n, configs in enumerate(lists) if n not in alone]
    for n in alone:
        functions = sorted({f for b in owners[n] for f in b.functions})
        told = [(measured.get(config_key(whole)), row[n]) for row, whole in zip(rows, wanted, strict=True) if n in row]
        shares = [(share_parts(m, leader.by_shape), c) for m, c in told]
        times = [(sum(took[f] for f in functions), c) for took, c in shares if took.keys() >= {*functions}]
        if not functions or len(times) < len(told):
            left.append(lists[n])
        else:
            chosen = {**chosen, **min(times, key=lambda pair: pair[0])[1]}
    return [[chosen], *left]


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
