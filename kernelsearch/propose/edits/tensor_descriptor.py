"""Tiles through tensor descriptors: the hardware's copy engine (TMA, from Hopper on) computes addresses and bounds.

A masked load of a two-dimensional tile costs registers and instructions for addresses and masks in every thread; a
descriptor load is one instruction of one thread, and what lies outside of the matrix reads as zero. It asks for an
aligned base, a unit stride along one axis, and a multiple of 16 bytes along the other (CUDA Driver API,
cuTensorMapEncodeTiled; 16 elements here, whatever their size): a constexpr that the launch computes says whether all
of that holds, and the pointers stay for where it does not. On devices without the engine Triton lowers both alike.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import factors, terms
from kernelsearch.propose.analysis.tiles import Axis, Tile, tile_of
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced

ELEMENTS = 16
"""A stride that is a multiple of as many elements is one of 16 bytes for every dtype."""


@dataclass(frozen=True)
class Descriptor:
    """A matrix as a descriptor: its name, the constexpr that allows it, that one's condition.

    made is the statement that makes it right where it is used, empty when it is made earlier; flipped says that the
    tile's first axis is the one of unit stride, which a descriptor has last.
    """

    name: str
    flag: str
    condition: str
    made: str
    flipped: bool


class TensorDescriptor(FunctionEdit):
    name = "tensor_descriptor"
    summary = "tiles are loaded and stored through tensor descriptors (TMA), where strides and addresses allow"

    def change(self, view: View) -> list[Change]:
        if tree.calls(view.node, "make_tensor_descriptor"):
            raise CannotApply("it has tensor descriptors already")
        found = [_described(View(view.kernel, view.function, view.task), stores) for stores in (False, True)]
        return [change for change in found if change is not None]


def _tiles(view: View, function: str, quiet: bool = False) -> list[Tile]:
    """The accesses that a descriptor can make. Raises CannotApply, with the first reason, when there are none."""
    found, reasons = [], []
    for call in tree.calls(view.node, function):
        try:
            if len(view.shapes.of(call.args[0]) or ()) != 2:
                raise CannotApply("no access is to a tile of two axes")
            found.append(_eligible(view, tile_of(view, call)))
        except CannotApply as reason:
            reasons.append(str(reason))
    if not found and not quiet:
        raise CannotApply(next(iter(reasons), f"there is no {function}"))
    return found


def _eligible(view: View, tile: Tile) -> Tile:
    if not isinstance(tile.stmt, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)):
        raise CannotApply("an access is in the head of a loop or a branch")
    other = tree.argument(tile.call, 2, "other") if tree.is_tl(tile.call, "load") else None
    if other is not None and not tree.is_number(other, 0):
        raise CannotApply("what is masked out is not read as zero")
    if any("int64" in a.origin for a in tile.axes):
        raise CannotApply("a descriptor's coordinates have 32 bits")
    known = set(view.function.params) - tree.writes(view.body)
    for axis in tile.axes:
        if not tree.reads(tree.expression(axis.stride)) <= known:
            raise CannotApply("a stride is no argument")
    return tile


def _described(view: View, stores: bool) -> Change | None:
    """The loads through descriptors, with the stores too; None when no store can. Changes the view's nodes."""
    tiles = _tiles(view, "load")
    if stores:
        more = _tiles(view, "store", quiet=True)
        if not more:
            return None
        tiles += more
    patch = tree.Patch(view.text)
    made: dict[tuple, Descriptor] = {}
    statements: dict[int, list[tuple[Tile, Descriptor]]] = {}
    for tile in tiles:
        descriptor = _descriptor(view, tile, made, patch)
        statements.setdefault(tile.stmt.lineno, []).append((tile, descriptor))
    for found in statements.values():
        patch.stmt(found[0][0].stmt, _either(found))
    args = {d.flag: d.condition for d in made.values()}
    for flag in args:
        patch.param(f"{flag}: tl.constexpr")
    what = "Loads and stores" if stores else "Loads"
    why = f"{what} go through tensor descriptors, so that the copy engine computes addresses and bounds."
    return Change(replaced(view, patch.text(), args=args), why)


def _descriptor(view: View, tile: Tile, made: dict[tuple, Descriptor], patch: tree.Patch) -> Descriptor:
    """The descriptor of the tile's matrix, made first of all, or before the outermost loop that leaves it the same."""
    steady = (s for s in view.flow.loops_of(tile.call) if not tile.ingredients & tree.writes(s))
    place = next(steady, tile.stmt)
    if not tile.ingredients & tree.writes(view.body):
        place = view.body[0]
    unit = _unit(view, tile)
    rows, columns = tile.axes[1 - unit], tile.axes[unit]
    key = (place.lineno, tile.pointer, tile.offset, *((a.width, a.stride, a.size) for a in (rows, columns)))
    if key not in made:
        base = tile.pointer.removesuffix("_ptr")
        name, flag = view.fresh(f"{base}_tiles"), view.fresh(f"{base.upper()}_TMA")
        address = f"{tile.pointer} + {tile.offset}" if tile.offset else tile.pointer
        shape = f"[{rows.size}, {columns.size}], [{rows.stride}, 1], [{rows.width}, {columns.width}]"
        text = f"{name} = tl.make_tensor_descriptor({address}, {shape})"
        here = place is tile.stmt
        made[key] = Descriptor(name, flag, _condition(view, tile, rows, columns), text if here else "", unit == 0)
        if not here:
            patch.before(place, f"if {flag}:\n    {text}\n")
    return made[key]


def _unit(view: View, tile: Tile) -> int:
    """The axis whose stride is 1: by the address, else by what the launcher passed, else the last."""
    for axis in (1, 0):
        if tile.axes[axis].stride == "1":
            return axis
    passed = [launch.args for trace in view.task.traces.values() for launch in trace.launches]
    for axis in (1, 0):
        values = {args[tile.axes[axis].stride] for args in passed if tile.axes[axis].stride in args}
        if values == {1}:
            return axis
    return 1


def _condition(view: View, tile: Tile, rows: Axis, columns: Axis) -> str:
    """When the hardware can make this descriptor, in the language of the launch spec."""
    parts = [] if tile.pointer in view.kernel.scratch else [f"aligned({tile.pointer})"]
    if columns.stride != "1":
        parts.append(f"{columns.stride} == 1")
    parts.append(f"{rows.stride} % {ELEMENTS} == 0")
    for _, term in terms(view.flow.expand(tree.expression(tile.offset), tile.stmt)) if tile.offset else ():
        names = [f.id for f in factors(term) if isinstance(f, ast.Name) and f.id in view.function.params]
        if not names:
            raise CannotApply("an offset of the matrix may not be aligned")
        parts.append(f"{names[-1]} % {ELEMENTS} == 0")
    parts.append(f"{columns.width} >= {ELEMENTS}")
    return " and ".join(dict.fromkeys(parts))


def _either(found: list[tuple[Tile, Descriptor]]) -> str:
    """The statement with its accesses through descriptors, or as it was."""
    stmt = found[0][0].stmt
    calls = {id(t.call): (t, d) for t, d in found}

    class Through(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            if id(node) not in calls:
                return self.generic_visit(node)
            tile, descriptor = calls[id(node)]
            axes = tile.axes[::-1] if descriptor.flipped else tile.axes
            at = ", ".join(a.origin for a in axes)
            if tree.is_tl(node, "load"):
                text = f"{descriptor.name}.load([{at}])"
                return tree.expression(f"tl.trans({text})" if descriptor.flipped else text)
            value = tree.text_of(tree.argument(node, 1, "value"))  # type: ignore[arg-type]
            cast = f".to({tile.pointer}.dtype.element_ty)"
            value = value if value.endswith(cast) else tree.parenthesised(value) + cast
            value = f"tl.trans({value})" if descriptor.flipped else value
            return tree.expression(f"{descriptor.name}.store([{at}], {value})")

    old = tree.text_of(stmt)
    new = tree.text_of(ast.fix_missing_locations(Through().visit(stmt)))
    flags = " and ".join(dict.fromkeys(d.flag for _, d in found))
    made = "".join(f"    {t}\n" for t in dict.fromkeys(d.made for _, d in found) if t)
    return f"if {flags}:\n{made}    {new}\nelse:\n    {old}\n"
