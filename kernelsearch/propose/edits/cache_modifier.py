"""Cache modifiers: streamed loads bypass L1 (.cg), stores are marked as streaming (.cs)."""

from __future__ import annotations

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.streams import add_hints, find_streamed_loads, has_no_hint
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, Edit


class CacheModifier(Edit):
    name = "cache_modifier"
    summary = "cache_modifier .cg on streamed loads, .cs on stores"

    def change(self, view: View) -> list[Change]:
        loads = [c for c in find_streamed_loads(view) if has_no_hint(c)]
        stores = [c for c in tree.calls(view.node, "store") if has_no_hint(c) and view.shapes.of(c.args[0]) != ()]
        changes = []
        if loads:
            why = "Streamed loads bypass L1."
            changes.append(Change(view.rewrite(add_hints(view, loads, "cache_modifier", ".cg")), why))
        if stores:
            why = "Stores are marked as streaming, so that they do not push inputs out of L2."
            changes.append(Change(view.rewrite(add_hints(view, stores, "cache_modifier", ".cs")), why))
        if not changes:
            raise CannotApply("no streamed load and no block store lacks a cache modifier")
        return changes
