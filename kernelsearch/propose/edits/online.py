"""Online softmax statistics: the pass for the maximum and the pass for the sum of exponentials become one.

Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), algorithm 3: the running sum is
rescaled when the maximum grows. A maximum of minus infinity is replaced by 0 in the exponent, so that a first
tile without finite values gives 0 and not NaN. Two variants: one statistic per row, and one per lane with the
rescaled reduction behind the loop.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import (
    Update,
    full,
    is_float32,
    reduction_of,
    starts_at_identity,
    update_of,
)
from kernelsearch.propose.analysis.flow import stripped
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


@dataclass(frozen=True)
class Pair:
    """Two neighbouring loops: the first folds a maximum, the second a sum of exp(block - maximum)."""

    first: ast.For
    second: ast.For
    maximum: Update
    total: Update
    exponential: ast.Call
    starts: tuple[ast.stmt, ...]
    between: tuple[ast.stmt, ...]


class Online(FunctionEdit):
    name = "online"
    summary = "maximum and sum of exponentials in one rescaled pass"

    def change(self, view: View) -> list[Change]:
        for block in tree.blocks(view.body):
            pair = _find(view, block)
            if pair is not None:
                return [_merged(view, pair, lanes) for lanes in (True, False)]
        raise CannotApply("no loop for a maximum is followed by a loop for a sum of exponentials of the same block")


def _find(view: View, block: list[ast.stmt]) -> Pair | None:
    loops = [s for s in block if isinstance(s, ast.For)]
    for first, second in zip(loops, loops[1:], strict=False):
        a, b = tree.range_of(first), tree.range_of(second)
        if a is None or b is None or not all(tree.same(x, y) for x, y in zip(a, b, strict=True)):
            continue
        nested = tree.loops(first.body) or tree.loops(second.body)
        if nested or not tree.same(first.target, second.target):
            continue
        pair = _matched(view, block, first, second)
        if pair is not None:
            return pair
    return None


def _matched(view: View, block: list[ast.stmt], first: ast.For, second: ast.For) -> Pair | None:
    maximum, total = update_of(first.body[-1]), update_of(second.body[-1])
    if maximum is None or total is None or (maximum.kind, total.kind) != ("max", "sum"):
        return None
    top, whole = reduction_of(maximum.value, "max"), reduction_of(total.value, "sum")
    if top is None or whole is None or not same_axis(top, whole):
        return None
    body = [*first.body[:-1], *second.body[:-1]]
    between = block[block.index(first) + 1 : block.index(second)]
    names = {maximum.name, total.name}
    if names & tree.writes(body) or total.name in tree.reads([*body, first.iter]):
        return None
    if maximum.name in tree.reads(first.body[:-1]):
        return None
    if has_effects([*first.body, *second.body, *between]):
        return None
    operand, power = inlined(second.body, whole.args[0]), inlined(first.body, top.args[0])
    if not (tree.is_tl(operand, "exp", "exp2") and isinstance(operand, ast.Call)):
        return None
    difference = inlined(second.body, operand.args[0])
    if tree.is_tl(operand, "exp2") or not (isinstance(difference, ast.BinOp) and isinstance(difference.op, ast.Sub)):
        return None
    low = stripped(difference.right)
    if not (isinstance(low, ast.Name) and low.id == maximum.name) or not tree.same(difference.right, low):
        return None
    if not tree.same(inlined(second.body, difference.left), power):
        return None
    starts = tuple(s for s in block[: block.index(second)] if isinstance(s, ast.Assign) and tree.writes(s) & names)
    if len(starts) != 2 or not all(_good_start(s, maximum, total) for s in starts):
        return None
    rest = [s for s in between if s not in starts]
    if any(tree.reads(s) & names for s in rest) or tree.writes(rest) & tree.reads(first):
        return None
    return Pair(first, second, maximum, total, operand, starts, tuple(between))


def _good_start(stmt: ast.stmt, maximum: Update, total: Update) -> bool:
    pair = tree.assignment(stmt)
    kind = "max" if pair and pair[0] == maximum.name else "sum"
    return pair is not None and starts_at_identity(pair[1], kind) and is_float32(pair[1])


def same_axis(a: ast.Call, b: ast.Call) -> bool:
    """Whether two reductions go along the same axis and keep it alike."""
    wanted = ((1, "axis"), (None, "keep_dims"))
    return all(tree.same(tree.argument(a, at, name), tree.argument(b, at, name)) for at, name in wanted)


def has_effects(body: list[ast.stmt]) -> bool:
    """Whether statements do more than assign: store, branch or return."""
    return any(isinstance(s, (ast.If, ast.While, ast.Return, ast.Expr)) for s in tree.all_statements(body))


def inlined(body: list[ast.stmt], node: ast.expr) -> ast.expr:
    """The expression behind a loop's straight-line body by what was there before it, hints on loads aside.

    A name that is written in another way than by a plain assignment stays a name.
    """
    opaque: set[str] = set()
    for stmt in reversed(body):
        pair = tree.assignment(stmt)
        if pair and isinstance(stmt, ast.Assign):
            if pair[0] in tree.reads(node) and pair[0] not in opaque:
                node = tree.substituted(node, {pair[0]: pair[1]})  # type: ignore[assignment]
        else:
            opaque |= tree.writes(stmt)
    return _Plain().visit(node) if not isinstance(node, ast.Name) else node


class _Plain(ast.NodeTransformer):
    """Takes caching hints off loads: they change no value."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if tree.is_tl(node, "load"):
            kept = [k for k in node.keywords if k.arg not in ("eviction_policy", "cache_modifier")]
            return ast.Call(node.func, node.args, kept)
        return node


def _merged(view: View, pair: Pair, lanes: bool) -> Change:
    """The text with the first loop doing both, and the second removed."""
    m, s = pair.maximum.name, pair.total.name
    top = reduction_of(pair.maximum.value, "max")
    whole = reduction_of(pair.total.value, "sum")
    assert top is not None and whole is not None
    block = tree.text_of(top.args[0])
    body = "".join(tree.text_of(stmt) + "\n" for stmt in pair.first.body[:-1])
    patch = tree.Patch(view.text)
    new, safe = view.fresh(f"{m}_new"), view.fresh(f"{m}_safe")
    if lanes:
        shape = view.shapes.of(top.args[0])
        if not shape:
            raise CannotApply("the block's shape is not known")
        ml, sl, last = view.fresh(f"{m}_lanes"), view.fresh(f"{s}_lanes"), view.fresh(f"{m}_last")
        head = f"{ml} = {full(shape, 'max')}\n{sl} = {full(shape, 'sum')}\n"
        body += f"{new} = tl.maximum({ml}, {block})\n"
        body += _rescaled(safe, new, sl, ml, f"tl.exp({tree.parenthesised(block)} - {safe})")
        axis = "".join(f", {k.arg}={tree.text_of(k.value)}" for k in top.keywords)
        axis += "".join(f", {tree.text_of(a)}" for a in top.args[1:])
        tail = f"{m} = tl.max({ml}{axis})\n{last} = tl.where({m} == float('-inf'), 0.0, {m})\n"
        tail += f"{s} = tl.sum({sl} * tl.exp({ml} - {last}){axis})\n"
        why = "One pass keeps a running maximum and a rescaled sum in every lane; the reduction comes once, at the end."
    else:
        head, tail = "", ""
        body += f"{new} = tl.maximum({m}, {tree.text_of(top)})\n"
        axis = "".join(f", {tree.text_of(a)}" for a in whole.args[1:])
        axis += "".join(f", {k.arg}={tree.text_of(k.value)}" for k in whole.keywords)
        body += _rescaled(safe, new, s, m, f"tl.sum(tl.exp({tree.parenthesised(block)} - {safe}){axis})")
        why = "One pass keeps a running maximum and rescales the sum when it grows: the data is read once less."
    loop = f"for {tree.text_of(pair.first.target)} in {tree.text_of(pair.first.iter)}:\n"
    loop += "".join("    " + line + "\n" for line in body.splitlines())
    moved = "".join(tree.text_of(x) + "\n" for x in pair.between)
    patch.stmt(pair.first, moved + head + loop + tail)
    for stmt in pair.between:
        patch.stmt(stmt, "")
    patch.stmt(pair.second, "")
    return Change(replaced(view, patch.text()), why)


def _rescaled(safe: str, new: str, total: str, maximum: str, fresh: str) -> str:
    return (
        f"{safe} = tl.where({new} == float('-inf'), 0.0, {new})\n"
        f"{total} = {total} * tl.exp({maximum} - {safe}) + {fresh}\n"
        f"{maximum} = {new}\n"
    )
