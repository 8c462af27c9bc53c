"""What a kernel does with its constexprs, from its text: loops that step by them, axes of the grid that they divide."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from kernelsearch.core.parsing import parse_python
from kernelsearch.kernel.source import Function

LOOPS = ("range", "tl.range", "tl.static_range")
DIVISIONS = ("tl.cdiv", "triton.cdiv")
LEAST = ("min", "max", "tl.minimum", "tl.maximum")
DATA = "data"
"""The origin of what a kernel loads."""


class TileUses:
    """The uses of a function's constexprs.

    An origin of a value is a name that it is computed from: a parameter, `data`, `axis 0` for the program's place
    there, `[BLOCK]` for the lanes of `tl.arange(0, BLOCK)`. A size that is rounded up to a whole number of tiles has
    not the tile as an origin: it covers the same.
    """

    def __init__(self, function: Function) -> None:
        (tree,) = parse_python(function.text).body
        self._nodes = list(ast.walk(tree))
        self._above = {child: node for node in self._nodes for child in ast.iter_child_nodes(node)}
        self._loops = [n for n in self._nodes if isinstance(n, ast.For)]
        self._counters = {ast.unparse(loop.target) for loop in self._loops}
        self._params = {*function.params}

    @cached_property
    def _origins(self) -> dict[str, frozenset[str]]:
        """The origins of each name."""
        known, assigned = {name: frozenset([name]) for name in self._params}, list(map(_list_assigned, self._nodes))
        while True:
            new = dict(known)
            for target, value in (pair for pairs in assigned for pair in pairs):
                new[target] = new.get(target, frozenset()) | self._trace(value, new)
            if new == known:
                return known
            known = new

    def _trace(self, node: ast.AST, known: dict[str, frozenset[str]] | None = None) -> frozenset[str]:
        """The origins of an expression; those of a loop's counter are those of its start."""
        known = self._origins if known is None else known
        inner = [*ast.iter_child_nodes(node)]
        match node:
            case ast.Name(id=name):
                return known.get(name, frozenset())
            case ast.Compare():
                return frozenset()
            case ast.BinOp(left=size) if tile := _find_rounding(node):
                return self._trace(size, known) - {tile}
            case ast.Call(args=[_, ast.Name(id=name)]) if _name_of(node) == "tl.arange":
                return frozenset([name, f"[{name}]"])
            case ast.Call(args=args):
                called = _name_of(node)
                if called == "tl.program_id":
                    return frozenset([f"axis {ast.unparse(_arguments(node)[0])}"])
                if called.endswith(".load") or called in ("tl.zeros", "tl.full"):
                    return frozenset([DATA])
                if called in LOOPS:  # one over all programs of the grid begins anywhere
                    inner = [*args[:1]] if len(args) > 1 and "num_programs" not in ast.unparse(node) else []
        return frozenset().union(*(self._trace(part, known) for part in inner))

    def list_axes(self, tile: str) -> set[int] | None:
        """The axes of the grid whose places are multiplied or divided by a tile; None where data are: it is a size.

        -1 stands for an axis that is no number in the text.
        """
        axes: set[int] = set()
        for node in self._nodes:
            match node:
                case ast.BinOp(op=ast.Mult() | ast.FloorDiv() | ast.Mod()) if _find_rounding(node) != tile:
                    parts = [(node.left, node.right), (node.right, node.left)]
                    pairs = parts if isinstance(node.op, ast.Mult) else parts[:1]
                case ast.Call() if _name_of(node) not in (*LOOPS, *LEAST) and "." not in _name_of(node):
                    pairs = [(a, b) for a in _arguments(node) for b in _arguments(node) if a is not b]
                case _:
                    continue
            for place, by in (pair for pair in pairs if tile in self._trace(pair[1])):
                found = self._trace(place)
                if DATA in found and ast.unparse(by) == tile and isinstance(node, ast.BinOp):
                    return None
                axes |= {int(o[5:]) if o[5:].isdigit() else -1 for o in found if o.startswith("axis ")}
        return axes

    def list_divided(self, tile: str, axis: int) -> Iterator[str]:
        """What the text says is divided into such tiles along an axis: by a division, a bound, the shape of a view."""
        for node in self._nodes:
            match node:
                case ast.Call(args=[size, ast.Name(id=name)]) if name == tile and _name_of(node) in DIVISIONS:
                    yield ast.unparse(size)
                case ast.BinOp(left=size, op=ast.FloorDiv(), right=ast.Name(id=name)) if name == tile:
                    yield ast.unparse(size)
                case (
                    ast.Compare(left=index, ops=[ast.Lt()], comparators=[size])
                    | ast.BinOp(left=index, op=ast.Mod(), right=size)
                ):
                    found = {o for o in self._trace(index) if o[0] == "["}, f"axis {axis}" in self._trace(index)
                    if found == ({f"[{tile}]"}, True):
                        yield ast.unparse(size)
                case ast.Call(args=[_, shape, _, *rest]) if _name_of(node).startswith("tl.make_"):
                    block = {k.arg: k.value for k in node.keywords}.get("block_shape", rest[-2:][0] if rest else None)
                    pairs = zip(getattr(shape, "elts", ()), getattr(block, "elts", ()), strict=False)
                    yield from (ast.unparse(size) for size, part in pairs if ast.unparse(part) == tile)

    def is_tile(self, name: str) -> bool:
        """Whether a constexpr of any name is a tile: loops step by it, or a size is divided by it along its axes."""
        axes = self.list_axes(name) or set()
        return self.is_step(name) or (bool(axes) and all(any(self.list_divided(name, axis)) for axis in axes))

    def is_order(self, tile: str) -> bool:
        """Whether a number says only in which order programs take the tiles: a group of rows, cut short at the end."""
        calls = {_name_of(n) for n in self._nodes if isinstance(n, ast.Call) and tile in map(ast.unparse, n.args)}
        return "GROUP" in tile.upper() and "tl.arange" not in calls and bool(calls & {*LEAST, "tl.swizzle2d"})

    def is_step(self, tile: str) -> bool:
        """True if loops run in steps of the constexpr, and each use is theirs, a block's shape, or a rounded size."""
        ranges = [(loop, _arguments(loop.iter)) for loop in self._loops if isinstance(loop.iter, ast.Call)]
        loops = [loop for loop, args in ranges if any(tile in self._trace(end) for end in args)]
        uses = [n for n in self._nodes if isinstance(n, ast.Name) and n.id == tile]
        return bool(loops) and self.list_axes(tile) == set() and all(self._follows(use, loops) for use in uses)

    def _follows(self, use: ast.Name, loops: list[ast.For]) -> bool:
        """Whether a use changes with the steps of these loops and means nothing else."""
        parent, inside = self._above[use], any(use in ast.walk(loop) for loop in loops)
        around = self._above[parent]
        match parent:
            case ast.Call(args=[_, _, step]) if step is use:
                return _name_of(parent) in LOOPS
            case ast.Call(args=[_, tile]) if tile is use:
                return _name_of(parent) in ("tl.arange", "tl.multiple_of", "tl.max_contiguous", *DIVISIONS)
            case ast.List() | ast.Tuple():
                return isinstance(around, (ast.Call, ast.keyword))
            case ast.AugAssign(op=ast.Add()):
                return inside
            case ast.BinOp(op=ast.Mult()):
                other = parent.right if parent.left is use else parent.left
                moves = inside and isinstance(around, ast.AugAssign) and self._trace(other) <= self._params
                return moves or _find_rounding(parent) == use.id or ast.unparse(other) in self._counters
        return False


def _list_assigned(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """The names that a statement assigns, each with its value, or with the loop's range."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            return [(ast.unparse(n), v) for n, v in zip(names, values, strict=False)]
        case ast.Assign(targets=targets, value=value):
            return [(n.id, value) for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        case ast.AugAssign(target=ast.Name(id=name), value=value) | ast.For(target=ast.Name(id=name), iter=value):
            return [(name, value)]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return [(name, value)]
    return []


def _name_of(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(k.value for k in call.keywords)]


def _find_rounding(node: ast.AST) -> str:
    """The tile to whose multiples `cdiv(size, tile) * tile` or `(size + tile - 1) // tile * tile` rounds up."""
    match node:
        case ast.BinOp(left=ast.Call(args=[_, ast.Name(id=a)]) as call, op=ast.Mult(), right=ast.Name(id=b)) if a == b:
            return a * (_name_of(call) in DIVISIONS)
        case ast.BinOp(ast.BinOp(size, ast.FloorDiv(), ast.Name(id=a)), ast.Mult(), ast.Name(id=b)) if a == b:
            return a * any(isinstance(n, ast.Name) and n.id == a for n in ast.walk(size))
    return ""
