"""Stored operand: a kernel of its own computes an operand of a product once, not each program that uses a block of it.

A weight of 4 or 8 bits is unpacked and scaled by each program that takes a block of it: at many rows that costs more
than to write it out and to read it back. The new kernel has a program for each block of the operand.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from kernelsearch.core.types import TensorFact
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import ACCESSES, OTHER, READS
from kernelsearch.propose.analysis.flow import are_alike, drop_unread, factors, find_unbound, strip_axes, terms
from kernelsearch.propose.analysis.tiles import expand_blocks
from kernelsearch.propose.analysis.view import Change, Changes, View
from kernelsearch.propose.edits.base import Edit


@dataclass(frozen=True)
class Operand:
    """An operand that a loop computes; depth is its axis along the loop, steps are the statements in the loop for it.

    node is the operand in the statement that uses it, value the same with types of its own, like a tensor of its type.
    """

    node: ast.expr
    user: ast.stmt
    value: ast.expr
    loop: ast.For
    steps: list[ast.stmt]
    depth: int
    like: str


@dataclass(frozen=True)
class Extent:
    """Where an operand's other axis lies: what counts its blocks, a block and the axis's size."""

    block_id: ast.expr
    block: str
    size: str


class StoredOperand(Edit):
    summary = "an operand of a product that many programs would compute again is computed once, by a kernel of its own"
    refusal = "no loop computes an operand of a product from what it loads"
    usual_gain = 0.1

    def change(self, view: View) -> Changes:
        view.must_be_one_stage()
        view.must_only({*ACCESSES, OTHER}, view.body)
        for number, _ in enumerate(_list_operands(view)):
            own = replace(view)  # `_store` changes its tree
            if change := _store(own, next(islice(_list_operands(own), number, None))):
                yield change


def _list_operands(view: View) -> Iterator[Operand]:
    """The computed operands of the products in loops over a range from 0."""
    for loop in (s for s in view.body if isinstance(s, ast.For)):
        bounds = tree.range_of(loop)
        if bounds is None or not tree.is_number(bounds[0], 0) or tree.callee(loop.iter) == "tl.static_range":
            continue
        view.must_only(READS, [loop], "the loop")
        for stmt in filter(tree.assignment, loop.body):
            for dot in tree.calls(stmt, "dot"):
                for place, used in enumerate(dot.args[:2]):
                    flipped, node = _turn(used)
                    shape, other = view.shapes.of(node), view.flow.expand(dot.args[1 - place], stmt)
                    computed = not tree.is_tl(view.flow.expand(node, stmt), "load")
                    depth, like = int(flipped == place), _find_pointer(view, other)
                    value = _name_types(view, node, stmt)
                    steps = _find_steps(view, loop, stmt, value) if computed and like else None
                    if steps and shape and len(shape) == len({*shape}) == 2 and shape[depth] == tree.text_of(bounds[2]):
                        yield Operand(node, stmt, value, loop, steps, depth, like)


def _turn(node: ast.expr) -> tuple[bool, ast.expr]:
    """(Whether an operand is taken with its axes exchanged, the tile as it is computed)."""
    match node:
        case ast.Attribute(inner, "T"):
            return True, inner
        case ast.Call(args=[inner]) if tree.is_tl(node, "trans"):
            return True, inner
    return False, node


def _find_pointer(view: View, loaded: ast.expr) -> str:
    """The argument that a load reads, if the launcher passes a tensor; empty for any other expression."""
    pointers = tree.reads(loaded.args[0]) & view.pointers if tree.is_tl(loaded, "load") else set()
    facts = [launch.args.get(name) for launch in view.own_launches for name in pointers]
    return pointers.pop() if len(pointers) == 1 and all(isinstance(fact, TensorFact) for fact in facts) else ""


def _name_types(view: View, node: Any, stmt: ast.stmt) -> Any:
    """A copy with the types of loaded values named by their pointers, so that it does not need the values."""

    def name_type(inner: ast.AST) -> ast.AST | None:
        if not (isinstance(inner, ast.Attribute) and inner.attr == "dtype" and isinstance(inner.value, ast.Name)):
            return None
        pointer = _find_pointer(view, view.flow.expand(inner.value, stmt))
        return tree.expression(f"{pointer}.dtype.element_ty") if pointer else None

    return tree.transform(copy.deepcopy(node), name_type)


def _find_steps(view: View, loop: ast.For, stmt: ast.stmt, node: ast.expr) -> list[ast.stmt] | None:
    """The statements of the loop that compute a value of stmt from loads; None if others do, or a turn before."""
    needed, steps = tree.reads(node), list[ast.stmt]()
    for before in reversed(loop.body[: loop.body.index(stmt)]):
        if tree.writes(before) & needed:
            if not tree.assignment(before) or not view.does_only(READS, before):
                return None
            steps.insert(0, _name_types(view, before, before))
            needed |= tree.reads(steps[0])
    carried = set(find_unbound([*steps, ast.Expr(node)])) & tree.writes(loop.body)
    return steps if any(tree.calls(s, "load") for s in steps) and not carried else None


def _find_extent(view: View, block: str) -> Extent | None:
    """What a mask tells of the axis whose blocks have this size: an index of lanes is less than the axis's size."""
    for stmt in tree.all_statements(view.body):
        for node in ast.walk(tree.head_of(stmt)):
            if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt)):
                continue
            index, size = strip_axes(node.left), node.comparators[0]
            parts = [part for _, part in terms(strip_axes(expand_blocks(view, index, stmt)))]
            ids = [p for p in parts if isinstance(p, ast.BinOp) and any(are_alike(f, block) for f in factors(p))]
            of_blocks = len(parts) == 2 and any(are_alike(p, f"tl.arange(0, {block})") for p in parts) and len(ids) == 1
            known = set(view.function.params) - view.flow.assigned - view.pointers
            fixed = tree.reads(size) <= known and not any(isinstance(n, ast.Call) for n in ast.walk(size))
            if of_blocks and fixed and len(factors(ids[0])) == 2:
                counted = next(f for f in factors(ids[0]) if not are_alike(f, block))
                return Extent(counted, block, tree.text_of(size))
    return None


def _store(view: View, operand: Operand) -> Change | None:
    """The function that loads the operand, behind a kernel that stores it."""
    loop, shape, bounds = operand.loop, view.shapes.of(operand.node), tree.range_of(operand.loop)
    assert shape is not None and bounds is not None and isinstance(loop.target, ast.Name)
    extent = _find_extent(view, shape[1 - operand.depth])
    size, step, fresh = tree.text_of(bounds[1]), tree.text_of(bounds[2]), view.fresh_name
    if extent is None or not tree.reads(bounds[1]) <= set(view.function.params) - view.flow.assigned:
        return None
    pointer, at = fresh("operand_ptr"), view.body.index(loop)
    before, after = view.body[:at], view.body[at + 1 :]
    block_id = tree.parenthesise(tree.text_of(extent.block_id))
    across, place = _name_lanes(view, before, "across", f"{block_id} * {extent.block} + tl.arange(0, {extent.block})")
    along, start = _name_lanes(view, loop.body, "along", f"{loop.target.id} + tl.arange(0, {step})")
    (down, height), (right, width) = [(along, size), (across, extent.size)][:: 1 if operand.depth == 0 else -1]
    address = f"{pointer} + {down}[:, None].to(tl.int64) * {tree.parenthesise(width)} + {right}[None, :]"
    sides = ("[:, None]", "[None, :]")
    mask = f"{across}{sides[1 - operand.depth]} < {extent.size}"
    if _compares_turns(view, operand):
        mask = f"({mask}) & ({along}{sides[operand.depth]} < {size})"
    store = f"tl.store({address}, {tree.text_of(operand.value)}, mask={mask})"
    first = _write_first(view, operand, extent, [*before, *place], [*start, *tree.statements(store)])
    if first is None:
        return None
    loaded, inner, used = fresh("operand"), copy.copy(loop), loop.body.index(operand.user)
    swap = lambda n: ast.Name(loaded, ast.Load()) if n is operand.node else None  # noqa: E731
    load = tree.statements(f"{loaded} = tl.load({address}, mask={mask}, other=0.0)")
    user = tree.transform(operand.user, swap)
    inner.body = [*start, *loop.body[:used], *load, user, *loop.body[used + 1 :]]
    rest = drop_unread(copy.deepcopy([*before, *place, inner, *after]), view.helpers)
    grid = f"(cdiv({size}, {step}), cdiv({extent.size}, {extent.block}))"
    scratch = {pointer: (f"dtype({operand.like})", f"({height}, {width})")}
    new = view.make_stages(fresh(f"{view.function.name}_operand"), (first, rest), [pointer], grid, scratch)
    return Change(new, "An operand is computed once and stored; the products load it as it is.")


def _name_lanes(view: View, block: list[ast.stmt], base: str, lanes: str) -> tuple[str, list[ast.stmt]]:
    """(A name of these lanes, the statement that makes it, if the block has none)."""
    simple = [s for s in tree.all_statements(view.body) if not hasattr(s, "body")]
    for stmt in filter(tree.assignment, block):
        name, value = tree.assignment(stmt)  # type: ignore[misc]
        once = sum(name in tree.writes(s) for s in simple) == 1
        if once and view.shapes.of(value) and are_alike(expand_blocks(view, value, stmt), lanes):
            return name, []
    name = view.fresh_name(base)
    return name, tree.statements(f"{name} = {lanes}\n")


def _compares_turns(view: View, operand: Operand) -> bool:
    """Whether the loop compares lanes along its range, as where the last turn is not whole."""
    step = tree.text_of(tree.range_of(operand.loop)[2])  # type: ignore[index]
    compared = (node for node in tree.walk(operand.loop.body) if isinstance(node, ast.Compare))
    return any(step in (view.shapes.of(node) or ()) for node in compared)


def _write_first(
    view: View, operand: Operand, extent: Extent, before: list[ast.stmt], store: list[ast.stmt]
) -> list[ast.stmt] | None:
    """The body that computes and stores one block of the operand; None if that depends on the program otherwise."""
    step, turn = tree.text_of(tree.range_of(operand.loop)[2]), tree.text_of(operand.loop.target)  # type: ignore[index]
    counted = tree.expression("tl.program_id(1)")
    swap = lambda n: counted if isinstance(n, ast.expr) and are_alike(n, extent.block_id) else None  # noqa: E731
    head = tree.statements(f"{turn} = tl.program_id(0) * {step}\n")
    if isinstance(extent.block_id, ast.Name):
        own = extent.block_id.id
        before = [s for s in before if own not in tree.writes(s)]
        head += tree.statements(f"{own} = tl.program_id(1)\n")
        body = [*before, *operand.steps, *store]
    else:
        body = [tree.transform(copy.deepcopy(s), swap) for s in (*before, *operand.steps, *store)]
    body = drop_unread(copy.deepcopy(body), view.helpers)
    ids = [c for s in body for c in tree.calls(s, "program_id", "num_programs")]
    if (isinstance(extent.block_id, ast.Name) and ids) or any(tree.program_axis(c) != 1 for c in ids):
        return None
    return [*head, *body] if all(view.does_only(ACCESSES, s) for s in body) else None
