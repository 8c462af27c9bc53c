"""What a parent's text offers to every expression of its grammar: shapes, sizes, literals, products of tiles."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernelsearch.core.types import TaskFacts
from kernelsearch.kernel.source import Function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.grammar.infer import Place, Reader
from kernelsearch.propose.grammar.kinds import Kind, Shape

INTEGERS = (0, 1, 2, 4, 16)
FLOATS = ("0.0", "1.0", "0.5", "2.0", 'float("-inf")', "1.4426950408889634")
"""The last is log2(e), for exp2 in place of exp."""
PRECISIONS = {"ieee": ("ieee",), "tf32x3": ("ieee", "tf32x3"), "tf32": ("ieee", "tf32x3", "tf32")}
MAX_LITERALS = 10
ATOMICS = tuple(f"atomic_{name}" for name in ("add", "max", "min", "xchg", "cas", "and", "or", "xor"))


@dataclass(frozen=True)
class Dot:
    """A product of tiles that the parent makes: the operands' one dtype, and their shapes."""

    dtype: str
    left: Shape
    right: Shape


@dataclass(frozen=True)
class Universe:
    """Facts of one function. dims are extents of `tl.arange`, with the names that each mentions.

    positive are constexprs that a block is made of, so that they are never zero; masked says that the parent masks
    every access to a block; stored and loaded are the names that the addresses of its stores and loads are made of;
    axes are those of its program ids.
    """

    parameters: frozenset[str]
    shapes: tuple[Shape, ...]
    dims: Mapping[str, frozenset[str]]
    positive: tuple[str, ...]
    integers: tuple[int, ...]
    floats: tuple[str, ...]
    dots: tuple[Dot, ...]
    precisions: tuple[str, ...]
    masked: bool
    stored: frozenset[str]
    loaded: frozenset[str]
    axes: tuple[int, ...]

    @classmethod
    def of(cls, function: Function, node: ast.FunctionDef, places: Iterable[Place], task: TaskFacts) -> Universe:
        """The facts of a function, whose node the places' own nodes are part of."""
        places = list(places)
        kinds = [k for p in places for k in _kinds_in(p)]
        dims = {tree.text_of(c.args[1]): tree.reads(c.args[1]) for c in tree.calls(node, "arange") if len(c.args) == 2}
        dims = {d: frozenset(names) for d, names in dims.items() if names <= set(function.constexprs)}
        numbers = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
        integers = sorted({*INTEGERS, *(n for n in numbers if type(n) is int and 0 <= n <= 4096)})
        floats = dict.fromkeys([*FLOATS, *(repr(n) for n in numbers if type(n) is float)])
        accesses = tree.calls(node, "load", "store")
        return cls(
            frozenset(function.params),
            tuple(dict.fromkeys(k.shape for k in kinds if k.shape)),
            dims,
            tuple(c for c in function.constexprs if any(c in names for names in dims.values())),
            tuple(integers[:MAX_LITERALS]),
            tuple(floats)[:MAX_LITERALS],
            tuple(dict.fromkeys(d for p in places for d in _dots(p))),
            PRECISIONS.get(task.precision, PRECISIONS["tf32"]),
            all(tree.argument(c, None, "mask") is not None for c in accesses if _blocks(c, places)),
            _behind(node, "store", *ATOMICS),
            _behind(node, "load", *ATOMICS),
            tuple(
                sorted(
                    {
                        a.value
                        for c in tree.calls(node, "program_id")
                        if isinstance(a := tree.argument(c, 0, "axis"), ast.Constant) and a.value in (0, 1, 2)
                    }
                )
            ),
        )


def expressions_of(place: Place) -> list[ast.expr]:
    """The expressions of a statement's own line, in no order; a body's are not among them."""
    fields = [v for name, v in ast.iter_fields(place.node) if name not in ("body", "orelse", "target", "targets")]
    tops = [v for field in fields for v in (field if isinstance(field, list) else [field]) if isinstance(v, ast.expr)]
    return [n for top in tops for n in ast.walk(top) if isinstance(n, ast.expr)]


def _kinds_in(place: Place) -> list[Kind]:
    reader = Reader(place.scope)
    return [k for n in expressions_of(place) if (k := reader.kind(n)) is not None]


def _dots(place: Place) -> list[Dot]:
    reader, found = Reader(place.scope), []
    for call in expressions_of(place):
        if tree.is_tl(call, "dot") and len(call.args) >= 2:  # type: ignore[attr-defined]
            a, b = (reader.kind(e) for e in call.args[:2])  # type: ignore[attr-defined]
            if a and b and a.dtype == b.dtype and len(a.shape) == len(b.shape) == 2:
                found.append(Dot(a.dtype, a.shape, b.shape))
    return found


def _blocks(call: ast.Call, places: list[Place]) -> bool:
    """Whether an access is to a block, by the scope of the statement that holds it."""
    for place in places:
        if call in expressions_of(place):
            address = tree.argument(call, 0, "pointer")
            kind = Reader(place.scope).kind(address) if address is not None else None
            return kind is not None and bool(kind.shape)
    return False


def _behind(node: ast.FunctionDef, *accesses: str) -> frozenset[str]:
    """Names that the addresses of these accesses lead back to."""
    targets: set[str] = set()
    for call in tree.calls(node, *accesses):
        address = tree.argument(call, 0, "pointer")
        targets |= tree.reads(address) if address is not None else set()
    for statement in reversed(list(tree.all_statements(node.body))):
        pair = tree.assignment(statement)
        if pair and pair[0] in targets:
            targets |= tree.reads(pair[1])
    return frozenset(targets)
