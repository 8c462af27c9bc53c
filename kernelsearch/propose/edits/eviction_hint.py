"""Eviction hint: blocks that are read once leave L2 first, so that other data stays there."""

from __future__ import annotations

from kernelsearch.propose.analysis.streams import add_hints, find_streamed_loads
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit


class EvictionHint(Edit):
    summary = 'eviction_policy="evict_first" on blocks that are read once'
    refusal = "no block is read by one program only and without a hint"

    def change(self, view: View) -> Changes:
        if loads := find_streamed_loads(view):
            patch = add_hints(view, loads, "eviction_policy", "evict_first")
            yield view.rewrite(patch, "Blocks that are read once leave L2 first, and others stay.")
