"""Tiles through tensor descriptors: the hardware's copy engine (TMA, from Hopper on) computes addresses and bounds.

A masked load of a two-dimensional tile costs registers and instructions for addresses and masks in every thread; a
descriptor load is one instruction of one thread, and elements outside the matrix read as zero. It needs an aligned
base, a unit stride along one axis, and a multiple of 16 bytes along the other (CUDA Driver API,
cuTensorMapEncodeTiled; here 16 elements, whatever their size). A constexpr that the launch computes says whether all
of that holds; the pointers remain for when it does not. On devices without the engine Triton lowers both alike.

A descriptor is made in the kernel, or on the host where the launch knows all of it. Each program of the kernel writes
its own to memory and reads it back through the engine; one of the host is a parameter.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from kernelsearch.core.errors import ExpressionError
from kernelsearch.kernel.expressions import validate
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import Dependence, factors, terms
from kernelsearch.propose.analysis.tiles import Tile, TileAxis, find_unit_axis, tile_of
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.loop_stages import find_loops_without, with_option

ELEMENTS = 16
"""A stride that is a multiple of this many elements is a multiple of 16 bytes for every dtype."""
FALLBACK_STAGES = 2
NOT_AHEAD = "1"
"""The stages of a loop around others that makes descriptors: Triton 3.6 cannot run ahead of the making of one, and
tries to where an inner loop turns only once."""


@dataclass(frozen=True)
class Descriptor:
    """A matrix as a descriptor: its name, the constexpr that allows it, and the condition of that constexpr.

    definition is the statement that makes it at the access, empty if it is made earlier. flipped: the tile's first
    axis has the unit stride, which a descriptor has last. spec is that of the launch, if it is made on the host.
    """

    name: str
    flag: str
    condition: str
    definition: str
    flipped: bool
    spec: tuple[str | None, ...] = ()


class TensorDescriptor(Edit):
    summary = "tiles are loaded and stored through tensor descriptors (TMA), where strides and addresses allow"

    def change(self, view: View) -> Changes:
        refuse_if(not view.task.copy_engine, "the target has no copy engine: a descriptor is a pointer there")
        if tree.calls(view.node, "make_tensor_descriptor") or view.kernel.descriptors_of(view.function.name):
            raise NotApplicable("it has tensor descriptors already")
        changes = (
            _described(View(view.kernel, view.function, view.task), stores, on_host)
            for on_host in (False, True)
            for stores in (False, True)
        )
        return filter(None, changes)


def _tiles(view: View, function: str) -> tuple[list[Tile], list[str]]:
    """The accesses that a descriptor can make, and the reasons why others cannot."""
    tiles, reasons = [], []
    for call in tree.calls(view.node, function):
        try:
            refuse_if(len(view.shapes.of(call.args[0]) or ()) != 2, "no access is to a tile of two axes")
            tiles.append(_eligible(view, tile_of(view, call)))
        except NotApplicable as reason:
            reasons.append(str(reason))
    return tiles, reasons


def _eligible(view: View, tile: Tile) -> Tile:
    if not isinstance(tile.stmt, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)):
        raise NotApplicable("an access is in the head of a loop or a branch")
    other = tree.argument(tile.call, 2, "other") if tree.is_tl(tile.call, "load") else None
    refuse_if(other is not None and not tree.is_number(other, 0), "masked-out elements are not read as zero")
    wide = {n for launch in view.launches for n, a in launch.args.items() if getattr(a, "dtype", "") == "i64"}
    is_wide = lambda n: (isinstance(n, ast.Name) and n.id in wide) or tree.text_of(n) == "tl.int64"  # noqa: E731
    long = Dependence(view.body, is_wide, control=False)
    refuse_if(
        any(long.reaches(tree.expression(a.origin)) for a in tile.axes), "a descriptor's coordinates have 32 bits"
    )
    if any(launch.args.get(tile.pointer, 0) is None for launch in view.own_launches):
        raise NotApplicable("a matrix is not passed at all shapes")
    known = set(view.function.params) - tree.writes(view.body)
    refuse_if(any(tree.reads(tree.expression(axis.stride)) - known for axis in tile.axes), "a stride is no argument")
    return tile


def _described(view: View, stores: bool, on_host: bool) -> Change | None:
    """The function with loads (and stores) through descriptors, on_host where possible. Changes the view.

    None if no store can use one, or none can be made on the host.
    """
    tiles, reasons = _tiles(view, "load")
    refuse_if(not tiles, next(iter(reasons), "there is no load"))
    more = _tiles(view, "store")[0] if stores else []
    if stores and not more:
        return None
    patch = tree.Patch(view.text)
    descriptors: dict[tuple, Descriptor] = {}
    accesses: dict[ast.stmt, list[tuple[Tile, Descriptor]]] = {}
    for tile in [*tiles, *more]:
        descriptor = _descriptor(view, tile, descriptors, patch, on_host)
        accesses.setdefault(tile.stmt, []).append((tile, descriptor))
    for stmt, used in accesses.items():
        patch.replace_stmt(stmt, _either(stmt, used))
    _limit_stages(view, [pair for used in accesses.values() for pair in used], patch)
    made = [key[0] for key, d in descriptors.items() if not d.spec]
    for loop in find_loops_without(view, "num_stages"):
        if tree.loops(loop.body) and any(loop.lineno < line <= (loop.end_lineno or 0) for line in made):
            patch.replace_expr(loop.iter, with_option(loop, "num_stages", NOT_AHEAD))
    specs = {d.name: d.spec for d in descriptors.values() if d.spec}
    if on_host and not specs:
        return None
    for name in specs:
        patch.add_param(name)
    what, of = "Loads and stores" if stores else "Loads", " of the host" if on_host else ""
    why = f"{what} go through tensor descriptors{of}, so that the copy engine computes addresses and bounds."
    change = view.rewrite(patch, why, flags={d.flag: d.condition for d in descriptors.values()})
    return replace(change, kernel=change.kernel.with_changes(descriptors={**view.kernel.descriptors, **specs}))


def _limit_stages(view: View, accesses: list[tuple[Tile, Descriptor]], patch: tree.Patch) -> None:
    """Lets loops run only one tile ahead where a descriptor cannot be made.

    There addresses are odd, or elements wide: as many tiles ahead as suit the copy engine would not fit into memory.
    """
    for loop in find_loops_without(view, "num_stages"):
        flags = [
            d.flag for t, d in accesses if view.flow.loops_of(t.call)[-1:] == [loop] and tree.is_tl(t.call, "load")
        ]
        if flags:
            limit = f"None if {' and '.join(dict.fromkeys(flags))} else {FALLBACK_STAGES}"
            patch.replace_expr(loop.iter, with_option(loop, "num_stages", limit))


def _descriptor(view: View, tile: Tile, known: dict[tuple, Descriptor], patch: tree.Patch, on_host: bool) -> Descriptor:
    """The descriptor of the tile's matrix, from known if possible.

    It is made on the host if it may be and the launch knows all of it, else at the top of the body if nothing there
    changes it, else before the outermost loop that does not.
    """
    steady = (s for s in view.flow.loops_of(tile.call) if not tile.ingredients & tree.writes(s))
    place = next(steady, tile.stmt) if tile.ingredients & tree.writes(view.body) else view.body[0]
    unit = find_unit_axis(view, tile)
    rows, columns = tile.axes[1 - unit], tile.axes[unit]
    key = (place.lineno, tile.pointer, tile.offset, *((a.width, a.stride, a.size) for a in (rows, columns)))
    if key not in known:
        base = tile.pointer.removesuffix("_ptr")
        name, flag = view.fresh_name(f"{base}_tiles"), view.fresh_name(f"{base.upper()}_TMA")
        address = f"{tile.pointer} + {tile.offset}" if tile.offset else tile.pointer
        condition, flipped = _condition(view, tile, rows, columns), unit == 0
        if on_host and (spec := _spec_of(view, tile, rows, columns)):
            known[key] = Descriptor(name, flag, condition, "", flipped, spec)
            return known[key]
        shape = f"[{rows.size}, {columns.size}], [{rows.stride}, 1], [{rows.width}, {columns.width}]"
        text = f"{name} = tl.make_tensor_descriptor({address}, {shape})"
        here = place is tile.stmt
        known[key] = Descriptor(name, flag, condition, text if here else "", flipped)
        if not here:
            patch.insert_before(place, f"if {flag}:\n    {text}\n")
    return known[key]


def _spec_of(view: View, tile: Tile, rows: TileAxis, columns: TileAxis) -> tuple[str | None, ...]:
    """The matrix as the launch makes its descriptor, None where it cannot; empty if the launch does not know it."""
    sizes = (f"({rows.size}, {columns.size})", f"({rows.stride}, 1)", f"({rows.width}, {columns.width})")
    if tile.offset or tile.ingredients & tree.writes(view.body) or not tile.ingredients <= {*view.function.params}:
        return ()
    try:
        for text in sizes:
            validate(text)
    except ExpressionError:
        return ()
    return (tile.pointer, *sizes, None)


def _condition(view: View, tile: Tile, rows: TileAxis, columns: TileAxis) -> str:
    """The condition under which the hardware can make this descriptor, in the language of the launch spec."""
    parts = [] if tile.pointer in view.kernel.scratch else [f"aligned({tile.pointer})"]
    if columns.stride != "1":
        parts.append(f"{columns.stride} == 1")
    parts.append(f"{rows.stride} % {ELEMENTS} == 0")
    for _, term in terms(view.flow.expand(tree.expression(tile.offset), tile.stmt)) if tile.offset else ():
        names = [f.id for f in factors(term) if isinstance(f, ast.Name) and f.id in view.function.params]
        refuse_if(not names, "an offset of the matrix may not be aligned")
        parts.append(f"{names[-1]} % {ELEMENTS} == 0")
    parts.append(f"{columns.width} >= {ELEMENTS}")
    return " and ".join(dict.fromkeys(parts))


def _either(stmt: ast.stmt, accesses: list[tuple[Tile, Descriptor]]) -> str:
    """A branch: the statement with its accesses through descriptors, or as it was."""
    calls = {t.call: (t, d) for t, d in accesses}

    def through(node: ast.AST) -> ast.AST | None:
        if node not in calls:
            return None
        tile, descriptor = calls[node]
        at = ", ".join(a.origin for a in (tile.axes[::-1] if descriptor.flipped else tile.axes))
        flip = "tl.trans({})" if descriptor.flipped else "{}"
        if tree.is_tl(node, "load"):
            return tree.expression(flip.format(f"{descriptor.name}.load([{at}])"))
        value = tree.text_of(tree.argument(node, 1, "value"))  # type: ignore[arg-type]
        cast = f".to({tile.pointer}.dtype.element_ty)"
        value = value if value.endswith(cast) else tree.parenthesise(value) + cast
        return tree.expression(f"{descriptor.name}.store([{at}], {flip.format(value)})")

    old, new = tree.text_of(stmt), tree.text_of(tree.transform(stmt, through))
    flags = " and ".join(dict.fromkeys(d.flag for _, d in accesses))
    definitions = "".join(f"    {text}\n" for text in dict.fromkeys(d.definition for _, d in accesses) if text)
    return f"if {flags}:\n{definitions}    {new}\nelse:\n    {old}\n"
