"""Other tuners' files as recorded spaces: KernelTuner's cache, the T4 format, Triton's autotune cache; and T4 back.

KernelTuner's cache and the T4 results schema 1.0.0 (from the autotuning community's TuningSchema) are described in
KernelTuner's documentation; Triton's `*.autotune.json` is written by `triton.autotune(cache_results=True)`. KernelTuner
and T4 files count in milliseconds, and so does Triton.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelsearch.core.errors import SpaceError
from kernelsearch.core.types import config_key
from kernelsearch.record.recorded_space import Recorded, Row

MILLISECONDS = 1000.0
"""Microseconds in one."""

_KERNEL_TUNER_ERRORS = {
    "InvalidConfig": None,  # violates a known constraint: no part of the space
    "CompilationFailedConfig": "compile",
    "RuntimeFailedConfig": "runtime",
}
_T4_FAILURES = {
    "timeout": "timeout",
    "compile": "compile",
    "runtime": "runtime",
    "correctness": "correctness",
    "constraints": None,
}
_TRITON_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")

KERNEL = "kernel"
"""What `kernelsearch trials` calls the structure in a T4 configuration: beside it the parameters are that kernel's."""

SCHEMA_VERSION = "1.0.0"
"""Of the T4 results that are written here."""


def read(path: str | Path, kernel: str | None = None) -> Recorded:
    """The recorded space in another tuner's file. Raises SpaceError, which names the formats that are known.

    kernel is one of `kernels`: T4 results that `trials` wrote hold several, whose parameters differ.
    """
    path = Path(path)
    found = _parsed(path)
    if kernel is not None:
        rows = [r for r in found["results"] if r["configuration"].get(KERNEL) == kernel]
        plain = [{**r, "configuration": {n: v for n, v in r["configuration"].items() if n != KERNEL}} for r in rows]
        found = {**found, "results": plain}
    try:
        for told, parse in ((_is_kernel_tuner, _kernel_tuner), (_is_t4, _t4), (_is_triton, _triton)):
            if told(found):
                return parse(path, found)
    except (KeyError, TypeError, ValueError) as error:
        raise SpaceError(f"{path} is not as its format says: {type(error).__name__}: {error}") from None
    raise SpaceError(f"{path} is none of: a KernelTuner cache, T4 results, a Triton *.autotune.json")


def kernels(path: str | Path) -> dict[str, int]:
    """The kernels of T4 results that `kernelsearch trials` wrote, with how many configs each has, most first."""
    found = _parsed(Path(path))
    if not _is_t4(found):
        return {}
    rows = [r.get("configuration") for r in found["results"] if isinstance(r, dict)]
    named = Counter(str(r[KERNEL]) for r in rows if isinstance(r, dict) and KERNEL in r)
    return dict(named.most_common())


def _parsed(path: Path) -> Any:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path} cannot be read: {error}") from None
    return _loaded(path, text)


def _loaded(path: Path, text: str) -> Any:
    """JSON; KernelTuner leaves the last brackets of a cache open while it tunes."""
    for end in ("", "}}"):
        try:
            return json.loads(text + end if not end else text.rstrip().rstrip(",") + end)
        except (ValueError, RecursionError) as error:
            said = error
    raise SpaceError(f"{path} is not JSON: {said}")


# ---------------------------------------------------------------- KernelTuner


def _is_kernel_tuner(found: Any) -> bool:
    return isinstance(found, dict) and isinstance(found.get("cache"), dict) and "tune_params_keys" in found


def _kernel_tuner(path: Path, found: Mapping[str, Any]) -> Recorded:
    names = found["tune_params_keys"]
    rows = []
    for entry in found["cache"].values():
        config = {name: entry[name] for name in names}
        time = entry.get(found.get("objective", "time"), entry.get("time"))
        error = entry.get("__error__", time if isinstance(time, str) else None)
        if error is not None:
            rows.append((config, _KERNEL_TUNER_ERRORS.get(error, "runtime"), ()))
        else:
            rows.append((config, time, entry.get("times") or ()))
    return _space(str(found.get("kernel_name", path.stem)), str(found.get("device_name", "")), names, rows)


# ---------------------------------------------------------------- T4


def _is_t4(found: Any) -> bool:
    return isinstance(found, dict) and isinstance(found.get("results"), list)


def _t4(path: Path, found: Mapping[str, Any]) -> Recorded:
    rows = []
    for result in found["results"]:
        word = result["invalidity"]
        if word != "correct":
            if word not in _T4_FAILURES:
                raise ValueError(f"unknown invalidity {word!r}")
            rows.append((result["configuration"], _T4_FAILURES[word], ()))
            continue
        objective = (result.get("objectives") or ["time"])[0]
        time = next(m["value"] for m in result["measurements"] if m["name"] == objective)
        rows.append((result["configuration"], time, result["times"].get("runtimes") or ()))
    about = found.get("metadata") or {}
    names = list(rows[0][0]) if rows else []
    return _space(str(about.get("kernel", path.stem)), str(about.get("device", "")), names, rows)


def as_t4(space: Recorded) -> dict[str, Any]:
    """A recorded space as T4 results (a JSON value), times in milliseconds."""
    return {
        "schema_version": SCHEMA_VERSION,
        "metadata": {"timeunit": "milliseconds", "kernel": space.task, "device": space.device},
        "results": [_t4_result(row) for row in space.rows],
    }


def _t4_result(row: Row) -> dict[str, Any]:
    timed = row.time_us is not None
    measured = [{"name": "time", "value": row.time_us / MILLISECONDS, "unit": "ms"}] if timed else []
    return {
        "configuration": dict(row.config),
        "objectives": ["time"],
        "times": {"runtimes": [us / MILLISECONDS for us in row.samples_us]},
        "invalidity": "correct" if timed else row.failure,
        "correctness": 0 if row.failure == "correctness" else 1,
        "measurements": measured,
    }


# ---------------------------------------------------------------- Triton


def _is_triton(found: Any) -> bool:
    return isinstance(found, dict) and isinstance(found.get("configs_timings"), list)


def _triton(path: Path, found: Mapping[str, Any]) -> Recorded:
    rows = []
    for config, timing in found["configs_timings"]:
        options = {name: config[name] for name in _TRITON_OPTIONS if config.get(name) is not None}
        time = timing[0] if isinstance(timing, Sequence) else timing  # do_bench's median comes first
        rows.append(({**config["kwargs"], **options}, time if math.isfinite(time) else "runtime", ()))
    names = list(dict.fromkeys(name for config, *_ in rows for name in config))
    return _space(path.name.removesuffix(".json").removesuffix(".autotune"), "", names, rows)


# ---------------------------------------------------------------- all


def _space(
    task: str, device: str, names: Iterable[str], found: Iterable[tuple[Mapping[str, Any], Any, Sequence[float]]]
) -> Recorded:
    """found: (config, milliseconds or a failure word or None for no part of the space, samples in milliseconds)."""
    rows: dict[str, Row] = {}
    for config, result, samples in found:
        if result is None:
            continue
        clean = {name: config.get(name) for name in names}
        if isinstance(result, str):
            row = Row(clean, failure=result)
        else:
            row = Row(clean, result * MILLISECONDS, samples_us=tuple(s * MILLISECONDS for s in samples))
        rows.setdefault(config_key(clean), row)
    if not any(row.time_us for row in rows.values()):
        raise ValueError("no config has a time")
    parameters = {
        name: tuple({config_key({"": r.config[name]}): r.config[name] for r in rows.values()}.values())
        for name in names
    }
    return Recorded(task, device, {}, parameters, tuple(rows.values()))
