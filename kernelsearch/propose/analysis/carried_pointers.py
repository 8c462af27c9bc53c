"""Rewrites pointers that a loop advances as addresses computed from the loop's variable.

    p = base + rows[:, None] * row_stride + ks[None, :] * k_stride        for start in range(0, K, BLOCK):
    for i in range(0, tl.cdiv(K, BLOCK)):                                     at = start + ks
        ... tl.load(p, mask=ks[None, :] < K - i * BLOCK) ...           ->     p = base + ... + at[None, :] * k_stride
        p += BLOCK * k_stride                                                 ... tl.load(p, mask=at[None, :] < K) ...

Products over tiles are commonly written in both ways (Triton's own tutorials use the left one). The edits know the
right one, where an address shows which tile it belongs to.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from kernelsearch.kernel.source import Function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import find_effects
from kernelsearch.propose.analysis.flow import factors, strip_axes, terms
from kernelsearch.propose.analysis.loop_forms import by_element, tiles_of


@dataclass(frozen=True)
class Carried:
    """A pointer that a loop advances: its definition and update, the term that advances, and that term's index."""

    name: str
    definition: ast.Assign
    update: ast.AugAssign
    index: str
    term: ast.expr


def compute_pointers(text: str, function: Function, start: str, at: str) -> str | None:
    """The function's text with its first loop over carried pointers rewritten; None if it has no such loop.

    start and at are unused names, for the new loop's variable and for the range of a tile's elements.
    """
    patch = tree.Patch(text)
    body = tree.strip_docstrings(patch.node.body)
    for block in tree.blocks(body):
        for place, loop in enumerate(block):
            if not isinstance(loop, ast.For) or not (counted := _counted(loop, body, function)):
                continue
            if carried := _carried(block, place, counted[1]):
                patch.replace_stmt(loop, _computed(loop, carried, counted[0], counted[1], start, at))
                for one in carried:
                    patch.replace_stmt(one.definition, "")
                return patch.text()
    return None


def _added_to(stmt: ast.stmt) -> str:
    """The name in `name += value`; empty for any other statement."""
    match stmt:
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add()):
            return name
    return ""


def settle_arguments(text: str, fresh: Callable[[str], str]) -> str | None:
    """The function without arguments that change: `X += row * stride` before other uses of X makes a new name instead.

    fresh gives unused names. None if no argument changes in this way.
    """
    patch = tree.Patch(text)
    body = tree.strip_docstrings(patch.node.body)
    params = {a.arg for a in patch.node.args.args}
    new: dict[str, str] = {}
    for place, stmt in enumerate(body):
        name = _added_to(stmt)
        if name not in params or name in tree.writes([s for s in body if s is not stmt]):
            continue
        if name not in tree.reads([*body[:place], stmt.value]):  # type: ignore[attr-defined]
            new[name] = fresh(f"{name}_row")
            patch.replace_stmt(stmt, f"{new[name]} = {name} + {tree.text_of(stmt.value)}")  # type: ignore[attr-defined]
    for node in ast.walk(patch.node):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in new:
            patch.replace_expr(node, new[node.id])
    return None if patch.is_empty else patch.text()


def _counted(loop: ast.For, body: list[ast.stmt], function: Function) -> tuple[str, str] | None:
    """The size and the tile in `for i in range(0, cdiv(size, tile))`, both arguments."""
    size, tile = tiles_of(loop) or ("", "")
    plain = size in function.params and tile in function.constexprs and size not in tree.writes(body)
    return (size, tile) if plain and not tree.writes(loop.target) & tree.writes(loop.body) else None


def _carried(block: list[ast.stmt], place: int, tile: str) -> list[Carried]:
    """The pointers that the loop at place advances by a tile each time; empty if one of them does not fit the form."""
    loop = block[place]
    assert isinstance(loop, ast.For)
    pointers = []
    for number, stmt in enumerate(loop.body):
        name = _added_to(stmt)
        step = factors(stmt.value) if name else []  # type: ignore[attr-defined]
        moved = next((t for t in map(tree.text_of, step) if t == tile or t.startswith(f"{tile} // ")), None)
        if moved is None or tree.reads(step) & tree.writes(loop):
            continue  # no pointer that advances by a tile, or by what is packed into one
        others = [s for s in loop.body if s is not stmt and name in tree.writes(s)]
        late = any(name in tree.reads(s) for s in (*loop.body[number + 1 :], *block[place + 1 :]))
        before = [s for s in block[:place] if name in tree.writes(s)]
        if others or late or len(before) != 1 or not isinstance(before[0], ast.Assign) or find_effects(before[0]):
            return []
        rest, packed = Counter(map(tree.text_of, step)) - Counter([moved]), moved.removeprefix(tile)
        along = [(i, t) for sign, t in terms(before[0].value) if sign == 1 and (i := _index(t, rest, packed))]
        if len(along) != 1 or tree.reads(before[0].value) & (tree.writes(loop) - {name}):
            return []
        pointers.append(Carried(name, before[0], stmt, *along[0]))  # type: ignore[arg-type]
    return pointers if len({p.index for p in pointers}) == 1 else []


def _index(term: ast.expr, rest: Counter[str], packed: str) -> str | None:
    """The name of the range in `name[None, :] * rest`, divided as packed says; None for any other term."""
    parts = factors(term)
    ranges = [(p, t.removesuffix(packed)) for p in parts if (t := tree.text_of(strip_axes(p))) != tree.text_of(p)]
    if len(ranges) != 1 or Counter(tree.text_of(p) for p in parts if p is not ranges[0][0]) != rest:
        return None
    part, name = ranges[0]
    return name if name.isidentifier() and tree.text_of(strip_axes(part)) == name + packed else None


def _computed(loop: ast.For, carried: list[Carried], size: str, tile: str, start: str, at: str) -> str:
    """The loop over elements, which computes each pointer from its variable, as text."""
    index, counter = carried[0].index, loop.target.id  # type: ignore[attr-defined]

    def count_elements(node: ast.AST) -> ast.AST | None:
        """`at < size` for `ks < size - start`."""
        match node:
            case ast.Compare(left=left, ops=[ast.Lt()], comparators=[bound]):
                if tree.reads(left) == {index} and tree.text_of(bound) == f"{size} - {start}":
                    return tree.expression(f"{tree.text_of(tree.rename(left, {index: at}))} < {size}")
        return None

    body = tree.statements(f"{at} = {start} + {index}")
    for one in carried:
        advancing = tree.rename(one.term, {index: at})
        pointer = tree.transform(one.definition.value, lambda n: advancing if n is one.term else None)  # noqa: B023
        body.append(ast.Assign([ast.Name(one.name, ast.Store())], pointer, lineno=1))
    updates = [c.update for c in carried]
    body += [
        tree.transform(tree.rename(by_element(s, counter, tile), {counter: start}), count_elements)
        for s in loop.body
        if s not in updates
    ]
    new = tree.with_range(loop, "0", size, tile)
    new.target, new.body = ast.Name(start, ast.Store()), body
    return tree.text_of(ast.fix_missing_locations(new)) + "\n"
