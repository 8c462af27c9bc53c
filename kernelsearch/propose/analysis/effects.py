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

_KNOWN = {
    **dict.fromkeys([*FUNCTIONS, *METHODS, *"float int bool min max abs len range next_power_of_2".split()], None),
    **dict.fromkeys(["load", "load_tensor_descriptor", "gather"], LOAD),
    **dict.fromkeys(["store", "store_tensor_descriptor", "scatter"], STORE),
    **dict.fromkeys([n for n in {*FUNCTIONS, *METHODS} if n.startswith(("atomic_", "device_", "debug_"))], OTHER),
}
"""What functions, methods and Python's own may do, by name."""
_CALLING = frozenset({"reduce", "associative_scan", "map_elementwise"})
"""Functions of `tl` that call what they are given."""
_QUIET = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.While, ast.If, ast.Pass)


def find_effects(nodes: tree.Nodes, helpers: Mapping[str, Function] = {}, but: Iterable[ast.AST] = ()) -> set[str]:
    """The effects that statements or expressions may have, without those of but; helpers are what they may call."""
    found: set[str] = set()
    skipped = set(map(id, tree.walk(but)))
    for node in (n for n in tree.walk(nodes) if id(n) not in skipped):
        if isinstance(node, ast.Call):
            found |= find_own_effects(node, helpers)
        elif isinstance(node, ast.stmt) and not isinstance(node, _QUIET):
            found.add(LEAVE if isinstance(node, ast.Return) else OTHER)
    return found


def find_own_effects(call: ast.Call, helpers: Mapping[str, Function]) -> set[str]:
    """Those of a call, without those of its arguments; of a function that it is given to call, as of its own."""
    name, tail = tree.callee(call), call.func.attr if isinstance(call.func, ast.Attribute) else ""
    given = [a.id for a in (*call.args, *(k.value for k in call.keywords)) if isinstance(a, ast.Name)]
    called = [n for n in (name, *given) if n in helpers]
    found = set().union(*(_find_of_function(n, helpers) for n in called))
    if name in helpers or name.startswith(("libdevice.", "tl.math.")):  # modules of arithmetic
        return found
    tail = tail if name.rpartition(".")[0] != "tl" or tail in FUNCTIONS else ""
    loud = tree.argument(call, None, "volatile") or (tail in _CALLING and name.startswith("tl.") and not called)
    effect = OTHER if loud else _KNOWN.get(tail or name, OTHER)
    return found | ({effect} if effect and name != "tl.gather" else set())


def _find_of_function(name: str, helpers: Mapping[str, Function]) -> set[str]:
    """What a call of a helper may do; its returns end only itself."""
    others = {n: f for n, f in helpers.items() if n != name}
    return find_effects(tree.function_of(helpers[name].text).body, others) - {LEAVE}
