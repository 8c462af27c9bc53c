"""Masks such as `offsets < size`, and the condition on the launch, or in a program, under which each is always true."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import factors, strip_axes, terms
from kernelsearch.propose.analysis.view import View


def comparisons(view: View) -> list[ast.Compare]:
    """Comparisons `block < size` of offsets with a scalar, in source order, except those in `comparison | EVEN`."""
    nodes = list(ast.walk(view.node))
    guarded = {n.left for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.BitOr)}
    less = (n for n in nodes if isinstance(n, ast.Compare) and len(n.ops) == 1 and isinstance(n.ops[0], ast.Lt))
    blocks = (n for n in less if view.shapes.of(n) and n not in guarded)
    return sorted(blocks, key=lambda n: (n.lineno, n.col_offset))


def find_true_condition(view: View, node: ast.Compare) -> str | None:
    """A condition, as a launch-spec expression, under which the comparison holds for every lane of every program.

    None if there is no such condition: the offsets are not `arange` plus the start of a loop or of a program.
    """
    stmt = view.flow.at(node)
    left = terms(strip_axes(view.flow.expand(node.left, stmt)))
    right = terms(strip_axes(view.flow.expand(node.comparators[0], stmt)))
    moved = left + [(-s, t) for s, t in right]  # `size - k * BLOCK` on the right becomes a start on the left
    sizes = [t for s, t in moved if s < 0]
    lanes = [t for s, t in moved if s > 0 and tree.is_tl(t, "arange")]
    starts = [t for s, t in moved if s > 0 and not tree.is_tl(t, "arange") and not tree.is_number(t, 0)]
    if len(sizes) != 1 or len(lanes) != 1 or len(starts) > 1:
        return None
    size, lane = sizes[0], lanes[0]
    assert isinstance(lane, ast.Call)
    if not (isinstance(size, ast.Name) and size.id in view.function.params and tree.is_number(lane.args[0], 0)):
        return None
    if size.id in tree.writes(view.body):
        return None
    width = tree.text_of(lane.args[1])
    if not tree.reads(lane.args[1]) <= set(view.function.constexprs):
        return None
    if not starts:
        return f"{size.id} >= {width}"
    return _start(view, stmt, starts[0], size.id, width)


def _start(view: View, stmt: ast.stmt, start: ast.expr, size: str, width: str) -> str | None:
    """The condition for lanes from start to start + width, where start is a loop's variable or `number * width`."""
    if isinstance(start, ast.Name):
        bounds = _loop_of(view, stmt, start.id)
        if bounds is None or tree.text_of(bounds[2]) != width:
            return None
        if not is_multiple(bounds[0], width) or not _within(bounds[1], size):
            return None
        return f"{size} % {width if width.isidentifier() else f'({width})'} == 0"
    parts = factors(start)
    if len(parts) != 2 or width not in map(tree.text_of, parts):
        return None
    number = next((p for p in parts if tree.text_of(p) != width), parts[1])
    if tree.is_tl(number, "program_id"):
        axis = tree.program_axis(number)
        return None if axis is None else _at_most(view.grid[axis], width, size)
    return _number(view, stmt, number.id, width, size) if isinstance(number, ast.Name) else None


def _at_most(programs: str, width: str, size: str) -> str:
    return f"{tree.parenthesise(programs)} * {width} <= {size}"


def _loop_of(view: View, stmt: ast.stmt, name: str) -> tuple[ast.expr, ast.expr, ast.expr] | None:
    """The expanded range of the loop around stmt whose variable is name; None if its body assigns the name too."""
    for loop in reversed(view.flow.loops_of(stmt)):
        if isinstance(loop.target, ast.Name) and loop.target.id == name:
            bounds = tree.range_of(loop)
            if bounds is None or name in tree.writes(loop.body):
                return None
            return tuple(view.flow.expand(b, loop) for b in bounds)  # type: ignore[return-value]
    return None


def is_multiple(node: ast.expr, width: str) -> bool:
    """Whether the text of an expression shows that it is a multiple of the width."""
    if tree.is_number(node, 0):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return is_multiple(node.left, width) and is_multiple(node.right, width)
    return width in [tree.text_of(f) for f in factors(node)]


def _within(stop: ast.expr, size: str) -> bool:
    if isinstance(stop, ast.Name):
        return stop.id == size
    return tree.is_tl(stop, "minimum") and any(_within(a, size) for a in stop.args)


def _number(view: View, stmt: ast.stmt, name: str, width: str, size: str) -> str | None:
    """The condition for `name * width` where name is a loop's variable: over tiles of the size, or over programs."""
    bounds = _loop_of(view, stmt, name)
    if bounds is None:
        return None
    stop = bounds[1]
    if tree.is_tl(stop, "minimum"):
        stop = next((a for a in stop.args if isinstance(a, ast.Name)), stop)
    if tree.callee(stop) in ("tl.cdiv", "tl.math.cdiv", "triton.cdiv"):
        same = [tree.text_of(a) for a in stop.args] == [size, width]  # type: ignore[attr-defined]
        return f"{size} % {width} == 0" if same else None
    count = view.kernel.args.get(view.function.name, {}).get(tree.text_of(stop))
    return _at_most(count, width, size) if count is not None else None


@dataclass(frozen=True)
class Inequality:
    """`terms op apart` of integers of a program, where terms are texts with their factors and op is <= or >=."""

    terms: tuple[tuple[str, int], ...]
    op: str
    apart: int

    def __str__(self) -> str:
        left, right = (
            " + ".join(f"{abs(n)} * {t}" if abs(n) > 1 else t for t, n in self.terms if n * s > 0) for s in (1, -1)
        )
        if right and self.apart:
            right += f" {'+' if self.apart > 0 else '-'} {abs(self.apart)}"
        return f"{left or 0} {self.op} {right or self.apart}"


def find_inner_condition(view: View, node: ast.Compare, known: set[str]) -> Inequality | None:
    """What makes a comparison of a program's tiles true for every lane, in known scalars.

    None if a side is not made of lanes, program ids, arguments and numbers by sums.
    """
    (op,), stmt = node.ops, view.flow.at(node)
    if not isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
        return None
    less, more = isinstance(op, (ast.Lt, ast.LtE)), {ast.Lt: -1, ast.Gt: 1}.get(type(op), 0)
    left = _find_end(view, node.left, stmt, known, less)
    right = _find_end(view, node.comparators[0], stmt, known, not less)
    apart = _add(left, right, -1)
    if apart is None:
        return None
    terms_left = tuple((t, n) for t, n in apart.items() if t and n)
    return Inequality(terms_left, "<=" if less else ">=", more - apart.get("", 0))


def _find_end(view: View, node: ast.expr, stmt: ast.stmt, known: set[str], highest: bool) -> dict[str, int] | None:
    """The highest or the lowest element of a tile, as terms with their factors; None if it is not known."""

    def find(n: ast.expr, high: bool = highest) -> dict[str, int] | None:
        return _find_end(view, n, stmt, known, high)

    match node := strip_axes(node):
        case ast.Constant(int(number)):
            return {"": number}
        case ast.Name(name) if not _is_scalar(view, node, known):
            definition = view.flow.steady_value(name, stmt)
            return _find_end(view, *definition, known, highest) if definition else None
        case ast.UnaryOp(ast.USub(), inner):
            return _add({}, find(inner, not highest), -1)
        case ast.BinOp(left, ast.Add() | ast.Sub() as op, right):
            plus = isinstance(op, ast.Add)
            return _add(find(left), find(right, highest == plus), 1 if plus else -1)
        case ast.BinOp(ast.Constant(int(factor)), ast.Mult(), side) | ast.BinOp(
            side, ast.Mult(), ast.Constant(int(factor))
        ):
            return _add({}, find(side, highest == (factor > 0)), factor)
        case ast.Call(args=[low, high]) if tree.is_tl(node, "arange"):
            return _add(find(high), {"": 1}, -1) if highest else find(low)
        case ast.Call(args=[_, inner, *_]) if tree.is_tl(node, "full"):
            return find(inner)
        case ast.Call(args=[inner, *_]) if tree.is_tl(node, "cast", "broadcast_to"):
            return find(inner)
        case ast.Call(ast.Attribute(inner, "to"), [ast.Attribute(ast.Name("tl"), "int32" | "int64")]):
            return find(inner)
    return {tree.parenthesise(tree.text_of(node)): 1} if _is_scalar(view, node, known) else None


def _is_scalar(view: View, node: ast.expr, known: set[str]) -> bool:
    """Whether an expression is made of known scalars and program ids."""
    calls = (n for n in ast.walk(node) if isinstance(n, ast.Call))
    return all(n in known and view.shapes.names.get(n) == () for n in tree.reads(node)) and all(
        tree.is_tl(c, "program_id", "num_programs", "cdiv", "minimum", "maximum") for c in calls
    )


def _add(left: dict[str, int] | None, right: dict[str, int] | None, factor: int) -> dict[str, int] | None:
    """A sum of terms with so many times another."""
    if left is None or right is None:
        return None
    return {t: left.get(t, 0) + factor * right.get(t, 0) for t in {**left, **right}}


def is_never_negative(view: View, value: ast.expr, stmt: ast.stmt) -> bool:
    """Whether all elements of what a statement computes are known to be 0 or more.

    It is made of programs, sizes of blocks, numbers, and what loops count from 0.
    """
    sizes = {tree.text_of(c.args[1]) for c in tree.calls(view.node, "arange")} & set(view.function.constexprs)
    bounds = {tree.text_of(loop.target): tree.range_of(loop) for loop in view.flow.loops_of(stmt)}
    counted = {name for name, bound in bounds.items() if bound and tree.is_number(bound[0], 0)}
    todo: list[ast.AST] = [view.flow.expand(value, stmt)]
    while todo:
        match node := todo.pop():
            case ast.BinOp(left, ast.Add() | ast.Mult() | ast.FloorDiv() | ast.Mod(), right):
                todo += [left, right]
            case ast.Subscript(inner, _):
                todo.append(inner)
            case ast.Call() if tree.is_tl(node, "arange"):
                todo.append(node.args[0])
            case ast.Call() if tree.is_tl(node, "program_id", "num_programs"):
                pass
            case ast.Constant(int(number)) if number >= 0:
                pass
            case ast.Name(name) if name in sizes | counted:
                pass
            case _:
                return False
    return True
