"""The table of a run: the kernels that share its timed shapes, and which of them each one serves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from kernelsearch.core import formats
from kernelsearch.core.types import Config, Measurement, Trial
from kernelsearch.measure.timing.finalists import list_entries
from kernelsearch.record.export_queries import task_rows
from kernelsearch.record.rows import Row, Run, geometric_mean, score_times
from kernelsearch.record.store import Store


def measurement_of(trial: Trial) -> Measurement:
    """The measurement of an accepted trial."""
    measurement = trial.outcome.measurement
    assert measurement is not None  # it exists if and only if the verdict is accept
    return measurement


def build_table(run: Run, trials: Sequence[Trial], labels: Mapping[str, str]) -> tuple[Row, dict[str, Trial]]:
    """The table of a run, whose first trial is the seed's, and the trial that serves each shape; labels name shapes."""
    seed = measurement_of(trials[0]).by_shape
    chosen = list_entries([*seed], trials, run.facts.kernels)
    serving = {key: f.trial for f in chosen for key in f.serves}
    score = score_times({key: measurement_of(t).by_shape[key] for key, t in serving.items()}, seed)
    about = [dict(kernel=f.trial.kernel, trial=f.trial.number, config=dict(f.trial.config)) for f in chosen]
    served = [dict(shapes=[*f.serves], sizes=[labels.get(key, key) for key in f.serves]) for f in chosen]
    table = {"gain": 1 / (score or 1.0), "of": len(seed), "seed_us": geometric_mean([*seed.values()])}
    return {**table, "entries": [a | s for a, s in zip(about, served, strict=True)]}, serving


def load_table(store: Store, number: int) -> Row | None:
    """The table of a stored run; None where the seed has no times at several shapes."""
    run, seed = store.load_run(number), store.load_trials(number, count=1)
    if not seed or seed[0].outcome.measurement is None or len(seed[0].outcome.measurement.times) < 2:
        return None
    labels = {s["key"]: s["label"] for s in json.loads(task_rows(store, run.task)[0]["shapes"])}
    return build_table(run, store.load_trials(number), labels)[0]


def format_table(table: Row, evidence: str, configs: int) -> list[str]:
    """What a table gains, and a line for each kernel, with its sizes; and what every `x the seed` of its run counts."""
    whole = formats.format_speedup(1 / table["gain"], evidence, configs)
    kernels = _count_kernels(table["entries"])
    lines = [f"table: {whole} over {table['of']} shapes, {kernels}; a kernel's x is a mean, the seed if it is faster"]
    for entry in table["entries"]:
        about = f"kernel {entry['kernel'][:8]}, trial {entry['trial']}, {formats.format_config(entry['config'])}"
        sizes = entry["sizes"]
        lines.append(f"  {formats.format_count(len(sizes), 'shape')}: {about}; at {_name_some(sizes)}")
    return lines


def describe_place(table: Row | None, kernel: str, config: Config) -> str:
    """What must be said of a file that has one kernel of a table; empty without a table."""
    if not table or not table["entries"]:
        return ""
    served = [e["sizes"] for e in table["entries"] if (e["kernel"], e["config"]) == (kernel, config)]
    where = f"{len(served[0])} of {table['of']} shapes, {_name_some(served[0])}" if served else "none of the shapes"
    count = _count_kernels(table["entries"])
    return f"the run's table has {count}: this one serves {where}; `kernelsearch export` writes all of it"


def _count_kernels(entries: Sequence[Row]) -> str:
    """The number of kernels, and of configs where a kernel has several."""
    count = len({e["kernel"] for e in entries})
    kernels = formats.format_count(count, "kernel")
    return kernels if count == len(entries) else f"{len(entries)} configs of {kernels}"


def _name_some(sizes: Sequence[str]) -> str:
    """The first three sizes, and how many more there are."""
    return ", ".join([*sizes[:3], *([f"{len(sizes) - 3} more"] * (len(sizes) > 3))])
