"""Loops in the form that the edits know: `for start in range(0, size, TILE)`, and one name for loops over one range.

    i = 0
    while i < size:            for j in range(0, tl.cdiv(size, TILE)):
        ...                        ... j * TILE ...                       ->     for start in range(0, size, TILE): ...
        i += TILE

Each function takes and gives the text of a jit function; it gives None where it changes nothing.
"""

from __future__ import annotations

import ast
from itertools import pairwise

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import find_effects
from kernelsearch.propose.analysis.flow import find_unbound


def count_while_loops(text: str) -> str | None:
    """`while i < size` loops that add a step to i in their last statement, as loops over a range."""
    patch = tree.Patch(text)
    for block in tree.blocks(tree.strip_docstrings(patch.node.body)):
        for place, loop in enumerate(block):
            match loop:
                case ast.While(test=ast.Compare(left=ast.Name(id=name), ops=[ast.Lt()], comparators=[stop]), orelse=[]):
                    step = _step(loop, name)
                    start = _start(block[:place], name)
                    if step is None or start is None or name in find_unbound(block[place + 1 :]):
                        continue
                    moves = tree.reads([stop, step]) & tree.writes(loop.body)
                    if moves or any(hasattr(s, "body") for s in loop.body) or find_effects([start.value, stop, step]):
                        continue
                    bounds = [tree.text_of(e) for e in (start.value, stop, step)]
                    head = f"for {name} in range({', '.join(bounds)})"
                    patch.replace_stmt(start, "")
                    patch.replace_stmt(loop, tree.text_of(tree.make_loop(head, loop.body[:-1])) + "\n")
    return None if patch.is_empty else patch.text()


def _step(loop: ast.While, name: str) -> ast.expr | None:
    """What the loop's last statement, and no other, adds to name."""
    pair = tree.assignment(loop.body[-1])
    if len(loop.body) < 2 or pair is None or pair[0] != name or name in tree.writes(loop.body[:-1]):
        return None
    match pair[1]:
        case ast.BinOp(left=ast.Name(id=left), op=ast.Add(), right=step) if left == name:
            return step if name not in tree.reads(step) else None
    return None


def _start(before: list[ast.stmt], name: str) -> ast.Assign | None:
    """The statement that sets the counter, if nothing reads or changes it, or what it is made of, until the loop."""
    stmt = next((s for s in reversed(before) if name in tree.reads(s) | tree.writes(s)), None)
    if not isinstance(stmt, ast.Assign) or not tree.assignment(stmt) or name in tree.reads(stmt.value):
        return None
    return None if tree.reads(stmt.value) & tree.writes(before[before.index(stmt) + 1 :]) else stmt


def write_counts(text: str) -> str | None:
    """Loops over a number of tiles that has a name, with the `cdiv` that it names."""
    patch = tree.Patch(text)
    body = tree.strip_docstrings(patch.node.body)
    for loop in tree.loops(body):
        bounds = tree.range_of(loop)
        name = bounds[1].id if bounds and isinstance(bounds[1], ast.Name) else ""
        pair = tree.only_assignment(body, name) if name and tree.is_assigned_once(body, name) else None
        if pair is None or tree.reads(pair[1]) & tree.writes(body):
            continue
        counted = tree.with_range(loop, "0", tree.text_of(pair[1]), "1")
        if tiles_of(counted) and tree.text_of(bounds[0]) == "0" and tree.text_of(bounds[2]) == "1":  # type: ignore
            patch.replace_expr(bounds[1], tree.text_of(pair[1]))  # type: ignore[index]
    return None if patch.is_empty else patch.text()


def count_elements(text: str) -> str | None:
    """Loops `for i in range(0, cdiv(size, TILE))` as loops over elements, where their bodies use `i * TILE`."""
    patch = tree.Patch(text)
    body = tree.strip_docstrings(patch.node.body)
    constexprs = tree.find_constexprs(patch.node)
    for block in tree.blocks(body):
        for place, loop in enumerate(block):
            tiles = tiles_of(loop) if isinstance(loop, ast.For) else None
            if tiles is None or tiles[1] not in constexprs or tree.loops(loop.body):  # type: ignore[attr-defined]
                continue
            size, tile = tiles
            counter = loop.target.id  # type: ignore[attr-defined]
            changed = tree.writes(loop.body)  # type: ignore[attr-defined]
            if changed & {counter, *tree.reads(tree.expression(size))} or counter in find_unbound(block[place + 1 :]):
                continue
            new = tree.with_range(loop, "0", size, tile)  # type: ignore[arg-type]
            new.body = [by_element(s, counter, tile) for s in new.body]
            if block is body:
                _name_counter(new, counter, block[place + 1 :])
            if f"{counter} // {tile}" not in tree.text_of(new):
                patch.replace_stmt(loop, tree.text_of(ast.fix_missing_locations(new)) + "\n")
    return None if patch.is_empty else patch.text()


def _name_counter(loop: ast.For, counter: str, later: list[ast.stmt]) -> None:
    """Makes `for start in ...` of a loop whose body only begins with `start = i`."""
    first, *rest = loop.body
    name = tree.text_of(first.targets[0]) if isinstance(first, ast.Assign) else ""
    plain = rest and tree.text_of(first) == f"{name} = {counter}" and counter not in tree.reads(rest)
    if plain and name not in {*tree.writes(rest), *find_unbound(later)}:
        loop.target, loop.body = ast.Name(name, ast.Store()), rest


def tiles_of(loop: ast.For) -> tuple[str, str] | None:
    """The size and the tile in `range(0, cdiv(size, tile))`."""
    bounds = tree.range_of(loop)
    if bounds is None or not (tree.is_number(bounds[0], 0) and tree.is_number(bounds[2], 1)):
        return None
    if tree.callee(loop.iter) == "tl.static_range":
        return None
    match bounds[1]:
        case ast.Call(args=[size, tile]) if tree.callee(bounds[1]) in ("tl.cdiv", "triton.cdiv", "tl.math.cdiv"):
            return tree.text_of(size), tree.text_of(tile)
        case ast.BinOp(
            left=ast.BinOp(
                left=ast.BinOp(left=size, op=ast.Add(), right=one), op=ast.Sub(), right=ast.Constant(value=1)
            ),
            op=ast.FloorDiv(),
            right=tile,
        ) if tree.is_same(one, tile):
            return tree.text_of(size), tree.text_of(tile)
    return None


def by_element(stmt: ast.stmt, counter: str, tile: str) -> ast.stmt:
    """The statement with `i * TILE` as the element's number, and any other i as that divided by the tile."""

    def rule(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.Name(id=name) if name == counter:
                return tree.expression(f"({counter} // {tile})")
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                if {tree.text_of(left), tree.text_of(right)} == {f"{counter} // {tile}", tile}:
                    return ast.Name(counter, ast.Load())
        return None

    return tree.transform(stmt, rule)


def name_loops_alike(text: str) -> str | None:
    """Neighbouring loops over the same range with the first one's variable."""
    patch = tree.Patch(text)
    body = tree.strip_docstrings(patch.node.body)
    for block in tree.blocks(body):
        for one, other in pairwise(s for s in block if isinstance(s, ast.For)):
            if not (isinstance(one.target, ast.Name) and isinstance(other.target, ast.Name)):
                continue
            first, second = one.target.id, other.target.id
            behind = block[block.index(other) + 1 :]
            if first == second or not tree.is_same(one.iter, other.iter) or second in find_unbound(behind):
                continue
            if first in tree.reads(other) | tree.writes(other) or first in find_unbound(behind):
                continue
            patch.replace_stmt(other, tree.text_of(tree.rename(other, {second: first})) + "\n")
            return patch.text()
    return None
