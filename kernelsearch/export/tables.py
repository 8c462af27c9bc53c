"""A package's data files: a table of configs per task and device, and the evidence for every claim."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernelsearch.core.decision_tree import Costs, Sizes, Tree, fit_tree
from kernelsearch.core.dispatch import LOSES, list_corners
from kernelsearch.core.types import TensorFact
from kernelsearch.export.choose import ExportCandidate
from kernelsearch.export.examine import describe_inputs
from kernelsearch.export.exported_task import ExportedTask
from kernelsearch.measure.timing import protocol
from kernelsearch.measure.timing.by_shape import compute_gain

Row = tuple[Sizes, Costs]
"""Sizes, and what each answer costs there."""


def format_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"


def build_config_tables(part: ExportedTask) -> dict[str, str]:
    """The JSON of each device, an entry per timed shape, by file name; vLLM and SGLang name their tables so."""
    tables = {}
    for device, by_shape in sorted(part.chosen.devices.items()):
        safe = "".join(c if c.isalnum() or c in "-." else "_" for c in device)
        table: dict[str, Any] = {"task": part.name, "task_digest": part.chosen.digest, "device_name": device}
        table |= {"entries": _entries(part, by_shape), "trees": fit_trees(part, device)}
        tables[f"{part.name},device_name={safe}.json"] = format_json(table)
    return tables


def fit_trees(part: ExportedTask, device: str) -> dict[str, Tree]:
    """What runs at which sizes of the inputs, by their dtypes in one text: right at all timed shapes.

    Where all was timed at drawn shapes too, it is what is best there. An answer is the number of the first entry that
    has the candidate, as text; a size is named `x.shape[0]`.
    """
    by_shape, first = part.chosen.devices[device], dict[tuple[str, str], str]()
    keys = list_keys(part, by_shape)
    runs = {k: first.setdefault(by_shape[k].key, str(n)) for n, k in enumerate(keys)}
    rows, ran = dict[str, list[Row]](), dict[str, list[set[str]]]()
    for key in keys:
        costs = {answer: LOSES * (answer != runs[key]) for answer in first.values()}
        values = _values_at(part, key)
        rows.setdefault(join_dtypes(values), []).append((_sizes_at_least_one(values), costs))
        ran.setdefault(join_dtypes(values), []).append({first[f.key] for f in by_shape.values() if key in f.times})
    for dtypes, own in rows.items():
        places = {answer: {n for n, timed in enumerate(ran[dtypes]) if answer in timed} for answer in first.values()}
        own += list_corners([sizes for sizes, _ in own], places)
    for key, times in part.chosen.drawn.get(device, {}).items():
        if first.keys() <= times.keys():
            least = min(times[candidate] for candidate in first)
            costs = {answer: math.log(times[candidate] / least) for candidate, answer in first.items()}
            values = describe_inputs(part.examined.task, key)
            if (dtypes := join_dtypes(values)) in rows:
                rows[dtypes].append((_sizes_at_least_one(values), costs))
    every = [row for own in rows.values() for row in own]
    shared = [name for name in every[0][0] if all(name in sizes for sizes, _ in every)]
    for dtypes in (join_dtypes(_values_at(part, key)) for key in part.examined.keys):
        # dtypes that no timed shape has go by the sizes of all
        rows.setdefault(dtypes, [({name: sizes[name] for name in shared}, costs) for sizes, costs in every])
    return {dtypes: fit_tree(*zip(*own)) for dtypes, own in rows.items()}


def join_dtypes(values: Sequence[tuple[str, Any]]) -> str:
    """The dtypes of inputs by name, as a package's trees are named."""
    return " ".join(map(str, _dtypes_of(values)))


def _sizes_at_least_one(values: Sequence[tuple[str, Any]]) -> dict[str, float]:
    return {name: float(max(size, 1)) for name, size in sizes_of(values).items()}


def list_keys(part: ExportedTask, by_shape: Mapping[str, ExportCandidate]) -> list[str]:
    """The timed shapes in the order of the entries."""
    timed = {s.key for s in part.examined.facts.shapes}
    return [shape for shape in by_shape if shape in timed]


def _values_at(part: ExportedTask, shape: str) -> list[tuple[str, Any]]:
    return [(i.name, i.values[part.examined.keys.index(shape)]) for i in part.examined.inputs]


def sizes_of(values: Sequence[tuple[str, Any]]) -> dict[str, int]:
    """The sizes of the tensors, in the order in which a call has them."""
    tensors = [(name, v) for name, v in values if isinstance(v, TensorFact)]
    return {f"{name}.shape[{axis}]": n for name, v in tensors for axis, n in enumerate(v.shape)}


def _dtypes_of(values: Sequence[tuple[str, Any]]) -> list[str | None]:
    return [v.dtype if isinstance(v, TensorFact) else None for _, v in values]


def _entries(part: ExportedTask, by_shape: Mapping[str, ExportCandidate]) -> list[dict[str, Any]]:
    labels = {s.key: s.label for s in part.examined.facts.shapes}
    entries = []
    for shape in list_keys(part, by_shape):
        found = by_shape[shape]
        entries.append(
            {
                "label": labels[shape],
                "sizes": list(sizes_of(_values_at(part, shape)).values()),
                "dtypes": _dtypes_of(_values_at(part, shape)),
                "kernel": found.digest,
                "config": dict(sorted(found.config.items())),
                "evidence": found.evidence.value,
                "time_us": found.times[shape],
                "seed_time_ratio": found.ratios.get(shape),
                "vs_fastest": _claim(found, shape),
            }
        )
    return entries


def _claim(found: ExportCandidate, shape: str) -> dict[str, Any] | None:
    """The confirmed speed-up over the fastest baseline at one shape; None without one.

    margin is the confirmed protocol's, as a fraction: the resolution with which another process can check the claim.
    """
    entry, finding = found.entry_at(shape), found.finding
    if not entry or not finding or not entry["vs_fastest"]:
        return None
    return {
        "fastest": entry["fastest"],
        "fastest_us": next((b.get("time_us") for b in entry["baselines"] if b["name"] == entry["fastest"]), None),
        **entry["vs_fastest"],
        "level": finding["level"],
        "margin": protocol.margin_of(finding["aa_spread"] or 0.0),
    }


def compute_package_gain(by_shape: Mapping[str, ExportCandidate]) -> dict[str, Any] | None:
    """A package's gain on one device (see `by_shape.compute_gain`); None where not all of it is confirmed."""
    findings = {shape: f.finding for shape, f in by_shape.items() if f.finding is not None}
    return compute_gain(findings) if len(findings) == len(by_shape) else None


def write_evidence(parts: Sequence[ExportedTask], package: str, version: str) -> str:
    """The evidence for each claim as JSON, down to the row: database file, run, trial."""
    return format_json({"package": package, "version": version, "tasks": {p.name: _task_evidence(p) for p in parts}})


def _task_evidence(part: ExportedTask) -> dict[str, Any]:
    e = part.examined
    shapes = {s.key: s.label for s in (*e.facts.shapes, *e.facts.test_shapes)}
    return {
        "task": {
            "digest": part.chosen.digest,
            "file": e.task.path.name,
            "form": e.task.form,
            "precision": e.task.precision,
            "tolerance": e.task.tolerance,
            "shapes": shapes,
            "seed": part.seed.digest,
            "seed_config": dict(part.seed_config),
            "seed_configs": {device: seed["configs"] for device, seed in part.chosen.seeds.items()},
        },
        "by_shape": {device: compute_package_gain(chosen) for device, chosen in part.chosen.devices.items()},
        "kernels": [_kernel_evidence(part, f) for f in part.chosen.found],
    }


def _kernel_evidence(part: ExportedTask, found: ExportCandidate) -> dict[str, Any]:
    shapes = [s for s, f in part.chosen.devices[found.device].items() if f is found]
    return {
        "kernel": found.digest,
        "module": part.module_of(found.digest),
        "config": dict(found.config),
        "device": found.device,
        "evidence": found.evidence.value,
        "shapes": shapes,
        "times_us": dict(found.times),
        "row": {"database": found.database, "run": found.run, "run_name": found.run_name, "trial": found.trial},
        "verdict": dict(found.verdict),
        "versions": dict(found.versions),
        "measured": found.measured,
        "finding": found.finding and {k: v for k, v in found.finding.items() if k != "candidate"},
        "lineage": [
            {
                **{k: getattr(a, k) for k in ("kernel", "edit", "rationale")},
                "gain": found.gains.get(a.kernel),
                "own_gain": a.gain,
            }
            for a in found.ancestors
        ],
    }
