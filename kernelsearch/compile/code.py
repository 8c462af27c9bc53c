"""What a compiled kernel consists of: instruction counts (`compile/ptx.py`) and, for hints, its accesses and loops.

The second half (`Code`) is what `compile/ttir.py` and `compile/ttgir.py` read from the compiler's texts. Sizes that
depend on a launch's arguments are expressions there, and get their numbers from `measure/static_model/launched.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class InstructionCounts:
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


# ---------------------------------------------------------------- what hints need of a binary

Scalar = int | tuple | None
"""An integer, ("arg", name), ("pid", axis), ("grid", axis), or (operation, a, b) over such; None where it is unknown."""


@dataclass(frozen=True)
class Loop:
    """A loop's first value, end and step."""

    first: Scalar
    last: Scalar
    step: Scalar


@dataclass(frozen=True)
class Access:
    """One load, store or atomic of global memory, as the kernel's source has it.

    base is the pointer argument; width is in bytes an element; strides are in elements along each axis of the
    tile's shape (None: not affine); address is equal for accesses of one kernel that touch the same addresses.
    """

    kind: str
    base: str
    width: int
    shape: tuple[int, ...]
    strides: tuple[Scalar, ...]
    loops: tuple[Loop, ...]
    address: int
    descriptor: bool = False


@dataclass(frozen=True)
class Dot:
    """A matrix product of tiles: m, n, k, its operands' type (`bf16`), and whether they were widened from 16 bits."""

    m: int
    n: int
    k: int
    dtype: str
    widened: bool
    loops: tuple[Loop, ...]


@dataclass(frozen=True)
class Work:
    """Element-wise results a program computes in one place: kind is `float`, `special` or `divide`."""

    kind: str
    elements: int
    loops: tuple[Loop, ...]


@dataclass(frozen=True)
class Exchange:
    """A tile's store to or load from shared memory: ways is the turns that it takes over those its bytes need."""

    kind: str
    ways: float
    size_bytes: int
    loops: tuple[Loop, ...]


@dataclass(frozen=True)
class Block:
    """What one loop executes beside its inner loops, per thread, from the PTX; loops is empty for what is in none.

    counts has instructions by kind, and bytes; chain counts the longest dependent path by kind (`compile/blocks.py`).
    ahead is for how many iterations copies to shared memory are still under way when one waits for its own (0: none,
    -1: nothing is copied so); early says that an iteration starts its copies before it computes; carried is in bytes
    of registers per thread that hold tiles from one iteration to the next.
    """

    loops: tuple[Loop, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    chain: Mapping[str, int] = field(default_factory=dict)
    ahead: int = -1
    early: bool = False
    carried: float = 0.0


@dataclass(frozen=True)
class Code:
    """What the compiler's texts say of a kernel; conversions are the bytes of tiles that change their layout."""

    accesses: tuple[Access, ...] = ()
    dots: tuple[Dot, ...] = ()
    work: tuple[Work, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    conversions: int = 0
    stored_again: tuple[str, ...] = ()
    """Pointer arguments that are both stored to and loaded from."""
    blocks: tuple[Block, ...] = ()
    """What is in no loop, then each loop; empty where the texts could not be matched."""
    reduced: tuple[tuple[Loop, ...], ...] = ()
    """The loops around each reduction or scan of a tile."""


def folded(operation: str, a: int, b: int) -> int | None:
    """The number that an operation of a `Scalar` gives, None for a division by zero and for an unknown operation."""
    match operation:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
    if b == 0:
        return None
    return {"//": a // b, "%": a % b, "cdiv": -(-a // b)}.get(operation)
