"""Peeled tail: full tiles without a mask, then at most one masked tile, for sizes that need not divide."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.bounds import always_true_when, comparisons
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


class PeelTail(FunctionEdit):
    name = "peel_tail"
    summary = "full tiles unmasked, one masked tail"

    def change(self, view: View) -> list[Change]:
        found = [(loop, masks) for loop in tree.loops(view.body) if (masks := _tail_masks(view, loop))]
        if not found:
            raise CannotApply("no innermost loop over tiles from 0 has a mask that only its last tile needs")
        patch = tree.Patch(view.text)
        for loop, masks in found:
            bounds = tree.range_of(loop)
            assert bounds is not None
            size, step = tree.text_of(bounds[1]), tree.text_of(bounds[2])
            whole = view.fresh("whole")
            patch.before(loop, f"{whole} = {size} // {step} * {step}\n")
            main, tail = _headed(loop, ("0", whole, step)), _headed(loop, (whole, size, step))
            patch.stmt(loop, tree.text_of(unmasked(main, masks)) + "\n" + tree.text_of(tail) + "\n")
        return [Change(replaced(view, patch.text()), "All tiles but the last are whole: their accesses need no mask.")]


def _tail_masks(view: View, loop: ast.For) -> list[str]:
    """Comparisons in the loop that hold for every whole tile, as text."""
    bounds = tree.range_of(loop)
    if bounds is None or tree.loops(loop.body) or tree.called(loop.iter) == "tl.static_range":
        return []
    size, step = bounds[1], bounds[2]
    if not (tree.is_number(bounds[0], 0) and isinstance(size, ast.Name) and isinstance(step, ast.Name)):
        return []
    wanted = f"{size.id} % {step.id} == 0"
    guarded = {id(n.left) for n in ast.walk(view.node) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.BitOr)}
    inside = {id(n) for n in ast.walk(loop)}
    found = [c for c in comparisons(view) if id(c) in inside and id(c) not in guarded]
    return list(dict.fromkeys(tree.text_of(c) for c in found if always_true_when(view, c) == wanted))


def _headed(loop: ast.For, bounds: tuple[str, str, str]) -> ast.For:
    fresh = tree.statements(tree.text_of(loop))[0]
    assert isinstance(fresh, ast.For) and isinstance(fresh.iter, ast.Call)
    fresh.iter = ast.Call(fresh.iter.func, [tree.expression(b) for b in bounds], tree.loop_options(fresh))
    return fresh


def unmasked(loop: ast.For, masks: list[str]) -> ast.For:
    """The loop with the comparisons gone: from conjunctions, from masks, from `where`."""

    class Whole(ast.NodeTransformer):
        def visit_Compare(self, node: ast.Compare) -> ast.AST:
            return ast.Constant(True) if tree.text_of(node) in masks else node

        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            self.generic_visit(node)
            if isinstance(node.op, ast.BitAnd):
                for one, other in ((node.left, node.right), (node.right, node.left)):
                    if _true(one):
                        return other
            return node

        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            if tree.is_tl(node, "where") and len(node.args) == 3 and _true(node.args[0]):
                return node.args[1]
            if tree.is_tl(node, "load", "store"):
                mask = tree.argument(node, 2 if tree.is_tl(node, "store") else 1, "mask")
                if mask is not None and _true(mask):
                    return _without_mask(node)
            return node

    known: set[str] = set()
    body = []
    for stmt in loop.body:
        stmt = Whole().visit(tree.substituted(stmt, {n: ast.Constant(True) for n in known}))
        stmt = Whole().visit(stmt)
        pair = tree.assignment(stmt)
        if pair is not None and isinstance(stmt, ast.Assign):
            if _true(pair[1]):
                known.add(pair[0])
                continue
            known.discard(pair[0])
        body.append(stmt)
    loop.body = body or [ast.Pass()]
    return loop


def _true(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return _true(node.value)
    return isinstance(node, ast.Constant) and node.value is True


def _without_mask(node: ast.Call) -> ast.Call:
    store = tree.is_tl(node, "store")
    kept = [k for k in node.keywords if k.arg not in ("mask", "other")]
    return ast.Call(node.func, node.args[: 2 if store else 1], kept)
