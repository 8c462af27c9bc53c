"""The groups of a space's names that decide the times of different functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernelsearch.core.types import Measurement
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import functions_of


@dataclass(frozen=True)
class NameBlock:
    """Names of a space, and the functions whose time they decide: no other name does."""

    names: tuple[str, ...]
    functions: tuple[str, ...]


def find_blocks(kernel: Kernel, names: Iterable[str]) -> tuple[NameBlock, ...]:
    """The names in groups that share no launched function. Names that mean nothing to one have a block without any."""
    blocks: list[NameBlock] = []
    for name in names:
        own = {f for f in functions_of(name, kernel) if f in kernel.entries}
        touched = [b for b in blocks if own & {*b.functions} or (not own and not b.functions)]
        blocks = [b for b in blocks if b not in touched]
        merged = (n for b in touched for n in b.names)
        blocks.append(NameBlock((*merged, name), tuple(sorted(own.union(*(b.functions for b in touched))))))
    return tuple(blocks)


def find_same_functions(before: Kernel, after: Kernel) -> frozenset[str]:
    """The functions that compute the same, on the same buffers and grid, in both kernels."""
    shared = ("constants", "scratch", "init", "launches", "descriptors")
    if any(getattr(before, name) != getattr(after, name) for name in shared):
        return frozenset()
    texts = {f.name: f.text for f in before.functions}
    changed = {f.name for f in after.functions if texts.get(f.name) != f.text}
    for name in after.names:
        if before.grid.get(name) != after.grid.get(name) or before.args.get(name) != after.args.get(name):
            changed.add(name)
    while more := {f.name for f in after.functions if changed.intersection(f.calls)} - changed:
        changed |= more
    return frozenset(after.names) - changed


def share_parts(measurement: Measurement | None, unit_us: Mapping[str, float]) -> dict[str, float]:
    """What each function took over the whole time unit_us at a shape, mean over the shapes that were timed.

    {} where a shape does not say it. Shapes count alike, as in a score; an abandoned measurement has fewer.
    """
    times = measurement.times if measurement else ()
    every = [(t.detail.get("parts_us"), unit_us.get(t.shape)) for t in times]
    shares: dict[str, list[float]] = {}
    for parts, unit in every:
        for function, us in parts.items() if parts and unit else ():
            shares.setdefault(function, []).append(us / unit)
    whole = all(parts and unit for parts, unit in every)
    return {f: sum(s) / len(every) for f, s in shares.items()} if whole else {}
