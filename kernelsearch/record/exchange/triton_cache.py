"""Triton's autotune cache as a recorded space: `triton.autotune(cache_results=True)` writes `*.autotune.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelsearch.core.errors import SpaceError
from kernelsearch.core.types import config_key
from kernelsearch.record.recorded_space import RecordedSpace, SpaceRow

MILLISECONDS = 1000.0
"""Microseconds in a millisecond, in which Triton counts."""
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def read(path: str | Path) -> RecordedSpace:
    """The recorded space in the file. Raises SpaceError."""
    path = Path(path)
    try:
        content = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise SpaceError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("configs_timings"), list):
        raise SpaceError(f"{path} is neither a database of kernelsearch nor a Triton *.autotune.json")
    try:
        return _parse(path.name.removesuffix(".json").removesuffix(".autotune"), content["configs_timings"])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise SpaceError(f"{path} is not as its format says: {type(error).__name__}: {error}") from None


def _parse(task: str, timings: Sequence[tuple[Mapping[str, Any], Any]]) -> RecordedSpace:
    """The space of configs with their times: Triton's median comes first, and a config that failed took infinity."""
    found: list[tuple[dict[str, Any], float]] = []
    for config, timing in timings:
        options = {name: config[name] for name in OPTIONS if config.get(name) is not None}
        found.append(({**config["kwargs"], **options}, timing[0] if isinstance(timing, Sequence) else timing))
    names = list(dict.fromkeys(name for config, _ in found for name in config))
    rows: dict[str, SpaceRow] = {}
    for config, time in found:
        clean = {name: config.get(name) for name in names}
        if not time > 0:
            raise ValueError(f"{time!r} is no time")
        timed = SpaceRow(clean, time * MILLISECONDS) if math.isfinite(time) else SpaceRow(clean, failure="runtime")
        rows.setdefault(config_key(clean), timed)
    if not any(row.time_us for row in rows.values()):
        raise ValueError("no config has a time")
    values = {n: {config_key({"": row.config[n]}): row.config[n] for row in rows.values()} for n in names}
    return RecordedSpace(task, "", {}, {n: tuple(v.values()) for n, v in values.items()}, tuple(rows.values()))
