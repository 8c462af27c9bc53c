"""Swapped operands: a product with few rows is computed as its transpose, (A B)' = B' A', and turned when it is done.

A warp group of Hopper's takes 64 rows of its first operand at a time, and 8 to 256 columns of the second (PTX ISA,
wgmma.mma_async): with 16 rows most of the unit is idle, or the older instruction for 16 rows is used.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

from kernelsearch.core.types import Value
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import Update, update_of
from kernelsearch.propose.analysis.effects import READS
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit

FEW = 64
"""The rows of the first operand that one instruction of a warp group takes."""


@dataclass(frozen=True)
class RunningSum:
    """A tile that starts before a loop, and to which the loop adds products; nothing else there reads it."""

    name: str
    shape: tuple[str, ...]
    start: ast.stmt
    loop: ast.For
    updates: tuple[Update, ...]


class SwapOperands(Edit):
    summary = "a product with few rows is computed as its transpose, so that its columns fill the matrix unit"
    refusal = "no loop adds up products in a tile that may have fewer than 64 rows"
    usual_gain = 0.02

    def change(self, view: View) -> Changes:
        patch, sums = tree.Patch(view.text), [s for s in _list_sums(view) if _may_be_few(view, s.shape[0])]
        for one in sums:
            names = {other.name for other in sums if other.loop is one.loop}
            start = tree.assignment(one.start)
            assert start is not None
            patch.replace_expr(start[1], tree.text_of(_transpose(view, start[1], set())))
            for update in one.updates:
                name, value = tree.assignment(update.stmt) or ("", update.value)
                patch.replace_stmt(update.stmt, f"{name} = {tree.text_of(_transpose(view, value, names))}")
            patch.insert_after(one.loop, f"{one.name} = tl.trans({one.name})\n")
        if sums:
            change = view.rewrite(patch, "The transpose of the product: its many columns are the matrix unit's rows.")
            yield Change(change.kernel.with_changes(config=_widen(view, change, sums[0].shape[1])), change.rationale)


def _list_sums(view: View) -> Iterator[RunningSum]:
    for block in tree.blocks(view.body):
        for at, start in enumerate(block):
            name, _ = tree.assignment(start) or ("", None)
            later = next((s for s in block[at + 1 :] if name in tree.reads(s) | tree.writes([s])), None)
            shape = view.shapes.names.get(name)
            if not isinstance(start, ast.Assign) or not isinstance(later, ast.For) or not shape or len(shape) != 2:
                continue
            if updates := _read_updates(view, later, name):
                yield RunningSum(name, shape, start, later, updates)


def _read_updates(view: View, loop: ast.For, name: str) -> tuple[Update, ...]:
    """The updates of a name by products, empty if a loop does anything else with it."""
    updates = [u for s in tree.all_statements(loop.body) if (u := update_of(s)) and u.name == name]
    inside = [n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == name]
    own = [n for u in updates for n in ast.walk(u.stmt) if isinstance(n, ast.Name) and n.id == name]
    products = all(u.kind == "sum" and tree.calls(u.value, "dot") and view.does_only(READS, [u.stmt]) for u in updates)
    return tuple(updates) if products and len(inside) == len(own) else ()


def _may_be_few(view: View, rows: str) -> bool:
    values = (view.kernel.space or view.task.space).get(rows)
    if values is None:
        values = ((view.kernel.config or view.task.config).get(rows, int(rows) if rows.isdigit() else 0),)
    return any(not isinstance(v, int) or v < FEW for v in values)


def _widen(view: View, change: Change, columns: str) -> dict[str, Value]:
    """The config with enough columns, as far as the space has them."""
    config = dict(change.kernel.config)
    now, values = config.get(columns), change.kernel.space.get(columns, ())
    enough = [v for v in values if isinstance(v, int) and v >= FEW]
    if isinstance(now, int) and now < FEW and enough:
        config[columns] = min(enough)
    return config


def _transpose(view: View, node: ast.expr, turned: set[str]) -> ast.expr:
    """The transpose of a tile's expression; turned are names that hold a transpose already."""
    again = lambda inner: _transpose(view, inner, turned)  # noqa: E731
    shape = view.shapes.of(node)
    match node:
        case ast.Name(id=name) if name in turned:
            return node
        case _ if shape == ():
            return node
        case ast.BinOp(left=left, right=right):
            return ast.BinOp(again(left), node.op, again(right))
        case ast.UnaryOp(operand=operand):
            return ast.UnaryOp(node.op, again(operand))
        case ast.Call(func=ast.Attribute(value=inner, attr="to"), args=[_]) if not tree.is_tl(node, "to"):
            call = copy.copy(node)
            call.func = ast.Attribute(again(inner), "to", ast.Load())
            return call
        case ast.Subscript(value=inner, slice=ast.Tuple(elts=[first, second])) if len(shape or ()) == 2:
            if len(view.shapes.of(inner) or ()) == 1:
                return ast.Subscript(inner, ast.Tuple([second, first], ast.Load()), ast.Load())
        case ast.Call(args=[inner]) if tree.is_tl(node, "trans"):
            return inner
        case ast.Call() if tree.is_tl(node, "zeros", "full"):
            return _turn_shape(node)
        case ast.Call() if tree.is_tl(node, "dot"):
            return _turn_dot(view, node, turned)
    refuse_if(shape is None, f"the shape of {tree.text_of(node)} is not known")
    text = tree.parenthesise(tree.text_of(node))
    return tree.expression(f"{text}[:, None]" if len(shape or ()) == 1 else f"tl.trans({tree.text_of(node)})")


def _turn_shape(node: ast.Call) -> ast.expr:
    """`tl.zeros` or `tl.full` of the transposed shape."""
    shape = tree.argument(node, 0, "shape")
    if not isinstance(shape, (ast.List, ast.Tuple)):
        return tree.expression(f"tl.trans({tree.text_of(node)})")
    turned = type(shape)(shape.elts[::-1], ast.Load())
    keywords = [ast.keyword("shape", turned) if k.arg == "shape" else k for k in node.keywords]
    return ast.Call(node.func, [turned, *node.args[1:]] if node.args else [], keywords)


def _turn_dot(view: View, node: ast.Call, turned: set[str]) -> ast.expr:
    """The product of the transposed operands, the second one first."""
    first, second, acc = (tree.argument(node, i, n) for i, n in enumerate(("input", "other", "acc")))
    if first is None or second is None or len(node.args) > 3:
        raise NotApplicable("a product's arguments are given in an unusual way")
    values = [_transpose(view, operand, turned) for operand in (second, first)]
    if acc is not None:
        values.append(acc if isinstance(acc, ast.Constant) else _transpose(view, acc, turned))
    return ast.Call(node.func, values, [k for k in node.keywords if k.arg not in ("input", "other", "acc")])
