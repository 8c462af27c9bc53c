"""What statements do besides giving names their values: what an edit asks before it moves, repeats or drops them.

It is a list of what is known to do nothing more. An unknown call may do anything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from kernelsearch.kernel.language import FUNCTIONS, METHODS
from kernelsearch.kernel.source import Function
from kernelsearch.propose.analysis import tree

LOAD, STORE, LEAVE = "loads", "stores", "returns early"
OTHER = "has atomics, barriers, assertions or unknown calls"
"""What a statement does, as words behind `it`."""
READS = frozenset({LOAD})
ACCESSES = frozenset({LOAD, STORE})

_MEMORY = {
    "load": LOAD, "load_tensor_descriptor": LOAD, "gather": LOAD,
    "store": STORE, "store_tensor_descriptor": STORE, "scatter": STORE,
}  # fmt: skip
_LOUD = frozenset({"device_assert", "debug_barrier", *(n for n in {*FUNCTIONS, *METHODS} if n.startswith("atomic_"))})
_PLAIN = frozenset("float int bool min max abs len range triton.cdiv triton.next_power_of_2".split())
_GIVEN = {"reduce": (2, "combine_fn"), "associative_scan": (2, "combine_fn"), "map_elementwise": (0, "scalar_fn")}
"""Which argument is a function that is called."""


def find_effects(
    nodes: ast.AST | Iterable[ast.AST], helpers: Mapping[str, Function] = {}, but: Iterable[ast.AST] = ()
) -> set[str]:
    """The effects that statements or expressions may have, without those of but; helpers are what they may call."""
    found: set[str] = set()
    skipped = {id(n) for top in but for n in ast.walk(top)}
    for top in [nodes] if isinstance(nodes, ast.AST) else nodes:
        for node in (n for n in ast.walk(top) if id(n) not in skipped):
            match node:
                case ast.Return():
                    found.add(LEAVE)
                case ast.Assert() | ast.Raise() | ast.Break() | ast.Continue() | ast.Delete() | ast.With() | ast.Try():
                    found.add(OTHER)
                case ast.Call():
                    found |= find_own_effects(node, helpers)
    return found


def find_own_effects(call: ast.Call, helpers: Mapping[str, Function]) -> set[str]:
    """Those of a call, without those of its arguments."""
    name = tree.callee(call)
    head, _, tail = name.rpartition(".")
    if name in helpers:
        return _find_of_function(name, helpers)
    if name in _PLAIN or head == "libdevice":
        return set()
    known = FUNCTIONS.keys() if head in ("tl", "tl.math") else METHODS if isinstance(call.func, ast.Attribute) else ()
    tail = call.func.attr if isinstance(call.func, ast.Attribute) else tail
    if tail not in known or tail in _LOUD or tree.argument(call, None, "volatile"):
        return {OTHER}
    given = tree.argument(call, *_GIVEN[tail]) if tail in _GIVEN and head else None
    if isinstance(given, ast.Name):
        return _find_of_function(given.id, helpers) if given.id in helpers else {OTHER}
    return {_MEMORY[tail]} if tail in _MEMORY and name != "tl.gather" else set()


def _find_of_function(name: str, helpers: Mapping[str, Function]) -> set[str]:
    """What a call of a helper may do; its returns end only itself."""
    others = {n: f for n, f in helpers.items() if n != name}
    return find_effects(tree.function_of(helpers[name].text).body, others) - {LEAVE}
