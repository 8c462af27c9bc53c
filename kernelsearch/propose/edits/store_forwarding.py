"""Store forwarding: a block that was stored and is loaded again from the same address stays in registers."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


class StoreForwarding(FunctionEdit):
    name = "store_forwarding"
    summary = "a value stored and loaded again at the same address is kept in registers"

    def change(self, view: View) -> list[Change]:
        patch = tree.Patch(view.text)
        found = 0
        for block in tree.blocks(view.body):
            for at, stmt in enumerate(block):
                if isinstance(stmt, ast.Expr) and tree.is_tl(stmt.value, "store"):
                    found += _forward(view, patch, stmt.value, block[at + 1 :])  # type: ignore[arg-type]
        if not found:
            raise CannotApply("no block is loaded again from where it was stored")
        return [Change(replaced(view, patch.text()), "A block that was just stored is not read back from memory.")]


def _forward(view: View, patch: tree.Patch, store: ast.Call, after: list[ast.stmt]) -> int:
    """Replaces loads of the stored address until something it needs changes; how many were replaced."""
    pointer, value = store.args[0], tree.argument(store, 1, "value")
    mask = tree.argument(store, 2, "mask")
    if value is None or view.shapes.of(pointer) is None or view.shapes.of(pointer) != view.shapes.of(value):
        return 0
    bases = [n for n in tree.reads(view.flow.expand(pointer, view.flow.at(store))) if n in view.function.params]
    base = next((b for b in bases if b.endswith("ptr")), None)
    needed, found = tree.reads(store), 0
    for stmt in after:
        if isinstance(stmt, (ast.For, ast.If, ast.While)):
            return found
        pair = tree.assignment(stmt)
        load = pair[1] if pair else None
        if load is not None and tree.is_tl(load, "load") and base is not None:
            other = tree.argument(load, 2, "other")  # type: ignore[arg-type]
            same = tree.same(load.args[0], pointer) and tree.same(tree.argument(load, 1, "mask"), mask)  # type: ignore
            if same:
                kept = f"{tree.parenthesised(tree.text_of(value))}.to({base}.dtype.element_ty)"
                if mask is not None and other is not None:
                    kept = f"tl.where({tree.text_of(mask)}, {kept}, {tree.text_of(other)})"
                patch.expr(load, kept)
                found += 1
        if tree.calls(stmt, "store") or tree.writes(stmt) & needed:
            return found
    return found
