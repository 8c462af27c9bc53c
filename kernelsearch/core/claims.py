"""What a full verdict covers beyond a task's own shapes: `verify` says it, the record keeps it, an export claims it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CLAIMS, BETWEEN = "claims", "sizes between those of the shapes"
"""The field of a verdict's detail with judged numbers by an input's name, and the name there of the claim of sizes."""

Claims = Mapping[str, Sequence[Any]]
RANGES: Claims = {BETWEEN: [True]}


def make_claims(judged: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """The judged values by name; of floats the least and the largest, as a pair."""
    values: dict[str, list[Any]] = {}
    for name, value in judged:
        values[name] = sorted({*values.get(name, ()), value})
    return {name: [[own[0], own[-1]]] if type(own[0]) is float else own for name, own in values.items()}


def list_spans(sizes: Iterable[int], claims: Claims) -> tuple[tuple[int, int], ...]:
    """The claimed sizes of an axis as (least, largest), given those in the task's shapes."""
    own = sorted({*sizes})
    return ((own[0], own[-1]),) if BETWEEN in claims else tuple((size, size) for size in own)


def spell_values(values: Sequence[Any], to: str = " to ") -> str:
    """Values and pairs of ends in words."""
    return " or ".join(to.join(map(repr, v)) if isinstance(v, (tuple, list)) else repr(v) for v in values)
