"""A recorded space: the time of every config of one kernel, or how it failed, in one JSON file.

    {"task", "device", "versions": {...}, "parameters": {"BM": [...], ...},
     "rows": [{"config": {...}, "time_us": x} |
              {"config": {...}, "failure": "compile"|"runtime"|"correctness"|"timeout"}]}

Optional: `shapes` (labels of the timed shapes), and in a row with a time `samples_us`, single samples of it. Configs of
the parameters' product without a row were known to be impossible and are not part of the space. Files may be
compressed with gzip or xz. The failure words are KernelTuner's.
"""

from __future__ import annotations

import gzip
import json
import lzma
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kernelsearch.core.errors import SpaceError
from kernelsearch.core.types import Config, Value, config_key

FAILURES = ("compile", "runtime", "correctness", "timeout")


@dataclass(frozen=True)
class SpaceRow:
    """One config with its time in microseconds or its failure; samples_us are single samples of the time."""

    config: Config
    time_us: float | None = None
    failure: str | None = None
    samples_us: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if (self.time_us is None) == (self.failure is None):
            raise ValueError("a row has either a time or a failure")


@dataclass(frozen=True)
class RecordedSpace:
    """A whole recorded space (see the module). Rows are distinct, and at least one has a time."""

    task: str
    device: str
    versions: Mapping[str, str]
    parameters: Mapping[str, tuple[Value, ...]]
    rows: tuple[SpaceRow, ...]
    shapes: tuple[str, ...] = ()

    @cached_property
    def by_key(self) -> dict[str, SpaceRow]:
        """The row of each config, by `config_key`."""
        return {config_key(row.config): row for row in self.rows}

    @cached_property
    def optimum_us(self) -> float:
        """The shortest time of the space, in microseconds."""
        return min(row.time_us for row in self.rows if row.time_us is not None)


# ---------------------------------------------------------------- reading


def read(path: str | os.PathLike[str]) -> RecordedSpace:
    """The recorded space in a file. Raises SpaceError, one sentence that names the file and what is wrong with it."""
    try:
        content = json.loads(_decompress(Path(path).read_bytes()))
    except OSError as error:
        raise SpaceError(f"{path} cannot be read: {error.strerror or error}") from None
    except (lzma.LZMAError, EOFError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise SpaceError(f"{path} is not JSON (nor gzip or xz of it): {error}") from None
    try:
        return parse(content)
    except SpaceError as error:
        raise SpaceError(f"{path}: {error}") from None


def parse(content: Any) -> RecordedSpace:
    """The recorded space in a file's JSON value. Raises SpaceError."""
    if not isinstance(content, dict):
        raise SpaceError(f"a recorded space is an object with task, device, parameters and rows, not {_kind(content)}")
    missing = [name for name in ("task", "device", "parameters", "rows") if name not in content]
    if missing:
        raise SpaceError(f"a recorded space needs {missing[0]!r}, which is missing here")
    parameters = _parse_parameters(content["parameters"])
    if not isinstance(content["rows"], list) or not content["rows"]:
        raise SpaceError("'rows' must be a list of at least one row")
    rows = tuple(_parse_row(number, row, parameters) for number, row in enumerate(content["rows"]))
    _refuse_duplicates(rows)
    if all(row.time_us is None for row in rows):
        raise SpaceError("no row has a time_us: there is no optimum to look for")
    versions, shapes = content.get("versions", {}), content.get("shapes", [])
    if not isinstance(versions, dict) or not isinstance(shapes, list):
        raise SpaceError("'versions' must be an object, and 'shapes' (if there) a list of labels")
    task, device = str(content["task"]), str(content["device"])
    return RecordedSpace(task, device, versions, parameters, rows, tuple(map(str, shapes)))


def _decompress(data: bytes) -> bytes:
    if data[:2] == b"\x1f\x8b":
        return gzip.decompress(data)
    return lzma.decompress(data) if data[:6] == b"\xfd7zXZ\x00" else data


def _parse_parameters(content: Any) -> dict[str, tuple[Value, ...]]:
    if not isinstance(content, dict) or not content:
        raise SpaceError("'parameters' must be an object of names to lists of values")
    for name, values in content.items():
        if not isinstance(values, list) or not values:
            raise SpaceError(f"parameter {name!r} must have a list of at least one value")
        odd = next((v for v in values if isinstance(v, (list, dict)) or v != v), None)
        if odd is not None:
            able = "only numbers, strings, booleans and null are values"
            raise SpaceError(f"parameter {name!r} has the value {odd!r}: {able}")
        if len({config_key({"": v}) for v in values}) < len(values):
            raise SpaceError(f"parameter {name!r} has the same value twice")
    return {name: tuple(values) for name, values in content.items()}


def _parse_row(number: int, row: Any, parameters: Mapping[str, tuple[Value, ...]]) -> SpaceRow:
    if not isinstance(row, dict) or not isinstance(row.get("config"), dict):
        raise SpaceError(f"row {number} must be an object with a 'config'")
    config = _parse_config(number, row["config"], parameters)
    time_us: Any = row.get("time_us")
    failure = row.get("failure")
    if (time_us is None) == (failure is None):
        raise SpaceError(f"row {number} must have either a time_us or a failure")
    if failure is not None:
        if failure not in FAILURES:
            raise SpaceError(f"row {number} has the failure {failure!r}: known are {', '.join(FAILURES)}")
        return SpaceRow(config, failure=failure)
    samples = row.get("samples_us", [])
    if not isinstance(samples, list) or not all(map(_is_time, (time_us, *samples))):
        odd = time_us if not _is_time(time_us) else samples
        raise SpaceError(f"row {number} has the time {odd!r}: times are positive numbers of microseconds")
    return SpaceRow(config, float(time_us), samples_us=tuple(map(float, samples)))


def _parse_config(number: int, config: dict[str, Any], parameters: Mapping[str, tuple[Value, ...]]) -> dict[str, Value]:
    """The row's config in the order of the parameters and with their exact values."""
    odd = sorted({*config} ^ {*parameters})
    if odd:
        where = "lacks" if odd[0] in parameters else "has the unknown"
        raise SpaceError(f"the config of row {number} {where} parameter {odd[0]!r}")
    clean: dict[str, Value] = {}
    for name, values in parameters.items():
        value = config[name]
        same = [v for v in values if v == value and isinstance(v, bool) == isinstance(value, bool)]
        if not same:
            raise SpaceError(f"row {number} has {name} = {value!r}, which is not among the values of 'parameters'")
        clean[name] = same[0]
    return clean


def _refuse_duplicates(rows: Iterable[SpaceRow]) -> None:
    first: dict[str, int] = {}
    for number, row in enumerate(rows):
        earlier = first.setdefault(config_key(row.config), number)
        if earlier != number:
            raise SpaceError(f"rows {earlier} and {number} have the same config: {config_key(row.config)}")


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _kind(value: Any) -> str:
    return {list: "a list", str: "a string", type(None): "null"}.get(type(value), "a number")


# ---------------------------------------------------------------- writing


def as_json(space: RecordedSpace) -> dict[str, Any]:
    """The space as its file's JSON value."""
    head = {"task": space.task, "device": space.device, "versions": dict(space.versions)}
    shapes = {"shapes": list(space.shapes)} if space.shapes else {}
    parameters = {name: list(values) for name, values in space.parameters.items()}
    return {**head, **shapes, "parameters": parameters, "rows": [row_as_json(row) for row in space.rows]}


def row_as_json(row: SpaceRow) -> dict[str, Any]:
    if row.time_us is None:
        return {"config": dict(row.config), "failure": row.failure}
    samples = {"samples_us": list(row.samples_us)} if row.samples_us else {}
    return {"config": dict(row.config), "time_us": row.time_us, **samples}


def write(space: RecordedSpace, path: str | os.PathLike[str]) -> None:
    """Writes the file, whole or not at all; `.gz` and `.xz` names are compressed. Raises SpaceError."""
    value = as_json(space)
    rows = ",\n".join(json.dumps(row) for row in value.pop("rows"))
    text = f'{json.dumps(value)[:-1]}, "rows": [\n{rows}\n]}}\n'.encode()
    pack = {".gz": lambda t: gzip.compress(t, mtime=0), ".xz": lambda t: lzma.compress(t, preset=9)}
    unfinished = Path(f"{path}.unfinished")
    try:
        unfinished.write_bytes(pack.get(Path(path).suffix, bytes)(text))
        os.replace(unfinished, path)
    except OSError as error:
        raise SpaceError(f"{path} cannot be written: {error.strerror or error}") from None
