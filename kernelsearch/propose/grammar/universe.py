"""What a parent's text offers to every expression of its grammar: shapes, sizes, literals, addresses."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from kernelsearch.kernel.source import Function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.kinds import UNKNOWN, Shape, ValueKind

INTEGERS = (0, 1, 2, 4, 16)
FLOATS = ("0.0", "1.0", "0.5", "2.0", 'float("-inf")', "1.4426950408889634")
"""The last is log2(e), for exp2 in place of exp."""
MAX_LITERALS = 10
ATOMICS = tuple(f"atomic_{name}" for name in "add max min xchg cas and or xor".split())


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
    masked: bool
    stored: frozenset[str]
    loaded: frozenset[str]
    axes: tuple[int, ...]

    @classmethod
    def of(cls, function: Function, node: ast.FunctionDef, kinds: Mapping[int, ValueKind]) -> Universe:
        """The facts of a function; kinds are those of its node's expressions, by the nodes' ids."""
        nodes = list(ast.walk(node))
        shapes = dict.fromkeys(k.shape for n in nodes if (k := kinds.get(id(n), UNKNOWN)).is_known and k.shape)
        dims = {tree.text_of(c.args[1]): tree.reads(c.args[1]) for c in tree.calls(node, "arange") if len(c.args) == 2}
        dims = {d: frozenset(names) for d, names in dims.items() if names <= set(function.constexprs)}
        numbers = [n.value for n in nodes if isinstance(n, ast.Constant)]
        integers = sorted({*INTEGERS, *(n for n in numbers if type(n) is int and 0 <= n <= 4096)})
        floats = dict.fromkeys([*FLOATS, *(repr(n) for n in numbers if type(n) is float)])
        blocks = [c for c in tree.calls(node, "load", "store") if kinds.get(id(c.args[0]), UNKNOWN).shape]
        axes = {tree.argument(c, 0, "axis") for c in tree.calls(node, "program_id")}
        return cls(
            frozenset(function.params),
            tuple(shapes),
            dims,
            tuple(c for c in function.constexprs if any(c in names for names in dims.values())),
            tuple(integers[:MAX_LITERALS]),
            tuple(floats)[:MAX_LITERALS],
            all(tree.argument(c, None, "mask") is not None for c in blocks),
            _names_behind(node, "store", *ATOMICS),
            _names_behind(node, "load", *ATOMICS),
            tuple(sorted({a.value for a in axes if isinstance(a, ast.Constant) and a.value in (0, 1, 2)})),
        )


def _names_behind(node: ast.FunctionDef, *accesses: str) -> frozenset[str]:
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
