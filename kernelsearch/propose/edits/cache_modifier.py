"""Cache modifiers: streamed loads bypass L1 (.cg), stores are marked as streaming (.cs)."""

from __future__ import annotations

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.streams import hinted, streamed, unhinted
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


class CacheModifier(FunctionEdit):
    name = "cache_modifier"
    summary = "cache_modifier .cg on streamed loads, .cs on stores"

    def change(self, view: View) -> list[Change]:
        loads = [c for c in streamed(view) if unhinted(c)]
        stores = [c for c in tree.calls(view.node, "store") if unhinted(c) and view.shapes.of(c.args[0]) != ()]
        changes = []
        if loads:
            why = "Streamed loads bypass L1."
            changes.append(Change(replaced(view, hinted(view, loads, "cache_modifier", ".cg")), why))
        if stores:
            why = "Stores are marked as streaming, so that they do not push inputs out of L2."
            changes.append(Change(replaced(view, hinted(view, stores, "cache_modifier", ".cs")), why))
        if not changes:
            raise CannotApply("no streamed load and no block store lacks a cache modifier")
        return changes
