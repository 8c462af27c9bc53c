"""Pointers that a loop carries, written anew as addresses computed from the loop's variable.

    p = base + rows[:, None] * row_stride + ks[None, :] * k_stride        for start in range(0, K, BLOCK):
    for i in range(0, tl.cdiv(K, BLOCK)):                                     at = start + ks
        ... tl.load(p, mask=ks[None, :] < K - i * BLOCK) ...           ->     p = base + ... + at[None, :] * k_stride
        p += BLOCK * k_stride                                                 ... tl.load(p, mask=at[None, :] < K) ...

Both are how products over tiles are commonly written (the left one in Triton's own tutorials); the edits know the
right one, where an address says which tile it reaches.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import factors, terms


@dataclass(frozen=True)
class Carried:
    """A pointer before its loop, and the index of its value that advances with it."""

    name: str
    made: ast.Assign
    update: ast.AugAssign
    index: str
    term: ast.expr


def indexed(text: str, params: tuple[str, ...], constexprs: tuple[str, ...], start: str, at: str) -> str | None:
    """The function with its first loop over carried pointers written anew; None where there is none.

    start and at are names that it does not use yet: the new loop's variable, and what runs over a tile's elements.
    """
    patch = tree.Patch(text)
    body = tree.docless(patch.node.body)
    for block in tree.blocks(body):
        for place, loop in enumerate(block):
            found = _counted(loop, body, params, constexprs) if isinstance(loop, ast.For) else None
            if found is None:
                continue
            carried = _carried(block, place, found[1])
            if carried:
                patch.stmt(loop, _written(loop, carried, *found, start, at))
                for one in carried:
                    patch.stmt(one.made, "")
                return patch.text()
    return None


def settled(text: str, fresh: Callable[[str], str]) -> str | None:
    """The function in which no argument changes: `X += row * stride` before all else of X gives it a name of its own.

    fresh gives names that the function does not use yet. None where nothing is to do.
    """
    patch = tree.Patch(text)
    body = tree.docless(patch.node.body)
    params = {a.arg for a in patch.node.args.args}
    renamed: dict[str, str] = {}
    for place, stmt in enumerate(body):
        if not (isinstance(stmt, ast.AugAssign) and isinstance(stmt.op, ast.Add) and isinstance(stmt.target, ast.Name)):
            continue
        name = stmt.target.id
        rest = [s for s in body if s is not stmt]
        if name not in params or name in tree.writes(rest) or name in tree.reads([*body[:place], stmt.value]):
            continue
        renamed[name] = fresh(f"{name}_row")
        patch.stmt(stmt, f"{renamed[name]} = {name} + {tree.text_of(stmt.value)}")
    if not renamed:
        return None
    for node in ast.walk(patch.node):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in renamed:
            patch.expr(node, renamed[node.id])
    return patch.text()


def _counted(
    loop: ast.For, body: list[ast.stmt], params: tuple[str, ...], constexprs: tuple[str, ...]
) -> tuple[str, str] | None:
    """The size and the tile of `for i in range(0, cdiv(size, tile))`, both arguments."""
    bounds = tree.range_of(loop)
    if bounds is None or not isinstance(loop.target, ast.Name):
        return None
    if not (tree.is_number(bounds[0], 0) and tree.is_number(bounds[2], 1)):
        return None
    stop = bounds[1]
    if tree.called(stop) not in ("tl.cdiv", "triton.cdiv") or len(stop.args) != 2:  # type: ignore[attr-defined]
        return None
    size, tile = map(tree.text_of, stop.args)  # type: ignore[attr-defined]
    plain = size in params and tile in constexprs and size not in tree.writes(body)
    return (size, tile) if plain and loop.target.id not in tree.writes(loop.body) else None


def _carried(block: list[ast.stmt], place: int, tile: str) -> list[Carried]:
    """The pointers that this loop advances by a tile each time; empty when one of its sums is anything else."""
    loop = block[place]
    assert isinstance(loop, ast.For)
    found = []
    for number, stmt in enumerate(loop.body):
        if not (isinstance(stmt, ast.AugAssign) and isinstance(stmt.op, ast.Add) and isinstance(stmt.target, ast.Name)):
            continue
        name = stmt.target.id
        step = factors(stmt.value)
        if tile not in map(tree.text_of, step) or tree.reads(stmt.value) & tree.writes(loop):
            continue  # a sum of something else
        others = [s for s in loop.body if s is not stmt and name in tree.writes(s)]
        late = any(name in tree.reads(s) for s in (*loop.body[number + 1 :], *block[place + 1 :]))
        before = [s for s in block[:place] if name in tree.writes(s)]
        if others or late or len(before) != 1 or not isinstance(before[0], ast.Assign):
            return []
        rest = Counter(map(tree.text_of, step)) - Counter([tile])
        terms_of_it = [(t, i) for sign, t in terms(before[0].value) if sign == 1 and (i := _index(t, rest))]
        if len(terms_of_it) != 1 or tree.reads(before[0].value) & (tree.writes(loop) - {name}):
            return []
        found.append(Carried(name, before[0], stmt, terms_of_it[0][1], terms_of_it[0][0]))
    return found if len({c.index for c in found}) == 1 else []


def _index(term: ast.expr, rest: Counter[str]) -> str | None:
    """The name of the range in `name[None, :] * rest`, None when a term is anything else."""
    parts = factors(term)
    ranges = [p for p in parts if isinstance(p, ast.Subscript) and isinstance(p.value, ast.Name)]
    if len(ranges) != 1 or Counter(tree.text_of(p) for p in parts if p is not ranges[0]) != rest:
        return None
    return ranges[0].value.id  # type: ignore[attr-defined]


def _written(loop: ast.For, carried: list[Carried], size: str, tile: str, start: str, at: str) -> str:
    index, counter = carried[0].index, loop.target.id  # type: ignore[attr-defined]
    updates = [c.update for c in carried]
    rows = _Rows(index, counter, size, tile, start, at)
    head = tree.statements(f"{at} = {start} + {index}")
    made = []
    for one in carried:
        term = tree.renamed(one.term, {index: at})
        swap = _Swap(one.term, term)
        made.append(ast.Assign([ast.Name(one.name, ast.Store())], swap.visit(one.made.value), lineno=1))
    body = [rows.visit(s) for s in loop.body if s not in updates]
    options = "".join(f", {tree.text_of(k)}" for k in tree.loop_options(loop))
    header = tree.expression(f"{tree.called(loop.iter)}(0, {size}, {tile}{options})")
    new = ast.For(ast.Name(start, ast.Store()), header, [*head, *made, *body], [], lineno=1)
    return tree.text_of(ast.fix_missing_locations(new)) + "\n"


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.expr, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


class _Rows(ast.NodeTransformer):
    """What the loop says in counts of tiles, in elements: `i * TILE` is start, `ks < size - start` is `at < size`."""

    def __init__(self, index: str, counter: str, size: str, tile: str, start: str, at: str) -> None:
        self.index, self.counter, self.size, self.tile, self.start, self.at = index, counter, size, tile, start, at

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        sides = {tree.text_of(node.left), tree.text_of(node.right)}
        if isinstance(node.op, ast.Mult) and sides == {self.counter, self.tile}:
            return ast.Name(self.start, ast.Load())
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return tree.expression(f"({self.start} // {self.tile})") if node.id == self.counter else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt) and tree.reads(node.left) == {self.index}:
            if tree.text_of(node.comparators[0]) == f"{self.size} - {self.start}":
                return tree.expression(f"{tree.text_of(tree.renamed(node.left, {self.index: self.at}))} < {self.size}")
        return node
