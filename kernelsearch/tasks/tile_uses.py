"""What a kernel does with its constexprs, from its text: loops that step by them, axes of the grid that they divide."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from kernelsearch.core.parsing import parse_python
from kernelsearch.kernel.source import Function

LOOPS = ("range", "tl.range", "tl.static_range")
DIVISIONS = ("tl.cdiv", "triton.cdiv")
HINTS = ("tl.multiple_of", "tl.max_contiguous")
LEAST = ("min", "tl.minimum")
FILLED = ("tl.zeros", "tl.full", "tl.zeros_like", "tl.full_like")
DATA = "data"
"""The origin of what a kernel loads."""


class TileUses:
    """The uses of a function's constexprs.

    An origin of a value is a name that it is computed from: a parameter, `data`, `axis 0` for the program's place
    there, `[BLOCK]` for the lanes of `tl.arange(0, BLOCK)`. A size that is rounded up to a whole number of tiles has
    not the tile as an origin: it covers the same.
    """

    def __init__(self, function: Function) -> None:
        (self._tree,) = parse_python(function.text).body
        self._nodes = list(ast.walk(self._tree))
        self._above = {child: node for node in self._nodes for child in ast.iter_child_nodes(node)}
        self._params = {*function.params}

    @cached_property
    def _origins(self) -> dict[str, frozenset[str]]:
        """The origins of each name."""
        assigned = [pair for node in self._nodes for pair in _list_assigned(node)]
        known = {name: frozenset([name]) for name in self._params}
        while True:
            new = dict(known)
            for target, value in assigned:
                new[target] = new.get(target, frozenset()) | self._trace(value, new)
            if new == known:
                return known
            known = new

    def _trace(self, node: ast.AST, known: dict[str, frozenset[str]] | None = None) -> frozenset[str]:
        """The origins of an expression; those of a loop's counter are those of its start."""
        known = self._origins if known is None else known
        if isinstance(node, ast.Name):
            return known.get(node.id, frozenset())
        if isinstance(node, (ast.Compare, ast.Constant)):
            return frozenset()
        if isinstance(node, ast.BinOp) and (tile := _find_rounding(node)):
            return self._trace(node.left, known) - {tile}
        inner: list[ast.AST] = [*ast.iter_child_nodes(node)]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "tl.program_id":
                return frozenset([f"axis {ast.unparse(_arguments(node)[0])}"])
            if called in LOOPS:
                strides = [n for n in ast.walk(node) if isinstance(n, ast.Call) and _name_of(n) == "tl.num_programs"]
                inner = [*node.args[:1]] if len(node.args) > 1 and not strides else []
            elif called in FILLED:
                return frozenset()
            elif called == "tl.load" or called.endswith(".load"):
                return frozenset([DATA])
            elif called == "tl.arange" and len(node.args) == 2 and isinstance(node.args[1], ast.Name):
                return frozenset([node.args[1].id, f"[{node.args[1].id}]"])
        return frozenset().union(*(self._trace(part, known) for part in inner))

    def list_axes(self, tile: str) -> set[int] | None:
        """The axes of the grid whose places are multiplied or divided by a tile; None where data are: it is a size."""
        axes: set[int] = set()
        for node in self._nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.FloorDiv, ast.Mod)):
                if _find_rounding(node) == tile:
                    continue
                both = isinstance(node.op, ast.Mult)
                pairs = [(node.left, node.right), *([(node.right, node.left)] if both else [])]
            elif isinstance(node, ast.Call) and (_name_of(node).isidentifier() or _name_of(node) == "tl.swizzle2d"):
                pairs = [(a, b) for a in _arguments(node) for b in _arguments(node) if a is not b]
                pairs = [] if _name_of(node) in (*LOOPS, *LEAST, "max") else pairs
            else:
                continue
            for place, by in pairs:
                if tile in self._trace(by):
                    found = self._trace(place)
                    if DATA in found and isinstance(by, ast.Name) and by.id == tile:
                        return None
                    axes |= {int(o[-1]) for o in found if o.startswith("axis ") and o[-1].isdigit()}
        return axes

    def list_divided(self, tile: str, axis: int) -> Iterator[ast.expr]:
        """What the text says is divided into such tiles along an axis: by `cdiv`, by a bound, by a view's shape."""
        lanes = f"[{tile}]"
        for node in self._nodes:
            match node:
                case ast.Call(args=[size, ast.Name(id=name)]) if name == tile and _name_of(node) in DIVISIONS:
                    yield size
                case (
                    ast.Compare(left=index, ops=[ast.Lt()], comparators=[size])
                    | ast.BinOp(left=index, op=ast.Mod(), right=size)
                ):
                    found = self._trace(index)
                    if lanes in found and f"axis {axis}" in found and sum(o.startswith("[") for o in found) == 1:
                        yield size
                case ast.Call() if _name_of(node) in ("tl.make_block_ptr", "tl.make_tensor_descriptor"):
                    named = {k.arg: k.value for k in node.keywords}
                    last = 4 if _name_of(node) == "tl.make_block_ptr" else 3
                    shape = named.get("shape", node.args[1] if len(node.args) > 1 else None)
                    block = named.get("block_shape", node.args[last] if len(node.args) > last else None)
                    if isinstance(shape, (ast.Tuple, ast.List)) and isinstance(block, (ast.Tuple, ast.List)):
                        yield from (s for s, b in zip(shape.elts, block.elts) if ast.unparse(b) == tile)

    def is_order(self, tile: str) -> bool:
        """Whether a number says only in which order programs take the tiles: a group of rows, cut short at the end."""
        calls = [n for n in self._nodes if isinstance(n, ast.Call) and tile in map(ast.unparse, n.args)]
        names = {_name_of(n) for n in calls}
        return "GROUP" in tile.upper() and "tl.arange" not in names and bool(names & {*LEAST, "tl.swizzle2d"})

    def is_step(self, tile: str) -> bool:
        """True if each use of the constexpr is a loop's step, a range's length, a block's shape, or follows that loop.

        At least one loop must have it as its step, or run over `cdiv(size, tile)`.
        """
        uses = [n for n in self._nodes if isinstance(n, ast.Name) and n.id == tile]
        kinds = [self._kind_of_use(use) for use in uses]
        return all(kinds) and "step" in kinds

    def _kind_of_use(self, use: ast.Name) -> str:
        """`step`, `shape`, or nothing for any other use."""
        parent = self._above[use]
        around = self._above[parent]
        if isinstance(parent, ast.Call):
            called, place = _name_of(parent), parent.args.index(use) if use in parent.args else None
            if called in LOOPS and place == 2:
                return "step"
            if called in DIVISIONS and place == 1:
                rounds = isinstance(around, ast.BinOp) and _find_rounding(around) == use.id
                return "step" if self._counts_loops(parent) else "shape" * rounds
            return "shape" if (called == "tl.arange" or called in HINTS) and place == 1 else ""
        if isinstance(parent, (ast.List, ast.Tuple)):
            return "shape" if isinstance(around, (ast.Call, ast.keyword)) else ""
        if isinstance(parent, ast.AugAssign) and isinstance(parent.op, ast.Add):
            return "shape" if self._is_in_loop(use) else ""
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult):
            other = parent.right if parent.left is use else parent.left
            counters = {n.target.id for n in self._nodes if isinstance(n, ast.For) and isinstance(n.target, ast.Name)}
            counts = isinstance(other, ast.Name) and other.id in counters
            moves = isinstance(around, ast.AugAssign) and isinstance(around.op, ast.Add) and self._is_in_loop(use)
            plain = isinstance(other, ast.Name) and self._trace(other) <= self._params
            return "shape" if counts or (moves and plain) or _find_rounding(parent) == use.id else ""
        return ""

    def _counts_loops(self, count: ast.Call) -> bool:
        """Whether a number of tiles is the end of loops and nothing else."""
        holder = self._above[count]
        if isinstance(holder, ast.Assign) and isinstance(holder.targets[0], ast.Name):
            name = holder.targets[0].id
            users = [self._above[n] for n in self._nodes if isinstance(n, ast.Name) and n.id == name]
            return all(u is holder or (isinstance(u, ast.Call) and _name_of(u) in LOOPS) for u in users)
        return isinstance(holder, ast.Call) and _name_of(holder) in LOOPS

    def _is_in_loop(self, use: ast.Name) -> bool:
        """Whether the innermost loop around steps by the tile."""
        node: ast.AST = use
        while node in self._above and not isinstance(node, (ast.For, ast.While)):
            node = self._above[node]
        steps = ast.walk(node.iter) if isinstance(node, ast.For) else ()
        return any(isinstance(n, ast.Name) and use.id in (n.id, *self._trace(n)) for n in steps)


def _list_assigned(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The names that a statement assigns, each with its value, or with the loop's range."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            yield from ((n.id, v) for n, v in zip(names, values, strict=True) if isinstance(n, ast.Name))
        case ast.Assign(targets=targets, value=value):
            yield from ((n.id, value) for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
        case ast.AugAssign(target=ast.Name(id=name), value=value) | ast.For(target=ast.Name(id=name), iter=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value


def _name_of(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(k.value for k in call.keywords)]


def _find_rounding(node: ast.BinOp) -> str:
    """The tile to whose multiples `cdiv(size, tile) * tile` or `(size + tile - 1) // tile * tile` rounds up."""
    match node:
        case ast.BinOp(left=ast.Call(args=[_, ast.Name(id=a)]) as call, op=ast.Mult(), right=ast.Name(id=b)):
            return a if a == b and _name_of(call) in DIVISIONS else ""
        case ast.BinOp(
            left=ast.BinOp(left=size, op=ast.FloorDiv(), right=ast.Name(id=a)), op=ast.Mult(), right=ast.Name(id=b)
        ):
            return a if a == b and any(isinstance(n, ast.Name) and n.id == a for n in ast.walk(size)) else ""
    return ""
