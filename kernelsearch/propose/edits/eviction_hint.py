"""Eviction hint: blocks that are read once leave L2 first, so that other data stays there."""

from __future__ import annotations

from kernelsearch.propose.analysis.streams import hinted, streamed, unhinted
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


class EvictionHint(FunctionEdit):
    name = "eviction_hint"
    summary = 'eviction_policy="evict_first" on blocks that are read once'

    def change(self, view: View) -> list[Change]:
        some = [c for c in streamed(view) if unhinted(c)]
        if not some:
            raise CannotApply("no block is read by one program only and without a hint")
        text = hinted(view, some, "eviction_policy", "evict_first")
        return [Change(replaced(view, text), "Blocks that are read once leave L2 first, and others stay.")]
