"""Masks `offsets < size`: under which condition on the launch each is always true."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import factors, stripped, terms
from kernelsearch.propose.analysis.view import View


def comparisons(view: View) -> list[ast.Compare]:
    """Comparisons `block < size` of offsets with a scalar, in source order."""
    found = [
        n
        for n in ast.walk(view.node)
        if isinstance(n, ast.Compare) and len(n.ops) == 1 and isinstance(n.ops[0], ast.Lt) and view.shapes.of(n)
    ]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def always_true_when(view: View, node: ast.Compare) -> str | None:
    """A condition, as a launch-spec expression, under which the comparison holds for every lane of every program.

    None when there is none to be found: the offsets are not `arange` plus a loop's start or a program's start.
    """
    stmt = view.flow.at(node)
    left = terms(stripped(view.flow.expand(node.left, stmt)))
    right = terms(stripped(view.flow.expand(node.comparators[0], stmt)))
    moved = left + [(-s, t) for s, t in right]
    sizes = [t for s, t in moved if s < 0]
    lanes = [t for s, t in moved if s > 0 and tree.is_tl(t, "arange")]
    starts = [t for s, t in moved if s > 0 and not tree.is_tl(t, "arange")]
    starts = [t for t in starts if not tree.is_number(t, 0)]
    if len(sizes) != 1 or len(lanes) != 1 or len(starts) > 1:
        # `size - k * BLOCK` on the right leaves a start on the left: that is covered by the signs above.
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
    divides = f"{size} % ({width}) == 0" if not width.isidentifier() else f"{size} % {width} == 0"
    if isinstance(start, ast.Name):
        return divides if _walks(view, stmt, start.id, size, width) else None
    parts = factors(start)
    if len(parts) != 2:
        return None
    one = next((p for p in parts if tree.text_of(p) != width), parts[1])
    if width not in [tree.text_of(p) for p in parts]:
        return None
    if tree.is_tl(one, "program_id"):
        axis = tree.argument(one, 0, "axis")  # type: ignore[arg-type]
        if not isinstance(axis, ast.Constant):
            return None
        return _at_most(view.grid[axis.value], width, size)  # type: ignore[index]
    if isinstance(one, ast.Name):
        return _program(view, stmt, one.id, width, size)
    return None


def _at_most(programs: str, width: str, size: str) -> str:
    count = programs if tree.parenthesised(programs) == programs else f"({programs})"
    return f"{count} * {width} <= {size}"


def _loop_of(view: View, stmt: ast.stmt, name: str) -> ast.For | None:
    for loop in reversed(view.flow.loops_of(stmt)):
        if isinstance(loop.target, ast.Name) and loop.target.id == name:
            return None if name in tree.writes(loop.body) else loop
    return None


def _walks(view: View, stmt: ast.stmt, name: str, size: str, width: str) -> bool:
    """Whether name is the variable of a loop over the size in steps of the width, from a multiple of it."""
    loop = _loop_of(view, stmt, name)
    bounds = tree.range_of(loop) if loop is not None else None
    if bounds is None or loop is None:
        return False
    first, stop, step = (view.flow.expand(b, loop) for b in bounds)
    if tree.text_of(step) != width:
        return False
    return is_multiple(first, width) and _within(stop, size)


def is_multiple(node: ast.expr, width: str) -> bool:
    """Whether an expression is a multiple of the width, as its text shows."""
    if tree.is_number(node, 0):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return is_multiple(node.left, width) and is_multiple(node.right, width)
    return width in [tree.text_of(f) for f in factors(node)]


def _within(stop: ast.expr, size: str) -> bool:
    if isinstance(stop, ast.Name):
        return stop.id == size
    return tree.is_tl(stop, "minimum") and any(_within(a, size) for a in stop.args)  # type: ignore[attr-defined]


def _program(view: View, stmt: ast.stmt, name: str, width: str, size: str) -> str | None:
    """The condition for `name * width` where name is a loop's variable: over tiles of the size, or over programs."""
    loop = _loop_of(view, stmt, name)
    bounds = tree.range_of(loop) if loop is not None else None
    if bounds is None or loop is None:
        return None
    stop = view.flow.expand(bounds[1], loop)
    if tree.is_tl(stop, "minimum"):
        inner = [a for a in stop.args if isinstance(a, ast.Name)]  # type: ignore[attr-defined]
        stop = inner[0] if inner else stop
    if tree.is_tl(stop, "cdiv") or tree.called(stop) == "triton.cdiv":
        same = [tree.text_of(a) for a in stop.args] == [size, width]  # type: ignore[attr-defined]
        return f"{size} % {width} == 0" if same else None
    count = view.kernel.args.get(view.function.name, {}).get(tree.text_of(stop))
    return _at_most(count, width, size) if count is not None else None
