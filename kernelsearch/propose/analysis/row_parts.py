"""Whether a row's tiles may be parts of it that several programs share: each check raises NotApplicable if not."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.device_functions import DEVICE_FUNCTIONS
from kernelsearch.propose.analysis.flow import find_dependent, touches
from kernelsearch.propose.analysis.shapes import ACROSS, REDUCTIONS
from kernelsearch.propose.analysis.tile_order import find_pointers
from kernelsearch.propose.analysis.view import NotApplicable, View, refuse_if

ENTANGLED = (
    REDUCTIONS
    | ACROSS
    | frozenset("topk gather histogram softmax cat join split interleave trans permute reshape view ravel dot".split())
)
"""Functions and methods whose result depends on other elements of a tile, or on their order."""

OF_PROGRAM = ("program_id", "num_programs", "atomic")
"""What no helper function may have: it is not seen there which row is meant."""


def must_be_of_one_row(view: View, high: ast.expr, step: str) -> None:
    """The number of parts is known before the launch, and nothing but the function itself says which row is meant."""
    known = (ast.Name, ast.Constant, ast.BinOp, ast.operator, ast.expr_context)
    plain = all(isinstance(n, known) for n in ast.walk(high))
    if not plain or not tree.reads(high) <= {*view.function.params} - {step}:
        raise NotApplicable("the parts of a row cannot be counted before the launch")
    if view.axes != (0,) or tree.calls(view.node, "num_programs"):
        raise NotApplicable("its program is not a number along axis 0 alone")
    if any(word in function.text for function in view.helpers.values() for word in OF_PROGRAM):
        raise NotApplicable("a function that it calls asks for the program")


def must_not_count_tiles(view: View, loops: Iterable[ast.For], step: str) -> None:
    """A tile's width and place are only used to say which elements it has."""
    above = {id(inner): outer for outer in ast.walk(view.node) for inner in ast.iter_child_nodes(outer)}
    name = view.function.name
    texts = [*view.kernel.args.get(name, {}).values(), view.kernel.grid.get(name, "1").strip()]
    asserted = [s for s in view.node.body if tree.is_assertion(s)]
    if step in tree.reads([*map(tree.expression, texts), *asserted]):
        raise NotApplicable("what the launch computes, or what is asserted, depends on the width of a tile")
    for node in (n for s in view.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == step):
        around = above[id(node)]
        listed = isinstance(around, (ast.List, ast.Tuple))
        shape = listed and tree.is_tl(above[id(around)], "zeros", "full", "broadcast_to")
        if not shape and not tree.is_tl(around, "arange") and tree.callee(around) not in ("range", "tl.range"):
            raise NotApplicable("it computes with the width of a tile")
    for loop in loops:
        places = tree.writes(loop.target)
        for part in (n for s in loop.body for n in ast.walk(s)):
            if isinstance(part, ast.Name) and part.id in places and isinstance(part.ctx, ast.Load):
                around = above[id(part)]
                if isinstance(around, ast.Assign) and (pair := tree.assignment(around)):
                    places.add(pair[0])
                elif not isinstance(around, ast.BinOp) or not isinstance(around.op, (ast.Add, ast.Sub)):
                    _must_be_given_to_known(above, part)


def _must_be_given_to_known(above: dict[int, ast.AST], node: ast.AST) -> None:
    """A tile's place may be what a seed's own device function is given: it takes it for the first one's."""
    while isinstance(node, (ast.Name, ast.Compare)):
        node = above[id(node)]
    refuse_if(tree.callee(node) not in DEVICE_FUNCTIONS, "it computes with the place of a tile")


def must_be_masked(view: View, loops: Iterable[ast.For], size: str) -> None:
    """No access of a tile goes beyond the row, however wide the tile is."""
    for loop in loops:
        place = tree.text_of(loop.target)
        for call in tree.calls(ast.Module(loop.body, []), "load", "store"):
            stmt = view.flow.at(call)
            address, mask = (view.flow.expand(n, stmt) if n else None for n in (call.args[0], tree.mask_of(call)))
            tests = [c for c in ast.walk(mask) if isinstance(c, ast.Compare)] if mask else []
            bound = any(
                isinstance(c.ops[0], ast.Lt) and tree.text_of(c.comparators[0]) == size and place in tree.reads(c.left)
                for c in tests
            )
            if place in tree.reads(address) and not bound:  # type: ignore[arg-type]
                raise NotApplicable("an access is not masked at the end of the row")


def must_do_elements(loop: ast.For) -> None:
    """Each element of a tile is done by itself."""
    for call in (n for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        refuse_if(name in ENTANGLED, "it does not do each element of a tile by itself")


def must_not_decide(body: Iterable[ast.stmt], names: set[str]) -> None:
    """What these names hold is stored at most: no address and no mask depends on it."""
    body = list(body)
    moved = find_dependent(body, names)
    for call in tree.calls(ast.Module(body, []), "load", "store"):
        for part in filter(None, (tree.argument(call, 0, "pointer"), tree.mask_of(call))):
            refuse_if(touches(part, moved) or tree.calls(part, "load"), "what is loaded decides what else is")


def must_keep_axes(body: Iterable[ast.stmt], names: set[str]) -> None:
    """What these names hold is not turned: a lane stays where it is."""
    body = list(body)
    moved = find_dependent(body, names)
    for node in (n for s in body for n in ast.walk(s)):
        turned = isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in ("T", "shape"))
        refuse_if(turned and touches(node, moved), "what is loaded gets another axis")


def must_store_apart(view: View, loop: ast.For) -> None:
    """Nothing else uses what is stored once for a row, and nothing outside of the last loop what that stores."""
    accesses = tree.calls(ast.Module(view.body, []), "load", "store")
    outside = [c for c in accesses if loop not in view.flow.loops_of(c)]
    stored = set().union(*(find_pointers(view, c) for c in tree.calls(loop, "store")))
    refuse_if(any(stored & find_pointers(view, c) for c in outside), "what its last loop stores is used outside of it")
    for store in (c for c in outside if tree.is_tl(c, "store")):
        own = find_pointers(view, store)
        if "" in own or any(own & find_pointers(view, other) for other in accesses if other is not store):
            raise NotApplicable("what is stored of a row is used in another place too")
