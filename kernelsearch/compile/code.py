"""The parts of a compiled kernel as data: instruction counts (`compile/ptx.py`) and, for hints, accesses and loops.

`compile/ttir.py` and `compile/ttgir.py` read the second half (`Code`) from the compiler's texts. Sizes that depend on
a launch's arguments are expressions there, and get their numbers from `measure/static_model/device_launch.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import add, eq, le, lt, mul, sub
from typing import Any


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


def mean_width(table: Mapping[int, int]) -> float:
    """Mean bytes per thread of the accesses in `InstructionCounts.loads` or `stores`; 0.0 when there are none."""
    accesses = sum(table.values())
    return sum(width * n for width, n in table.items()) / accesses if accesses else 0.0


# ---------------------------------------------------------------- for the hints

Scalar = int | tuple | None
"""An integer, ("arg", name), ("pid", axis), ("grid", axis), ("turn", depth) or (operation, a, b) over such; None if
unknown. A turn is the number of the iteration, from 0, of the loop around it at that depth (0: the outermost)."""


@dataclass(frozen=True)
class Loop:
    """A loop's first value, end and step."""

    first: Scalar
    last: Scalar
    step: Scalar


@dataclass(frozen=True)
class Access:
    """One load, store or atomic of global memory in the kernel's source.

    base is the pointer argument; width is in bytes an element; strides are in elements along each axis of the
    tile's shape (None: not affine); address is equal for accesses of one kernel that touch the same addresses; offset
    is that of the tile's first element (None: not known).
    """

    kind: str
    base: str
    width: int
    shape: tuple[int, ...]
    strides: tuple[Scalar, ...]
    loops: tuple[Loop, ...]
    address: int
    descriptor: bool = False
    offset: Scalar = None


@dataclass(frozen=True)
class Dot:
    """A matrix product of tiles: m, n, k, its operands' type (`bf16`), and True if they were widened from 16 bits."""

    m: int
    n: int
    k: int
    dtype: str
    widened: bool
    loops: tuple[Loop, ...]


@dataclass(frozen=True)
class Work:
    """Element-wise results that a program computes in one place: kind is `float`, `special` or `divide`."""

    kind: str
    elements: int
    loops: tuple[Loop, ...]


@dataclass(frozen=True)
class Exchange:
    """A tile's store to or load from shared memory: ways is its turns divided by those that its bytes need."""

    kind: str
    ways: float
    size_bytes: int
    loops: tuple[Loop, ...]


@dataclass(frozen=True)
class Block:
    """One loop's instructions per thread, from the PTX, without those of inner loops; loops is empty outside all loops.

    counts has instructions by kind, and bytes; chain counts the longest dependent path by kind (`compile/blocks.py`).
    ahead is the number of iterations whose copies to shared memory are still under way when one waits for its own
    (0: none, -1: there are no such copies). carried is the bytes of registers per thread that hold tiles from one
    iteration to the next. guessed: the loops are those of the deepest nest, because the texts do not agree.
    """

    loops: tuple[Loop, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    chain: Mapping[str, int] = field(default_factory=dict)
    ahead: int = -1
    carried: float = 0.0
    guessed: bool = False


@dataclass(frozen=True)
class Code:
    """A kernel's facts from the compiler's texts; conversions are the bytes of tiles that change their layout."""

    accesses: tuple[Access, ...] = ()
    dots: tuple[Dot, ...] = ()
    work: tuple[Work, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    conversions: int = 0
    blocks: tuple[Block, ...] = ()
    """The code outside all loops, then each loop; empty where the texts cannot be read."""
    reduced: tuple[tuple[Loop, ...], ...] = ()
    """The loops around each reduction or scan of a tile."""
    serialised: tuple[str, ...] = ()
    """ptxas's reasons why products of tensor cores wait for each other, each with its code (`read_serialised`)."""


def fold(operation: str, a: Any, b: Any) -> Any:
    """The result of a `Scalar`'s operation on integers or arrays of them; None for a division by zero.

    Divisions round as the machine's do: `//` and `%` towards zero.
    """
    if operation in _DIVISIONS:
        zero = b == 0
        return None if (zero if isinstance(zero, bool) else zero.any()) else _DIVISIONS[operation](a, b)
    return _FOLDS[operation](a, b) if operation in _FOLDS else None


def _divide(a: Any, b: Any) -> Any:
    return abs(a) // abs(b) * (1 - 2 * ((a < 0) ^ (b < 0)))


_DIVISIONS = {"//": _divide, "%": lambda a, b: a - _divide(a, b) * b, "cdiv": lambda a, b: -(-a // b)}
_FOLDS = {
    "+": add,
    "-": sub,
    "*": mul,
    "<": lt,
    "<=": le,
    "==": eq,
    "min": lambda a, b: a - (a - b) * (a > b),
    "max": lambda a, b: a + (b - a) * (b > a),
}
