"""Store forwarding: a block that was stored and is loaded again from the same address stays in registers."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit


class StoreForwarding(Edit):
    summary = "a value stored and loaded again at the same address is kept in registers"
    refusal = "no block is loaded again from where it was stored"

    def change(self, view: View) -> Changes:
        patch = tree.Patch(view.text)
        for block in tree.blocks(view.body):
            for at, stmt in enumerate(block):
                if isinstance(stmt, ast.Expr) and tree.is_tl(stmt.value, "store"):
                    _forward(view, patch, stmt.value, block[at + 1 :])  # type: ignore[arg-type]
        if not patch.is_empty:
            yield view.rewrite(patch, "A block that was just stored is not read back from memory.")


def _forward(view: View, patch: tree.Patch, store: ast.Call, after: list[ast.stmt]) -> None:
    """Replaces loads of the stored address until something that it needs changes."""
    pointer, value, mask = store.args[0], tree.argument(store, 1, "value"), tree.mask_of(store)
    if value is None or view.shapes.of(pointer) is None or view.shapes.of(pointer) != view.shapes.of(value):
        return
    bases = sorted(tree.reads(view.flow.expand(pointer, view.flow.at(store))) & set(view.function.params))
    base = next((b for b in bases if b.endswith("ptr")), None)
    for stmt in after:
        if base is None or isinstance(stmt, (ast.For, ast.If, ast.While)):
            return
        pair = tree.assignment(stmt)
        if pair is not None and tree.is_tl(pair[1], "load"):
            load: ast.Call = pair[1]  # type: ignore[assignment]
            other = tree.argument(load, 2, "other")
            if tree.is_same(load.args[0], pointer) and tree.is_same(tree.mask_of(load), mask):
                stored = f"{tree.parenthesise(tree.text_of(value))}.to({base}.dtype.element_ty)"
                if mask is not None and other is not None:
                    stored = f"tl.where({tree.text_of(mask)}, {stored}, {tree.text_of(other)})"
                patch.replace_expr(load, stored)
        if tree.calls(stmt, "store") or tree.writes(stmt) & tree.reads(store):
            return
