"""Eviction hint: blocks that are read once leave L2 first, so that other data stays there."""

from __future__ import annotations

from kernelsearch.propose.analysis.streams import add_hints, find_streamed_loads, has_no_hint
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, Edit


class EvictionHint(Edit):
    name = "eviction_hint"
    summary = 'eviction_policy="evict_first" on blocks that are read once'

    def change(self, view: View) -> list[Change]:
        loads = [c for c in find_streamed_loads(view) if has_no_hint(c)]
        if not loads:
            raise CannotApply("no block is read by one program only and without a hint")
        text = add_hints(view, loads, "eviction_policy", "evict_first")
        return [Change(view.rewrite(text), "Blocks that are read once leave L2 first, and others stay.")]
