"""Times the ancestors of a run's best kernel with its own config, to say what each step gains (`record/steps.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from kernelsearch.core.types import Config, Evidence, Measurement, ShapeTime, Trial, config_key
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import is_name_of
from kernelsearch.measure.timing.confirm_rules import PROTOCOL
from kernelsearch.record import family_tree, queries
from kernelsearch.record.steps import PlacedStep
from kernelsearch.record.store import Store
from kernelsearch.trial.confirmation import ConfirmedShape, Contestant
from kernelsearch.trial.evaluator import Evaluator

UNHURRIED = 1000.0
"""How many times slower than the seed the ancestors' rival is: they are slow, and must be timed to the end."""


def place_steps(store: Store, run: int, seed: Trial, best: Trial) -> list[PlacedStep]:
    """The steps from the seed with its own config to the best candidate, each with the best one's config."""
    structures = store.load_structures(run)
    own = {row["kernel"]: row["config"] for row in queries.best_trials(store, run, abandoned=True)}
    chain = [structures[s.kernel].kernel for s in family_tree.ancestors(family_tree.load_tree(store, run), best.kernel)]
    steps = [PlacedStep(0, structures[seed.kernel].kernel, seed.config)]
    for place, kernel in enumerate(chain, 1):
        config = best.config if kernel.digest == best.kernel else fit_config(kernel, own, best.config)
        steps.append(PlacedStep(place, kernel, config))
    return steps


def fit_config(kernel: Kernel, own: dict[str, Config], config: Config) -> Config:
    """Another kernel's config for this one, without unknown names; missing values come from this one's best config."""
    return {**own.get(kernel.digest, kernel.config), **{n: v for n, v in config.items() if is_name_of(n, kernel)}}


def time_steps(steps: Sequence[PlacedStep], evaluator: Evaluator, seed: Measurement) -> list[PlacedStep]:
    """The steps with their times by the search's own protocol; a step that is refused with that config has none."""
    slow = replace(seed, times=tuple(replace(t, time_us=UNHURRIED * t.time_us) for t in seed.times))
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda s: evaluator.evaluate(s.kernel, s.config, slow), steps))
    return [replace(step, measurement=outcome.measurement) for step, outcome in zip(steps, outcomes, strict=True)]


def list_beside(steps: Sequence[PlacedStep], contestants: Sequence[Contestant]) -> list[Contestant]:
    """The steps to time in the same blocks as these contestants: those that were accepted, and are not among them."""
    known = {_key(c) for c in contestants}
    new = {_key(s): s for s in steps if s.measurement is not None and _key(s) not in known}
    return [Contestant(f"step {s.place}", s.kernel, dict(s.config), beside=True) for s in new.values()]


def read_confirmed(
    steps: Sequence[PlacedStep], runs: Sequence[ConfirmedShape], contestants: Sequence[Contestant], device: str
) -> list[PlacedStep]:
    """The steps with their times in the blocks of these runs; nothing where the last one was not in all of them."""
    names = {_key(c): c.name for c in (*list_beside(steps, contestants), *contestants)}
    confirmed = []
    for step in steps:
        name = names.get(_key(step), "")
        timed = [(run.shape.key, run.time(name)) for run in runs if name not in run.verdicts]
        times = tuple(ShapeTime(key, t.time_us, t.spread_us, t.samples) for key, t in timed if t is not None)
        measured = Measurement(Evidence.MEASURED, device, PROTOCOL, times) if times else None
        confirmed.append(replace(step, measurement=measured if len(times) == len(runs) else None))
    return confirmed if confirmed and confirmed[-1].measurement is not None else []


def _key(one: PlacedStep | Contestant) -> tuple[str, str]:
    return one.kernel.digest, config_key(one.config)
