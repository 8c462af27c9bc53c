"""Back to front: a loop over tiles that an earlier loop has read goes from the last tile, which is still in L2.

The programs that run together may hold more rows than L2 does. What a program has read last is there, and what it has
read first is not: a second pass in the same order finds each tile just after it was displaced.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit


class WalkBack(Edit):
    summary = "a later loop over the same tiles starts at the last one, which is still in L2"
    refusal = "no loop without an order reads tiles that a loop before it has read from the first to the last"

    def change(self, view: View) -> Changes:
        patch = tree.Patch(view.text)
        for block in tree.blocks(view.body):
            earlier: list[ast.For] = []
            for at, stmt in enumerate(block):
                if not isinstance(stmt, ast.For) or not _walks_tiles(stmt):
                    continue
                if any(_read_alike(view, one, stmt) for one in earlier) and _has_no_order(view, block, at):
                    _turn(view, patch, stmt)
                else:
                    earlier.append(stmt)
        if not patch.is_empty:
            yield view.rewrite(patch, "The row is read again from its end, which is still in L2.")


def _walks_tiles(loop: ast.For) -> bool:
    """Whether a loop goes over tiles, holds no other loop and no product, and has no option that wants its order."""
    bounds = tree.range_of(loop)
    if bounds is None or tree.callee(loop.iter) == "tl.static_range" or tree.loops(loop.body):
        return False
    special = any(option.arg in ("warp_specialize", "flatten") for option in tree.loop_options(loop))
    return isinstance(bounds[2], ast.Name) and not special and not tree.calls(loop, "dot")


def _read_alike(view: View, one: ast.For, other: ast.For) -> bool:
    """Whether two loops with the same bounds load from the same addresses, tile by tile."""
    same = all(tree.is_same(a, b) for a, b in zip(tree.range_of(one) or (), tree.range_of(other) or ()))
    return same and bool(_addresses(view, one) & _addresses(view, other))


def _addresses(view: View, loop: ast.For) -> set[str]:
    """The addresses that a loop loads from, with one name for every loop's variable."""
    assert isinstance(loop.target, ast.Name)
    found = (view.flow.expand(call.args[0], view.flow.at(call)) for call in tree.calls(loop, "load") if call.args)
    named = (
        tree.rename(address, {loop.target.id: "tile"}) for address in found if loop.target.id in tree.reads(address)
    )
    return set(map(tree.text_of, named))


def _has_no_order(view: View, block: Sequence[ast.stmt], at: int) -> bool:
    """Whether the loop's iterations neither hand a value on, nor leave one, nor read what others of them store."""
    loop, later = block[at], block[at + 1 :]
    assert isinstance(loop, ast.For)
    own = tree.writes(loop.body)
    outside = [] if block is view.body else [s for s in view.body if block[0] not in set(ast.walk(s))]
    handed = (
        _entering(loop.body) | _entering(later) | (_entering(block) if outside or block is not view.body else set())
    )
    loaded, stored = ({_base(view, c) for c in tree.calls(loop, name)} for name in ("load", "store"))
    return not own & (handed | tree.reads(outside)) and not loaded & stored


def _base(view: View, call: ast.Call) -> frozenset[str]:
    """The pointer arguments from which an access computes its address."""
    address = view.flow.expand(call.args[0], view.flow.at(call)) if call.args else ast.Constant(0)
    names = tree.reads(address) & set(view.function.params)
    return frozenset(n for n in names if n.endswith("ptr")) or frozenset(names)


def _entering(body: Sequence[ast.stmt]) -> set[str]:
    """The names whose values from before the statements may be read in them."""
    found: set[str] = set()
    known: set[str] = set()
    for stmt in body:
        if isinstance(stmt, ast.For):
            found |= (tree.reads(stmt.iter) | (_entering(stmt.body) - tree.writes(stmt.target))) - known
        elif isinstance(stmt, (ast.If, ast.While)):
            found |= (tree.reads(stmt.test) | _entering(stmt.body) | _entering(stmt.orelse)) - known
        else:
            found |= tree.reads(stmt) - known
            known |= tree.writes(stmt)
    return found


def _turn(view: View, patch: tree.Patch, loop: ast.For) -> None:
    """The loop with its variable counted from the end; it still goes upwards itself, as pipelining needs."""
    low, high, step = map(tree.text_of, tree.range_of(loop))  # type: ignore[arg-type]
    assert isinstance(loop.target, ast.Name)
    back, place = view.fresh_name("back"), loop.target.id
    fresh = tree.with_range(loop, low, high, step)
    fresh.target = ast.Name(back, ast.Store())
    tiles = high if low == "0" else f"{tree.parenthesise(high)} - {tree.parenthesise(low)}"
    twice = "" if low == "0" else f"2 * {tree.parenthesise(low)} + "
    first = tree.statements(f"{place} = {twice}(tl.cdiv({tiles}, {step}) - 1) * {step} - {back}")
    fresh.body = [*first, *fresh.body]
    patch.replace_stmt(loop, tree.text_of(fresh) + "\n")
