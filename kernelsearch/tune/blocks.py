"""The groups of a space's names that decide the times of different functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import names_of


@dataclass(frozen=True)
class NameBlock:
    """Names of a space, and the functions whose time they decide: no other name does."""

    names: tuple[str, ...]
    functions: tuple[str, ...]


def find_blocks(kernel: Kernel, names: Iterable[str]) -> tuple[NameBlock, ...]:
    """The names in groups that share no launched function. Names that mean nothing to one have a block without any."""
    blocks: list[NameBlock] = []
    for name in names:
        prefix, _, plain = name.rpartition(".")
        own = {
            f.name
            for f in kernel.functions
            if f.name in kernel.entries
            and plain in names_of(kernel, f)
            and (not prefix or prefix == f.name or prefix in kernel.sites_of(f.name))
        }
        touched = [b for b in blocks if own & {*b.functions} or (not own and not b.functions)]
        blocks = [b for b in blocks if b not in touched]
        merged = (n for b in touched for n in b.names)
        blocks.append(NameBlock((*merged, name), tuple(sorted(own.union(*(b.functions for b in touched))))))
    return tuple(blocks)
