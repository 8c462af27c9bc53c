"""The groups of a space's names that decide the times of different functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernelsearch.core.types import Measurement, content_digest
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


def identify_functions(kernel: Kernel) -> dict[str, str]:
    """A digest of each launched function by its name: equal ones in two kernels compute the same in the same way.

    It is of the function, all that it calls, its grid and arguments, and of the buffers and launches of the kernel.
    """
    shared = _read_shared(kernel)
    return {name: content_digest(shared, text) for name, text in _read_functions(kernel).items()}


def share_of_changed(before: Kernel, after: Kernel, parts: Mapping[str, float]) -> float:
    """What those functions take together that are not the same afterwards, of what each took (`share_parts`).

    All of them, where only what they share was changed: buffers, constants or the list of launches.
    """
    texts = _read_functions(after)
    changed = [name for name, text in _read_functions(before).items() if texts.get(name) != text]
    if not changed and _read_shared(before) != _read_shared(after):
        return sum(parts.values())
    return sum(parts.get(name, 0.0) for name in changed)


def _read_shared(kernel: Kernel) -> str:
    return repr([getattr(kernel, name) for name in ("constants", "scratch", "init", "launches", "descriptors")])


def _read_functions(kernel: Kernel) -> dict[str, str]:
    """The text of each launched function and of all that it calls, with its grid and arguments."""
    own, read = {f.name: f for f in kernel.functions}, {}
    for name in kernel.names:
        reached, found = [name], {name}
        for function in reached:
            calls = [c for c in own[function].calls if c in own and c not in found]
            reached += dict.fromkeys(calls)
            found.update(calls)
        rules = repr([name, kernel.grid.get(name), kernel.args.get(name)])
        read[name] = "\n".join((rules, *(own[f].text for f in reached)))
    return read


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
