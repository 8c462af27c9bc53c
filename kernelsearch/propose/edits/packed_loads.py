"""Packed loads: a word that holds several values is loaded once and spread, not once for each of its values.

words = tl.load(at + depth[:, None] // 8 * n + cols)     ->     words = tl.load(at + first[:, None] * n + cols)
                                                               words = tl.reshape(tl.broadcast_to(words[:, None, :], ...
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import factors, strip_axes, strip_hints, terms
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit


@dataclass(frozen=True)
class PackedLoad:
    """A load of a tile whose axis of size lanes repeats each element count times; address and mask are expanded."""

    call: ast.Call
    stmt: ast.Assign
    address: ast.expr
    mask: ast.expr | None
    axis: int
    lanes: str
    count: str


class PackedLoads(Edit):
    summary = "words that hold several values are loaded once and spread over their lanes"
    refusal = "no tile is loaded at an address that divides a range of lanes"
    usual_gain = 0.06

    def change(self, view: View) -> Changes:
        patch, found = tree.Patch(view.text), list(_list_packed(view))
        for packed in found:
            patch.replace_stmt(packed.stmt, _spread(view, packed))
        if found:
            yield view.rewrite(patch, "A word is loaded once for all of the values that it holds.")


def _list_packed(view: View) -> Iterator[PackedLoad]:
    for stmt in tree.all_statements(view.body):
        pair = tree.assignment(stmt) if isinstance(stmt, ast.Assign) else None
        shape = view.shapes.of(pair[1]) if pair and tree.is_tl(pair[1], "load") else None
        for axis, lanes in enumerate(shape if shape and len({*shape}) == 2 else ()):
            assert isinstance(stmt, ast.Assign) and pair and isinstance(pair[1], ast.Call)
            call, mask = pair[1], tree.mask_of(pair[1])
            address, mask = (_open(view, n, stmt, lanes) if n is not None else None for n in (call.args[0], mask))
            read = ((d, _read_division(view, d, lanes, stmt)) for d in (ast.walk(address) if address else ()))
            inside = {d: count for d, count in read if count}
            counts, within = {*inside.values()}, sum(len(_ranges(d, lanes)) for d in inside)
            if address and len(counts) == 1 and within == len(_ranges(address, lanes)):
                yield PackedLoad(call, stmt, address, mask, axis, lanes, counts.pop())


def _open(view: View, node: ast.expr, stmt: ast.stmt, lanes: str) -> ast.expr:
    """The expression with the values of names, where these values have the range of the lanes."""
    known: dict[str, ast.expr] = {}
    for name in tree.reads(node):
        definition = view.flow.steady_value(name, stmt) if view.shapes.names.get(name) else None
        if definition and _ranges(value := _open(view, definition[0], definition[1], lanes), lanes):
            known[name] = value
    return tree.substitute(node, known) if known else node


def _ranges(node: ast.AST, lanes: str) -> list[ast.Call]:
    return [c for c in tree.calls(node, "arange") if tree.text_of(c) == f"tl.arange(0, {lanes})"]


def _read_division(view: View, node: ast.AST, lanes: str, stmt: ast.stmt) -> str:
    """What `(start + tl.arange(0, lanes)) // count` divides by, where that is a power of two and divides start."""
    match node:
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=ast.Constant(value=int(count))) if count > 1:
            pass
        case ast.BinOp(left=left, op=ast.RShift(), right=ast.Constant(value=int(shift))) if 0 < shift < 6:
            count = 1 << shift
        case _:
            return ""
    parts = [strip_hints(part) for sign, part in terms(strip_axes(left)) if sign == 1]
    whole = count & (count - 1) == 0 and len(parts) == len(terms(strip_axes(left)))
    ranged = [part for part in parts if _ranges(part, lanes)]
    starts = [part for part in parts if part not in ranged]
    fine = whole and len(ranged) == 1 and ranged[0] in _ranges(ranged[0], lanes)
    return str(count) if fine and all(_is_whole(view, part, lanes, count, stmt) for part in starts) else ""


def _is_whole(view: View, start: ast.expr, lanes: str, count: int, stmt: ast.stmt) -> bool:
    """Whether a start is a multiple of a block, or of what is packed into a word."""
    parts = factors(start)
    if any(
        tree.text_of(p) == lanes or (isinstance(p, ast.Constant) and type(p.value) is int and not p.value % count)
        for p in parts
    ):
        return True
    return any(
        tree.text_of(loop.target) in map(tree.text_of, parts)
        and (bounds := tree.range_of(loop)) is not None
        and lanes in map(tree.text_of, factors(bounds[2]))
        and _is_whole(view, view.flow.expand(bounds[0], loop), lanes, count, loop)
        for loop in view.flow.loops_of(stmt)
    )


def _spread(view: View, packed: PackedLoad) -> str:
    """The statements that load each word once and give each lane its word."""
    lanes, count, name = packed.lanes, packed.count, tree.text_of(packed.stmt.targets[0])
    words, part = view.fresh_name(f"{name}_once"), f"{tree.parenthesise(lanes)} // {count}"
    each = tree.expression(f"tl.arange(0, {part}) * {count}")

    def divide(node: ast.AST) -> ast.AST | None:
        if not _read_division(view, node, lanes, packed.stmt):
            return None
        assert isinstance(node, ast.BinOp)
        starts = [tree.text_of(p) for _, p in terms(strip_axes(node.left)) if not _ranges(p, lanes)]
        index = " + ".join(
            [f"{tree.parenthesise(' + '.join(starts))} // {count}"] * bool(starts) + [f"tl.arange(0, {part})"]
        )
        sliced = strip_hints(node.left)
        made = tree.expression(f"({index})")
        return ast.Subscript(made, sliced.slice, ast.Load()) if isinstance(sliced, ast.Subscript) else made

    first = lambda n: each if n in _ranges(n, lanes) else None  # noqa: E731
    call, other = packed.call, tree.argument(packed.call, 2, "other")
    address = tree.text_of(tree.transform(copy.deepcopy(packed.address), divide))
    options = tree.list_options(call)
    along = [p for p in tree.conjuncts(packed.mask) if _ranges(p, lanes)] if packed.mask is not None else []
    if packed.mask is not None:
        options.insert(0, f"mask={tree.text_of(tree.transform(copy.deepcopy(packed.mask), first))}")
    text = f"{words} = tl.load({', '.join([address, *options])})\n"
    shape = list(view.shapes.of(call) or ())
    new, whole = ("[:, None, :]", "[:, :, None]")[packed.axis], [*shape]
    whole[packed.axis : packed.axis + 1] = [part, count]
    spread = f"tl.reshape(tl.broadcast_to({words}{new}, ({', '.join(whole)})), ({', '.join(shape)}))"
    if along and other is not None:
        on = " & ".join(tree.parenthesise(tree.text_of(p)) for p in along)
        spread = f"tl.where({on}, {spread}, {tree.text_of(other)})"
    return f"{text}{name} = {spread}\n"
