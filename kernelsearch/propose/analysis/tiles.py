"""Accesses to a tile of a matrix, read back from pointer arithmetic: its base, and where it lies along each axis."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import factors, strip_hints, terms
from kernelsearch.propose.analysis.view import NotApplicable, View, refuse_if


@dataclass(frozen=True)
class TileAxis:
    """One axis of a tile: the elements from origin to origin + width of a matrix's axis; those below size exist.

    All are scalar expressions as text. index is the whole range, for comparison; stride is in elements, "1" if the
    address has none.
    """

    index: str
    origin: str
    width: str
    stride: str
    size: str


@dataclass(frozen=True)
class Tile:
    """A load or store of pointer + offset + a range along each of two axes; offset is "" or a scalar expression."""

    call: ast.Call
    stmt: ast.stmt
    pointer: str
    offset: str
    axes: tuple[TileAxis, TileAxis]

    @property
    def ingredients(self) -> frozenset[str]:
        """Names that describe the matrix, but not the tile's position in it."""
        texts = [self.offset or "0", *(t for a in self.axes for t in (a.width, a.stride, a.size))]
        return frozenset({self.pointer}.union(*(tree.reads(tree.expression(t)) for t in texts)))


def tile_of(view: View, call: ast.Call) -> Tile:
    """The tile that a `tl.load` or `tl.store` accesses. Raises NotApplicable if it is no bounded tile of two axes."""
    stmt = view.flow.at(call)
    pointer, offset, indices = "", [], {}
    for at, (sign, term) in enumerate(terms(expand_blocks(view, call.args[0], stmt))):
        if at == 0 and isinstance(term, ast.Name) and term.id in set(view.function.params) - tree.writes(view.body):
            pointer = term.id
        elif not tree.calls(term, "arange"):
            offset.append((sign, term))
        else:
            axis, index, stride = _range(view, sign, term)
            refuse_if(axis in indices, "an address has two ranges along one axis")
            indices[axis] = (index, stride)
    if not pointer or set(indices) != {0, 1}:
        raise NotApplicable("an address is not a pointer argument plus a range along each of two axes")
    bounds = _bounds(view, call, stmt)
    axes = []
    for axis, (index, stride) in sorted(indices.items()):
        inside, modulus = _wrapped(index)
        origin, width = _begin(inside)
        known = modulus or (width if origin == "0" else _find_end(view, call, origin, width))
        size = bounds.pop((axis, tree.text_of(index)), known)
        if size is None:
            raise NotApplicable("a range along an axis has no bound")
        axes.append(TileAxis(tree.text_of(index), origin, width, stride, size))
    refuse_if(bounds, "a mask says more than where the matrix ends")
    return Tile(call, stmt, pointer, write_sum(offset), (axes[0], axes[1]))


def _find_end(view: View, call: ast.Call, origin: str, width: str) -> str | None:
    """Where a range ends that a loop moves on by its width: where the loop does, if its turns are whole, as without a
    mask they must be."""
    for loop in view.flow.loops_of(call):
        bounds = tree.range_of(loop)
        if bounds and tree.text_of(loop.target) == origin and tree.text_of(bounds[2]) == width:
            return tree.text_of(bounds[1])
    return None


def find_operand(view: View, node: ast.expr, stmt: ast.stmt) -> Tile:
    """The tile that an operand of a dot is, with its axes as the dot takes them."""
    known = view.flow.value(node.id, stmt) if isinstance(node, ast.Name) else None
    if known:
        return find_operand(view, *known)
    match node:
        case ast.Attribute(inner, "T"):
            return _flip(find_operand(view, inner, stmt))
        case ast.Call(args=[inner]) if tree.is_tl(node, "trans"):
            return _flip(find_operand(view, inner, stmt))
        case ast.Call() if tree.is_tl(node, "load"):
            other = tree.argument(node, 2, "other")
            if other is None or tree.is_number(other, 0):
                return tile_of(view, node)
    raise NotApplicable("an operand of its dot is not a tile as it was loaded")


def _flip(tile: Tile) -> Tile:
    first, last = tile.axes
    return Tile(tile.call, tile.stmt, tile.pointer, tile.offset, (last, first))


def find_unit_axis(view: View, tile: Tile) -> int:
    """The axis whose stride is 1: in the address, else in the launches that were seen, else the last."""
    strides = [axis.stride for axis in tile.axes]
    passed = [{launch.args[stride] for launch in view.launches if stride in launch.args} for stride in strides]
    by_address = [axis for axis in (1, 0) if strides[axis] == "1"]
    by_launch = [axis for axis in (1, 0) if passed[axis] == {1}]
    return [*by_address, *by_launch, 1][0]


def expand_blocks(view: View, node: ast.expr, stmt: ast.stmt) -> ast.expr:
    """The expression with the names of blocks replaced by their values; scalars keep their names."""
    known: dict[str, ast.expr] = {}
    for name in tree.reads(node):
        if view.shapes.names.get(name):
            if (definition := view.flow.steady_value(name, stmt)) is None:
                raise NotApplicable(f"the value of {name} is not known where it is used")
            known[name] = expand_blocks(view, *definition)
    return tree.substitute(node, known) if known else node


def _range(view: View, sign: int, term: ast.expr) -> tuple[int, ast.expr, str]:
    """The axis, the range and the stride of one term of an address."""
    ranges = [f for f in factors(term) if tree.calls(f, "arange")]
    strides = [f for f in factors(term) if not tree.calls(f, "arange")]
    refuse_if(sign != 1 or len(ranges) != 1 or len(strides) > 1, "an address is not a sum of ranges times strides")
    refuse_if(strides and not isinstance(strides[0], (ast.Name, ast.Constant)), "a stride is not a name or a number")
    axis, index = _placed(ranges[0])
    return axis, index, tree.text_of(strides[0]) if strides else "1"


def _placed(node: ast.expr) -> tuple[int, ast.expr]:
    """The axis and the range in `range[:, None]` or `range[None, :]`."""
    node = strip_hints(node)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
        new = [isinstance(e, ast.Constant) and e.value is None for e in node.slice.elts]
        if sum(new) == 1:
            return new.index(False), strip_hints(node.value)
    raise NotApplicable("a range is not laid along one of two axes")


def _wrapped(index: ast.expr) -> tuple[ast.expr, str | None]:
    """The range and the size in `range % size`, which wraps around to stay inside a matrix; else index and None.

    As a tile it ends at the size instead. In both cases a kernel must not use the elements past the size; the referee
    sees whether it does.
    """
    if isinstance(index, ast.BinOp) and isinstance(index.op, ast.Mod) and not tree.calls(index.right, "arange"):
        return index.left, tree.text_of(index.right)
    return index, None


def _begin(index: ast.expr) -> tuple[str, str]:
    """The start and the width of a range `start + tl.arange(0, width)`."""
    ranges = [(sign, strip_hints(t)) for sign, t in terms(index) if tree.calls(t, "arange")]
    rest = [(sign, t) for sign, t in terms(index) if not tree.calls(t, "arange")]
    match ranges:
        case [(1, ast.Call(args=[zero, width]) as call)] if tree.is_tl(call, "arange") and tree.is_number(zero, 0):
            return write_sum(rest) or "0", tree.text_of(width)
    raise NotApplicable("a range is not a start plus tl.arange")


def write_sum(parts: list[tuple[int, ast.expr]]) -> str:
    """The text of a sum of signed terms; empty if there are none."""
    text = ""
    for sign, term in parts:
        text += f" + {tree.text_of(term)}" if sign == 1 else f" - {tree.parenthesise(tree.text_of(term))}"
    return text.removeprefix(" + ").strip()


def _bounds(view: View, call: ast.Call, stmt: ast.stmt) -> dict[tuple[int, str], str]:
    """The bound of each range of the mask, by axis and range."""
    mask = tree.mask_of(call)
    bounds: dict[tuple[int, str], str] = {}
    whole = without_flags(view, expand_blocks(view, mask, stmt)) if mask is not None else None
    for part in tree.conjuncts(whole) if whole else ():
        if not (isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Lt)):
            raise NotApplicable("a mask is more than ranges below bounds")
        axis, index = _placed(part.left)
        key, bound = (axis, tree.text_of(index)), part.comparators[0]
        refuse_if(tree.calls(bound, "arange") or key in bounds, "a mask is more than ranges below bounds")
        bounds[key] = tree.text_of(bound)
    return bounds


def without_flags(view: View, node: ast.expr) -> ast.expr:
    """The expression with `comparison | EVEN` as the comparison, which holds where EVEN is true (`drop_mask`)."""
    flags = view.kernel.args.get(view.function.name, {})

    def rule(n: ast.AST) -> ast.AST | None:
        match n:
            case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Name(id=name)) if name in flags:
                return left
        return None

    return tree.transform(copy.deepcopy(node), rule)
