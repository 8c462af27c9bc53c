"""Peel to an aligned start: tiles begin at the row's address rounded down, so that inner accesses are whole vectors.

A row whose stride is odd starts at another alignment each time, and an access that may be unaligned is done
element by element. Here the columns shift by `lead`, the elements between the rounded-down address and the
row: the first tile masks them out, the tiles after it are aligned and need no mask, a last one masks the end.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import update_of
from kernelsearch.propose.analysis.flow import terms
from kernelsearch.propose.analysis.idle import IDENTITY, Idle
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced
from kernelsearch.propose.edits.peel_tail import unmasked

VECTORS = (8, 16, 64)


@dataclass(frozen=True)
class Walk:
    """A loop over tiles of a row: `cols = start + arange` is its first statement, rows are scalar pointers + cols."""

    loop: ast.For
    size: str
    step: str
    columns: str
    pointers: tuple[ast.expr, ...]


class AlignRows(FunctionEdit):
    name = "align_rows"
    summary = "tiles start at an aligned address, with a masked head and tail"

    def change(self, view: View) -> list[Change]:
        for block in tree.blocks(view.body):
            walks = [w for s in block if isinstance(s, ast.For) and (w := _walk(view, s)) is not None]
            if walks:
                return [_aligned(view, walks)]
        raise CannotApply("no loop walks over the tiles of a row at a scalar address")


def _walk(view: View, loop: ast.For) -> Walk | None:
    bounds = tree.range_of(loop)
    if bounds is None or tree.loops(loop.body) or not isinstance(loop.target, ast.Name) or not loop.body:
        return None
    size, step = tree.text_of(bounds[1]), tree.text_of(bounds[2])
    plain = size in view.function.params and step in view.function.constexprs and tree.is_number(bounds[0], 0)
    first = tree.assignment(loop.body[0])
    if not plain or first is None or tree.called(loop.iter) == "tl.static_range":
        return None
    if tree.text_of(first[1]) != f"{loop.target.id} + tl.arange(0, {step})":
        return None
    name = first[0]
    rest = loop.body[1:]
    if loop.target.id in tree.reads(rest) or name in tree.writes(rest) or size in tree.writes(view.body):
        return None
    pointers = []
    for call in tree.calls(ast.Module(rest, []), "load", "store"):
        address = call.args[0]
        if name not in tree.reads(address):
            continue
        if not (isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add)):
            return None
        if tree.text_of(address.right) != name or view.shapes.of(address.left) != ():
            return None
        if tree.reads(address.left) & tree.writes(loop):
            return None
        pointers.append(address)
    if not pointers or not _neutral(view, loop, name, size):
        return None
    return Walk(loop, size, step, name, tuple(pointers))


def _neutral(view: View, loop: ast.For, name: str, size: str) -> bool:
    """Whether masked-out lanes change nothing: every access is masked, every update folds in the identity."""
    wide = {n for n in tree.writes(loop.body) if view.shapes.names.get(n) != ()}
    idle = Idle(lambda c: tree.text_of(c) == f"{name} < {size}", lambda n: n in wide)
    seen: set[str] = set()
    carried = {u.name for s in loop.body if (u := update_of(s)) is not None}
    for stmt in loop.body:
        if isinstance(stmt, (ast.For, ast.If, ast.While)):
            return False
        for call in tree.calls(stmt, "load", "store"):
            mask = tree.argument(call, 2 if tree.is_tl(call, "store") else 1, "mask")
            if name in tree.reads(call.args[0]) and (mask is None or idle.of(mask) != "false"):
                return False
        update = update_of(stmt)
        if update is not None and update.name not in seen:
            value = update.value
            if tree.is_tl(value, "sum", "max", "min"):
                if not tree.is_tl(value, update.kind):
                    return False
                value = value.args[0]  # type: ignore[attr-defined]
            if idle.of(value) != IDENTITY[update.kind]:
                return False
            continue
        pair = tree.assignment(stmt)
        if pair is not None:
            if (pair[0] in tree.reads(stmt) and pair[0] not in seen) or tree.reads(pair[1]) & carried:
                return False
            seen.add(pair[0])
            idle.assign(*pair)
    return True


def _aligned(view: View, walks: list[Walk]) -> Change:
    patch = tree.Patch(view.text)
    vec = view.fresh("VEC")
    patch.param(f"{vec}: tl.constexpr")
    rows = _rows(view, walks)
    if not rows:
        raise CannotApply("no row's address is a pointer argument plus an offset")
    names = {"offset": view.fresh("row_offset"), "floor": view.fresh("row_floor"), "lead": view.fresh("lead")}
    _, main = next(iter(rows.values()))
    head = f"{names['offset']} = {main}\n{names['floor']} = {names['offset']} // {vec} * {vec}\n"
    head += f"{names['lead']} = {names['offset']} - {names['floor']}\n"
    args: dict[str, str] = {}
    bases: dict[str, str] = {}
    for row, (pointer, offset) in rows.items():
        base = view.fresh(f"{pointer.removesuffix('_ptr')}_base")
        bases[row] = base
        strides = _differing(view, main, offset)
        if offset == main:
            head += f"{base} = {pointer} + {names['floor']}\n"
        elif strides is not None:
            same = view.fresh("SAME_STRIDE")
            args[same] = f"{strides[0]} == {strides[1]}"
            patch.param(f"{same}: tl.constexpr")
            head += f"if {same}:\n    {base} = {pointer} + {names['floor']}\n"
            head += f"else:\n    {base} = {pointer} + ({offset} - {names['lead']})\n"
        else:
            head += f"{base} = {pointer} + ({offset} - {names['lead']})\n"
    bounds: dict[tuple[str, str], tuple[str, str]] = {}
    for at, walk in enumerate(walks):
        text = _three(view, walk, vec, names["lead"], bases, bounds)
        patch.stmt(walk.loop, (head if at == 0 else "") + text)
    kernel = replaced(view, patch.text(), args=args, space={vec: VECTORS}, config={vec: 8})
    why = f"Tiles start at addresses that are multiples of {vec} elements, so inner accesses are whole vectors."
    return Change(kernel, why)


def _rows(view: View, walks: list[Walk]) -> dict[str, tuple[str, str]]:
    """Each row pointer's text with its pointer argument and its offset as text, those with an offset."""
    found: dict[str, tuple[str, str]] = {}
    for walk in walks:
        for address in walk.pointers:
            row = tree.text_of(address.left)  # type: ignore[attr-defined]
            parts = terms(view.flow.expand(address.left, walk.loop))  # type: ignore[attr-defined]
            pointer, offset = parts[0][1], parts[1:]
            if not offset or any(sign != 1 for sign, _ in parts) or not isinstance(pointer, ast.Name):
                continue
            if pointer.id in view.function.params and pointer.id not in tree.writes(view.body):
                found[row] = (pointer.id, " + ".join(tree.text_of(t) for _, t in offset))
    return found


def _differing(view: View, a: str, b: str) -> tuple[str, str] | None:
    """The one parameter in which two offsets differ, in each of them; None when they differ in more."""
    one, other = tree.expression(a), tree.expression(b)
    params = set(view.function.params)
    left = sorted(tree.reads(one) & params - tree.reads(other))
    right = sorted(tree.reads(other) & params - tree.reads(one))
    if len(left) == len(right) == 1:
        if tree.text_of(tree.renamed(one, {left[0]: right[0]})) == tree.text_of(other):
            return left[0], right[0]
    return None


def _three(
    view: View, walk: Walk, vec: str, lead: str, bases: dict[str, str], bounds: dict[tuple[str, str], tuple[str, str]]
) -> str:
    """Head, whole tiles and tail of one loop, as text; bounds names what loops of one size and step share."""
    start = walk.loop.target.id  # type: ignore[attr-defined]
    lanes = f"({start} + tl.arange(0, {walk.step}))"
    body = [tree.statements(f"{walk.columns} = {start} - {lead} + tl.arange(0, {walk.step})")[0]]

    class Based(ast.NodeTransformer):
        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            self.generic_visit(node)
            if isinstance(node.op, ast.Add) and tree.text_of(node.right) == walk.columns:
                base = bases.get(tree.text_of(node.left))
                if base is not None:
                    return tree.expression(f"{base} + {lanes}")
            return node

    body += [Based().visit(tree.statements(tree.text_of(s))[0]) for s in walk.loop.body[1:]]
    mask = f"{walk.columns} < {walk.size}"
    edge = ast.For(walk.loop.target, walk.loop.iter, body, [], lineno=1)
    edges = _masked_left(edge, walk.columns, mask)
    call = tree.called(walk.loop.iter)
    options = "".join(f", {tree.text_of(k)}" for k in tree.loop_options(walk.loop))

    def headed(loop: ast.For, low: str, high: str) -> str:
        loop.iter = tree.expression(f"{call}({low}, {high}, {walk.step}{options})")
        return tree.text_of(ast.fix_missing_locations(loop)) + "\n"

    text, key = "", (walk.size, walk.step)
    if key not in bounds:
        bounds[key] = (view.fresh("first_whole"), view.fresh("whole"))
        text += f"{bounds[key][0]} = ({vec} + {walk.step} - 1) // {walk.step} * {walk.step}\n"
        text += f"{bounds[key][1]} = ({walk.size} + {lead}) // {walk.step} * {walk.step}\n"
    first, whole = bounds[key]
    text += headed(edges, "0", first)
    inner = tree.statements(tree.text_of(ast.fix_missing_locations(edge)))[0]
    text += headed(unmasked(inner, [mask]), first, whole)  # type: ignore[arg-type]
    tail = tree.statements(tree.text_of(edge))[0]
    return text + headed(tail, f"tl.maximum({first}, {whole})", f"{walk.size} + {lead}")  # type: ignore[arg-type]


def _masked_left(loop: ast.For, columns: str, mask: str) -> ast.For:
    class Left(ast.NodeTransformer):
        def visit_Compare(self, node: ast.Compare) -> ast.AST:
            return tree.expression(f"({columns} >= 0) & ({mask})") if tree.text_of(node) == mask else node

    fresh = tree.statements(tree.text_of(ast.fix_missing_locations(loop)))[0]
    return Left().visit(fresh)
