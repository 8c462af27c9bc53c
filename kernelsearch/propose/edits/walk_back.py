"""Back to front: a loop over tiles that an earlier loop has read goes from the last tile, which is still in L2.

The programs that run together may hold more rows than L2 does. What a program has read last is there, and what it has
read first is not: a second pass in the same order finds each tile just after it was displaced.
"""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.tile_order import find_addresses, has_no_order
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit


class WalkBack(Edit):
    summary = "a later loop over the same tiles starts at the last one, which is still in L2"
    refusal = "no loop without an order reads tiles that a loop before it has read from the first to the last"

    def change(self, view: View) -> Changes:
        patch = tree.Patch(view.text)
        for block in tree.blocks(view.body):
            forward: dict[frozenset[str], bool] = {}  # the addresses that loops have read, and in which direction last
            for stmt in block:
                if not isinstance(stmt, ast.For) or not (read := frozenset(find_addresses(view, stmt))):
                    continue
                before = next((d for one, d in reversed(forward.items()) if one & read), False)
                turned = before and has_no_order(view, stmt)
                if turned:
                    _turn(view, patch, stmt)
                forward.pop(read, None)
                forward[read] = not turned
        if not patch.is_empty:
            yield view.rewrite(patch, "The row is read again from its end, which is still in L2.")


def _turn(view: View, patch: tree.Patch, loop: ast.For) -> None:
    """The loop with a variable that counts from the end; it still goes upwards itself, as pipelining needs."""
    low, high, step = map(tree.text_of, tree.range_of(loop))  # type: ignore[arg-type]
    place = tree.text_of(loop.target)
    back, turned = view.fresh_name("back"), view.fresh_name(f"{place}_back")
    fresh = tree.with_range(loop, low, high, step)
    fresh.target = ast.Name(back, ast.Store())
    tiles = high if low == "0" else f"{tree.parenthesise(high)} - {tree.parenthesise(low)}"
    twice = "" if low == "0" else f"2 * {tree.parenthesise(low)} + "
    first = tree.statements(f"{turned} = {twice}(tl.cdiv({tiles}, {step}) - 1) * {step} - {back}")
    fresh.body = [*first, *(tree.rename(s, {place: turned}) for s in fresh.body)]  # type: ignore[list-item]
    patch.replace_stmt(loop, tree.text_of(fresh) + "\n")
