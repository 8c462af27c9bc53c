"""Other tuners' files as recorded spaces: KernelTuner's cache, the T4 format, Triton's autotune cache.

KernelTuner's cache and the T4 results schema 1.0.0 (from the autotuning community's TuningSchema) are described in
KernelTuner's documentation; `triton.autotune(cache_results=True)` writes `*.autotune.json`. All three count in
milliseconds.
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
from kernelsearch.record import recorded_space
from kernelsearch.record.recorded_space import FAILURES, RecordedSpace, SpaceRow

MILLISECONDS = 1000.0
"""Microseconds in a millisecond."""

_KERNEL_TUNER_ERRORS = {
    "InvalidConfig": None,  # violates a known constraint: no part of the space
    "CompilationFailedConfig": "compile",
    "RuntimeFailedConfig": "runtime",
}
_T4_FAILURES = {word: word for word in FAILURES} | {"constraints": None}
_TRITON_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")

KERNEL = "kernel"
"""The entry of a T4 configuration in which `kernelsearch trials` puts the kernel; the other entries are its config."""


def read(path: str | Path, kernel: str | None = None) -> RecordedSpace:
    """The recorded space in another tuner's file. Raises SpaceError, which names the known formats.

    kernel is one of `kernels`: T4 results that `trials` wrote hold several, whose parameters differ.
    """
    path = Path(path)
    content = _load(path)
    try:
        if kernel is not None:
            rows = [r for r in content["results"] if r["configuration"].get(KERNEL) == kernel]
            plain = [{**r, "configuration": {n: v for n, v in r["configuration"].items() if n != KERNEL}} for r in rows]
            content = {**content, "results": plain}
        if _is_object_with(content, "cache", dict) and "tune_params_keys" in content:
            found = _parse_kernel_tuner(path, content)
        elif _is_object_with(content, "results", list):
            found = _parse_t4(path, content)
        elif _is_object_with(content, "configs_timings", list):
            found = _parse_triton(path, content)
        else:
            raise SpaceError("it is none of: a KernelTuner cache, T4 results, a Triton *.autotune.json")
        return recorded_space.parse(recorded_space.as_json(found))
    except SpaceError as error:
        raise SpaceError(f"{path}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise SpaceError(f"{path} is not as its format says: {type(error).__name__}: {error}") from None


def count_configs_by_kernel(path: str | Path) -> dict[str, int]:
    """The kernels of T4 results that `kernelsearch trials` wrote, with how many configs each has, most first."""
    content = _load(Path(path))
    if not _is_object_with(content, "results", list):
        return {}
    configs = [r.get("configuration") for r in content["results"] if isinstance(r, dict)]
    return dict(Counter(str(c[KERNEL]) for c in configs if isinstance(c, dict) and KERNEL in c).most_common())


def _load(path: Path) -> Any:
    """The JSON value in a file. KernelTuner leaves the last brackets of a cache open while it tunes."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path} cannot be read: {error}") from None
    for candidate in (text, text.rstrip().rstrip(",") + "}}"):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError) as error:
            failure = error
    raise SpaceError(f"{path} is not JSON: {failure}")


def _is_object_with(content: Any, name: str, kind: type) -> bool:
    return isinstance(content, dict) and isinstance(content.get(name), kind)


def _parse_kernel_tuner(path: Path, content: Mapping[str, Any]) -> RecordedSpace:
    names = content["tune_params_keys"]
    rows = []
    for entry in content["cache"].values():
        config = {name: entry[name] for name in names}
        time = entry.get(content.get("objective", "time"), entry.get("time"))
        error = entry.get("__error__", time if isinstance(time, str) else None)
        if error is not None:
            rows.append((config, _KERNEL_TUNER_ERRORS.get(error, "runtime"), ()))
        else:
            rows.append((config, time, entry.get("times") or ()))
    return _build_space(str(content.get("kernel_name", path.stem)), str(content.get("device_name", "")), names, rows)


def _parse_t4(path: Path, content: Mapping[str, Any]) -> RecordedSpace:
    rows = []
    for result in content["results"]:
        word = result["invalidity"]
        if word != "correct":
            if word not in _T4_FAILURES:
                raise ValueError(f"unknown invalidity {word!r}")
            rows.append((result["configuration"], _T4_FAILURES[word], ()))
            continue
        objective = (result.get("objectives") or ["time"])[0]
        time = next(m["value"] for m in result["measurements"] if m["name"] == objective)
        rows.append((result["configuration"], time, result["times"].get("runtimes") or ()))
    about = content.get("metadata") or {}
    names = list(rows[0][0]) if rows else []
    return _build_space(str(about.get("kernel", path.stem)), str(about.get("device", "")), names, rows)


def _parse_triton(path: Path, content: Mapping[str, Any]) -> RecordedSpace:
    rows = []
    for config, timing in content["configs_timings"]:
        options = {name: config[name] for name in _TRITON_OPTIONS if config.get(name) is not None}
        time = timing[0] if isinstance(timing, Sequence) else timing  # do_bench's median comes first
        rows.append(({**config["kwargs"], **options}, time if math.isfinite(time) else "runtime", ()))
    names = list(dict.fromkeys(name for config, *_ in rows for name in config))
    return _build_space(path.name.removesuffix(".json").removesuffix(".autotune"), "", names, rows)


def _build_space(
    task: str, device: str, names: Iterable[str], results: Iterable[tuple[Mapping[str, Any], Any, Sequence[float]]]
) -> RecordedSpace:
    """results: (config; milliseconds, a failure word, or None if not in the space; samples in milliseconds)."""
    rows: dict[str, SpaceRow] = {}
    for config, result, samples in results:
        if result is None:
            continue
        clean = {name: config.get(name) for name in names}
        if isinstance(result, str):
            row = SpaceRow(clean, failure=result)
        else:
            row = SpaceRow(clean, result * MILLISECONDS, samples_us=tuple(s * MILLISECONDS for s in samples))
        rows.setdefault(config_key(clean), row)
    if not any(row.time_us for row in rows.values()):
        raise ValueError("no config has a time")
    parameters = {
        name: tuple({config_key({"": r.config[name]}): r.config[name] for r in rows.values()}.values())
        for name in names
    }
    return RecordedSpace(task, device, {}, parameters, tuple(rows.values()))
