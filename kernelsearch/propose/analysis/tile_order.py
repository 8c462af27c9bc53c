"""Loops over the tiles of a row: what they read, and whether their tiles may be done in any order."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import ACCESSES, LOAD, STORE, find_own_effects
from kernelsearch.propose.analysis.flow import find_unbound, strip_axes, terms
from kernelsearch.propose.analysis.view import View


def find_addresses(view: View, loop: ast.For) -> dict[str, ast.Call]:
    """The addresses that a loop over tiles loads from, with its bounds and one name for every loop's variable.

    Each with the last load that it is of.
    """
    bounds = tree.range_of(loop)
    if bounds is None or tree.callee(loop.iter) == "tl.static_range" or tree.loops(loop.body):
        return {}
    place, walked = tree.text_of(loop.target), ", ".join(map(tree.text_of, bounds))
    calls = [call for call in tree.calls(loop, "load") if call.args]
    found = [(view.flow.expand(call.args[0], view.flow.at(call)), call) for call in calls]
    named = [(tree.text_of(tree.rename(a, {place: "tile"})), call) for a, call in found if place in tree.reads(a)]
    return {f"{address} for tile in {walked}": call for address, call in named}


def has_no_order(view: View, loop: ast.For) -> bool:
    """Whether the iterations of a loop neither hand a value on, nor leave one, nor touch what others of them store."""
    start, size, step = tree.range_of(loop)  # type: ignore[misc]
    place, own = tree.text_of(loop.target), tree.writes(loop.body)
    options = {option.arg for option in tree.loop_options(loop)}
    if not isinstance(step, ast.Name) or options & {"warp_specialize", "flatten"} or tree.calls(loop, "dot"):
        return False
    if own & tree.reads([start, size, step]) or own & find_unbound(loop.body, {place}).keys():
        return False
    if (own | {place}) & find_read_later(view, loop):
        return False
    return _has_plain_accesses(view, loop, place, step.id)


def _has_plain_accesses(view: View, loop: ast.For, place: str, step: str) -> bool:
    """Whether each tile is stored to its own place, nothing else is changed, and nothing stored is loaded."""
    loaded, stored = find_accessed(view, loop)
    own_places = all(_is_own_place(view, c, place, step) for c in tree.calls(loop, "store"))
    return own_places and view.does_only(ACCESSES, loop) and "" not in loaded | stored and not loaded & stored


def find_accessed(view: View, nodes: tree.Nodes) -> tuple[set[str], set[str]]:
    """The pointers that statements load from and those that they store to, each with "" for what is not known."""
    accessed: dict[str, set[str]] = {LOAD: set(), STORE: set()}
    for call in (n for n in tree.walk(nodes) if isinstance(n, ast.Call)):
        for effect in find_own_effects(call, view.helpers) & ACCESSES:
            accessed[effect] |= find_pointers(view, call) if tree.is_tl(call, "load", "store") else {""}
    return accessed[LOAD], accessed[STORE]


def may_meet(loaded: set[str], stored: set[str]) -> bool:
    """Whether what is loaded may be what is stored."""
    return bool(loaded & stored or (loaded and "" in stored) or (stored and "" in loaded))


def find_pointers(view: View, call: ast.Call) -> set[str]:
    """The parameters that may be the pointer of an access, and an empty name where it may be something else."""
    parts = [p for _, p in terms(view.flow.expand(call.args[0], view.flow.at(call)))] if call.args else []
    plain = {p.id for p in parts if isinstance(p, ast.Name)}
    known = plain & set(view.function.params) - tree.writes(view.body)
    counted = {tree.text_of(loop.target) for loop in view.flow.loops_of(call)}
    return (known & view.pointers or known or {""}) | ({""} if plain - known - counted else set())


def _is_own_place(view: View, store: ast.Call, place: str, step: str) -> bool:
    """Whether a store's address is that of a tile: the loop's variable and `arange(0, step)`, once each."""
    if not store.args:
        return False
    parts = [(s, strip_axes(p)) for s, p in terms(view.flow.expand(store.args[0], view.flow.at(store)))]
    parts = [pair for sign, part in parts for pair in terms(part, sign)]
    moving = [tree.text_of(p) if s == 1 else "" for s, p in parts if place in tree.reads(p)]
    tiles = [p for s, p in parts if s == 1 and tree.text_of(p) == f"tl.arange(0, {step})"]
    return moving == [place] and len(tiles) == 1


def find_read_later(view: View, loop: ast.For) -> set[str]:
    """The names that are read after the loop before they are written: behind it, and in later turns around it."""
    found: set[str] = set()
    here: ast.stmt = loop
    for holder in (*view.flow.holders_of(loop), None):
        block = view.flow.block_of(here)
        found |= find_unbound(block[block.index(here) + 1 :]).keys()
        if isinstance(holder, (ast.For, ast.While)):
            found |= find_unbound([holder]).keys()
        here = holder or here
    return found
