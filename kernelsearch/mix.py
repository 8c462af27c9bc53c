"""What a compiled kernel consists of: the static half of the static model's input, as `compile/ptx.py` counts it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mix:
    """Static instruction counts of one kernel.

    loads, stores and shared count accesses by bytes per thread; counts holds the other kinds;
    total is all instructions; parameters is the length of the entry's parameter list.
    """

    loads: dict[int, int] = field(default_factory=dict)
    stores: dict[int, int] = field(default_factory=dict)
    shared: dict[int, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    total: int = 0
    parameters: int = 0

    def __getitem__(self, kind: str) -> int:
        return self.counts.get(kind, 0)

    @property
    def load_bytes(self) -> float:
        """Mean bytes per thread and global load; 16 is the best there is. 0.0 when nothing is loaded."""
        return _mean_width(self.loads)

    @property
    def store_bytes(self) -> float:
        """Mean bytes per thread and global store."""
        return _mean_width(self.stores)


def _mean_width(table: dict[int, int]) -> float:
    accesses = sum(table.values())
    return sum(width * n for width, n in table.items()) / accesses if accesses else 0.0
