"""Peeled tail: full tiles without a mask, then at most one masked tile, for sizes that need not divide."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.bounds import comparisons, find_true_condition
from kernelsearch.propose.analysis.effects import ACCESSES, READS, find_effects
from kernelsearch.propose.analysis.flow import find_unbound
from kernelsearch.propose.analysis.tile_order import find_read_later
from kernelsearch.propose.analysis.view import Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit


class PeelTail(Edit):
    summary = "full tiles unmasked, one masked tail"
    refusal = "no innermost loop over tiles from 0 has a mask that only its last tile needs"

    def change(self, view: View) -> Changes:
        patch = tree.Patch(view.text)
        for loop in tree.loops(view.body):
            if not (masks := _tail_masks(view, loop)):
                continue
            _, size, step = map(tree.text_of, tree.range_of(loop))  # type: ignore[arg-type]
            whole = view.fresh_name("whole")
            patch.insert_before(loop, f"{whole} = {size} // {step} * {step}\n")
            main, tail = tree.with_range(loop, "0", whole, step), tree.with_range(loop, whole, size, step)
            main.body = remove_masks(main.body, masks)
            if (tree.writes(loop.body) - tree.writes(main.body)) & find_read_later(view, loop):
                raise NotApplicable("a mask is read after the loop")
            patch.replace_stmt(loop, tree.text_of(main) + "\n" + tree.text_of(tail) + "\n")
        if not patch.is_empty:
            yield view.rewrite(patch, "All tiles but the last are whole: their accesses need no mask.")


def _tail_masks(view: View, loop: ast.For) -> list[str]:
    """Comparisons in the loop that hold for every whole tile, as text."""
    bounds = tree.range_of(loop)
    if bounds is None or tree.loops(loop.body) or tree.callee(loop.iter) == "tl.static_range":
        return []
    start, size, step = bounds
    if not (tree.is_number(start, 0) and isinstance(size, ast.Name) and isinstance(step, ast.Name)):
        return []
    inside, whole = set(ast.walk(loop)), f"{size.id} % {step.id} == 0"
    masks = (c for c in comparisons(view) if c in inside and find_true_condition(view, c) == whole)
    return list(dict.fromkeys(map(tree.text_of, masks)))


def remove_masks(block: list[ast.stmt], masks: Collection[str]) -> list[ast.stmt]:
    """A copy of the statements without these comparisons in conjunctions, masks and `where`.

    Raises NotApplicable if a mask that would go is assigned in a loop or branch and elsewhere.
    """

    def rule(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.Compare() if tree.text_of(node) in masks:
                return ast.Constant(True)
            case ast.BinOp(left=left, op=ast.BitAnd(), right=right) if _is_true(left) or _is_true(right):
                return right if _is_true(left) else left
            case ast.BinOp(left=left, op=ast.BitOr(), right=right) if _is_true(left) or _is_true(right):
                return ast.Constant(True)
            case ast.Call(args=[test, value, other]) if tree.is_tl(node, "where") and _is_true(test):
                return None if find_effects(other) - READS else value
            case ast.Call() if tree.is_tl(node, "load", "store") and _is_true(tree.mask_of(node)):
                if find_effects(node) - ACCESSES:
                    return None
                plain = [k for k in node.keywords if k.arg not in ("mask", "other")]
                return ast.Call(node.func, node.args[: 2 if tree.is_tl(node, "store") else 1], plain)
            case ast.Call(args=args) if tree.callee(node).startswith("tl.atomic_") and _is_true(
                tree.argument(node, 2, "mask")
            ):
                places = [ast.Constant(None) if _is_true(a) else a for a in args[2:]]
                return ast.Call(node.func, [*args[:2], *places], [k for k in node.keywords if k.arg != "mask"])
        return None

    times = Counter(
        n.id for s in block for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )
    known: dict[str, ast.expr] = {}

    def remove(statements: list[ast.stmt], nested: bool) -> list[ast.stmt]:
        body = []
        for stmt in statements:
            text = tree.text_of(stmt)
            fresh = tree.transform(tree.transform(tree.substitute(stmt, known), rule), rule)
            pair = tree.assignment(fresh) if isinstance(fresh, ast.Assign) else None
            always = pair is not None and _is_true(pair[1])
            if (nested and pair and always and times[pair[0]] > 1) or (not pair and tree.writes(stmt) & known.keys()):
                raise NotApplicable("a mask is assigned more than once")
            if not always and not hasattr(fresh, "body") and tree.text_of(fresh).count("True") > text.count("True"):
                raise NotApplicable("a mask is more than a mask")
            refuse_if(pair and always and pair[0] in find_unbound(block), "a mask is read before it is assigned")
            if pair and always:
                known[pair[0]] = ast.Constant(True)
                continue
            if pair:
                known.pop(pair[0], None)
            for field in ("body", "orelse"):
                if inner := getattr(fresh, field, None):
                    setattr(fresh, field, remove(inner, nested=True))
            body.append(fresh)
        return body or [ast.Pass()]

    return remove(block, nested=False)


def _is_true(node: ast.expr | None) -> bool:
    """Whether node is `True`, possibly with new axes."""
    if isinstance(node, ast.Subscript):
        return _is_true(node.value)
    return isinstance(node, ast.Constant) and node.value is True
