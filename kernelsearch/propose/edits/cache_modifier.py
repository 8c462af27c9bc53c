"""Cache modifiers: streamed loads bypass L1 (.cg), stores are marked as streaming (.cs)."""

from __future__ import annotations

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.streams import add_hints, find_streamed_loads, has_no_hint
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit


class CacheModifier(Edit):
    summary = "cache_modifier .cg on streamed loads, .cs on stores"
    refusal = "no streamed load and no block store lacks a cache modifier"

    def change(self, view: View) -> Changes:
        if loads := find_streamed_loads(view):
            yield view.rewrite(add_hints(view, loads, "cache_modifier", ".cg"), "Streamed loads bypass L1.")
        stores = [c for c in tree.calls(view.node, "store") if has_no_hint(c) and view.shapes.of(c.args[0]) != ()]
        if stores:
            why = "Stores are marked as streaming, so that they do not push inputs out of L2."
            yield view.rewrite(add_hints(view, stores, "cache_modifier", ".cs"), why)
