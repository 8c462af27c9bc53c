"""Peel to an aligned start: tiles begin at the row's address rounded down, so inner accesses are whole vectors.

Rows with an odd stride have different alignments, and an access that may be unaligned is done element by element.
Here the columns shift by `lead`, the number of elements between the rounded-down address and the row: the first tile
masks them out, the tiles after it are aligned and need no mask, and a last one masks the end. A tile of several rows,
each of which has another alignment, becomes one row first.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import update_of
from kernelsearch.propose.analysis.effects import ACCESSES
from kernelsearch.propose.analysis.flow import find_unbound, terms
from kernelsearch.propose.analysis.idle import FALSE, FINITE, GROUPED, IDENTITY, Idle
from kernelsearch.propose.analysis.rescaled_sums import find_rescaled_sum
from kernelsearch.propose.analysis.tile_order import find_accessed, find_read_later, may_meet
from kernelsearch.propose.analysis.view import Change, Changes, View, refuse_if
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.one_row import take_one_row
from kernelsearch.propose.edits.peel_tail import remove_masks

VECTORS = ((8, 16, 64), 8)
"""Elements to which addresses are rounded down."""


@dataclass(frozen=True)
class RowLoop:
    """A loop over tiles of a row: its first statement is `cols = start + arange`, its addresses are scalar + cols."""

    loop: ast.For
    size: str
    step: str
    columns: str
    addresses: tuple[ast.BinOp, ...]


@dataclass(frozen=True)
class AlignedTiles:
    """A view whose loops over rows start `lead` elements, fewer than vec, before the row, and mask both ends."""

    view: View
    size: str
    lead: str
    vec: str
    masks: frozenset[str]


class AlignRows(Edit):
    summary = "tiles start at an aligned address, with a masked head and tail"
    refusal = "no loop goes over the tiles of a row at a scalar address"

    def change(self, view: View) -> Changes:
        one_row: View | None = view
        while one_row is not None:
            if loops := _row_loops(one_row, True):
                yield _aligned(one_row, loops)
                return
            one_row = take_one_row(one_row)


def align_every_tile(view: View) -> AlignedTiles | None:
    """The view with all tiles at aligned addresses; None if not every loop goes over a row at a scalar address.

    Each tile masks what lies before the row as it masks what lies behind it, so whatever is right for the last tile of
    a row is right for all.
    """
    loops = _row_loops(view, False)
    if not loops or len(loops) < len(tree.loops(view.body)) or len({(row.size, row.step) for row in loops}) > 1:
        return None
    frame = _Frame(view, loops)
    patch, head, size = tree.Patch(view.text), frame.head, loops[0].size
    for row in loops:
        ends = ("0", f"{size} + {frame.lead}", row.step)
        patch.replace_stmt(row.loop, head + _write_loop(_with_left_end(frame.move(row), row), *ends))
        head = ""
    kernel = view.rewrite(patch, "", tunables={frame.vec: VECTORS}, flags=frame.flags).kernel
    masks = {mask for row in loops for mask in (f"{row.columns} >= 0", f"{row.columns} < {size}")}
    return AlignedTiles(view.with_kernel(kernel), size, frame.lead, frame.vec, frozenset(masks))


def _row_loops(view: View, neutral: bool) -> list[RowLoop]:
    """The loops over tiles of a row in the first block that has any; neutral: only those `_neutral` is true of."""
    for block in tree.blocks(view.body):
        if loops := [r for s in block if isinstance(s, ast.For) and (r := _row_loop(view, s, neutral)) is not None]:
            return loops
    return []


def _row_loop(view: View, loop: ast.For, neutral: bool) -> RowLoop | None:
    bounds, first = tree.range_of(loop), tree.assignment(loop.body[0])
    if bounds is None or first is None or tree.loops(loop.body) or tree.callee(loop.iter) == "tl.static_range":
        return None
    start, size, step = tree.text_of(loop.target), tree.text_of(bounds[1]), tree.text_of(bounds[2])
    plain = size in view.function.params and step in view.function.constexprs and tree.is_number(bounds[0], 0)
    if not plain or tree.text_of(first[1]) != f"{start} + tl.arange(0, {step})":
        return None
    name, rest = first[0], loop.body[1:]
    if start in tree.reads(rest) or name in tree.writes(rest) or size in tree.writes(view.body):
        return None
    addresses = []
    for call in tree.calls(ast.Module(rest, []), "load", "store"):
        match call.args[0]:
            case address if name not in tree.reads(address):
                continue
            case ast.BinOp(left=row, op=ast.Add(), right=ast.Name(id=columns)) as address if columns == name:
                if view.shapes.of(row) != () or tree.reads(row) & tree.writes(loop):
                    return None
                addresses.append(address)
            case _:
                return None
    if not addresses or (neutral and not _neutral(view, loop, name, size)):
        return None
    return RowLoop(loop, size, step, name, tuple(addresses))


def _neutral(view: View, loop: ast.For, name: str, size: str) -> bool:
    """Whether masked-out lanes change nothing: every access is masked, every update folds in the identity."""
    wide = {n for n in tree.writes(loop.body) if view.shapes.names.get(n) != ()}
    idle = Idle(lambda c: tree.text_of(c) == f"{name} < {size}", lambda n: n in wide)
    seen: set[str] = set()
    carried = {u.name for s in loop.body if (u := update_of(s)) is not None}
    kept: dict[str, str] = {}
    step = find_rescaled_sum(loop)
    # Tiles begin elsewhere: no value of one may be left, and no element that is stored be loaded in another turn.
    left = find_read_later(view, loop) & tree.writes(loop) - find_unbound(loop.body).keys()
    accesses = tree.calls(ast.Module(loop.body, []), "load", "store")
    apart = not may_meet(*find_accessed(view, loop)) or len({tree.text_of(c.args[0]) for c in accesses}) == 1
    if left or not apart or not view.does_only(ACCESSES, loop):
        return False
    for stmt in loop.body:
        if step and stmt in step.own:
            if idle.of(step.highest.args[0]) not in (IDENTITY["max"], GROUPED):  # all groups together say the same
                return False
            continue
        if isinstance(stmt, (ast.For, ast.If, ast.While)):
            return False
        for call in tree.calls(stmt, "load", "store"):
            mask = tree.mask_of(call)
            masked, own = mask is not None and idle.of(mask) == FALSE, name in tree.reads(call.args[0])
            if (own and not masked) or (tree.is_tl(call, "store") and not own):
                return False
        update, pair = update_of(stmt), tree.assignment(stmt)
        if pair is not None and _keeps(*pair, idle, kept):
            continue
        if update is not None and update.name not in seen:
            value = update.value
            if tree.is_tl(value, "sum", "max", "min"):
                if not tree.is_tl(value, update.kind):
                    return False
                value = value.args[0]
            if idle.of(value) != IDENTITY[update.kind]:
                return False
        elif pair is not None:
            if (pair[0] in tree.reads(stmt) and pair[0] not in seen) or tree.reads(pair[1]) & carried:
                return False
            seen.add(pair[0])
            idle.assign(*pair)
    return True


def _keeps(name: str, value: ast.expr, idle: Idle, kept: dict[str, str]) -> bool:
    """Whether a step of an online sum by lane leaves idle lanes as they were: the maximum grows, the sum is rescaled.

    kept has the names that are, in idle lanes, the maximum of the turn before, and adds this one.
    """
    grown = None
    match value:
        case ast.Name(id=new):
            return kept.get(new) == name
        case ast.Call(args=[one, other]) if tree.is_tl(value, "maximum"):
            for own, tile in ((one, other), (other, one)):
                if isinstance(own, ast.Name) and own.id != name and idle.of(tile) == IDENTITY["max"]:
                    grown = own.id
        case ast.Call(args=[ast.Compare(left=ast.Name(id=tested)), ast.Constant(), ast.Name(id=new)]) if new == tested:
            grown = kept.get(new) if tree.is_tl(value, "where") else None
        case ast.BinOp(left=ast.BinOp(left=ast.Name(id=total), op=ast.Mult(), right=factor), op=ast.Add(), right=fresh):
            grows = _is_growth(factor, {*kept, *kept.values()})
            return total == name and grows and idle.of(fresh) == IDENTITY["sum"]
    if grown is not None:
        kept[name], idle.names[name] = grown, FINITE
    return grown is not None


def _is_growth(factor: ast.expr, maxima: set[str]) -> bool:
    """Whether this is `exp(a - b)`, or exp2 of a multiple of it, of two of these names."""
    match factor:
        case ast.Call(args=[ast.BinOp(power, ast.Mult(), ast.Constant()) | power], keywords=[]):
            match power:
                case ast.BinOp(ast.Name(one), ast.Sub(), ast.Name(other)):
                    return tree.is_tl(factor, "exp", "exp2") and {one, other} <= maxima
    return False


class _Frame:
    """Where aligned tiles of a row begin: `head` has the statements before the first loop that say so."""

    def __init__(self, view: View, loops: list[RowLoop]) -> None:
        self.vec = view.fresh_name("VEC")
        rows = _rows(view, loops)
        refuse_if(not rows, "no row's address is a pointer argument plus an offset")
        row_offset, floor, lead = view.fresh_name("row_offset"), view.fresh_name("row_floor"), view.fresh_name("lead")
        _, main = next(iter(rows.values()))
        head = f"{row_offset} = {main}\n{floor} = {row_offset} // {self.vec} * {self.vec}\n"
        head += f"{lead} = {row_offset} - {floor}\n"
        self.lead = lead
        self.flags: dict[str, str] = {}
        self.bases: dict[str, str] = {}
        for row, (pointer, offset) in rows.items():
            base = self.bases[row] = view.fresh_name(f"{pointer.removesuffix('_ptr')}_base")
            strides = _differing(view, main, offset)
            shifted = f"{offset} - {lead}"
            if strides is not None and offset != main:
                same = view.fresh_name("SAME_STRIDE")
                self.flags[same] = f"{strides[0]} == {strides[1]}"
                shifted = f"{floor} if {same} else {shifted}"
            head += f"{base} = {pointer} + {floor if offset == main else f'({shifted})'}\n"
        self.head = head

    def move(self, row: RowLoop) -> ast.For:
        """A loop whose variable counts from the aligned address; its columns begin at minus lead."""
        start, columns, step = tree.text_of(row.loop.target), row.columns, row.step

        def from_base(node: ast.AST) -> ast.AST | None:
            match node:
                case ast.BinOp(left=left, op=ast.Add(), right=ast.Name(id=name)) if name == columns:
                    base = self.bases.get(tree.text_of(left))
                    return tree.expression(f"{base} + ({start} + tl.arange(0, {step}))") if base else None
            return None

        loop = tree.with_range(row.loop, "0", row.size, step)
        first_line = tree.statements(f"{columns} = {start} - {self.lead} + tl.arange(0, {step})")
        loop.body = [*first_line, *(tree.transform(s, from_base) for s in loop.body[1:])]
        return loop


def _aligned(view: View, loops: list[RowLoop]) -> Change:
    patch = tree.Patch(view.text)
    frame = _Frame(view, loops)
    head = frame.head
    bounds: dict[tuple[str, str], tuple[str, str]] = {}  # names that loops of one size and step share
    for row in loops:
        if (row.size, row.step) not in bounds:
            first, whole = bounds[row.size, row.step] = view.fresh_name("first_whole"), view.fresh_name("whole")
            # a row without elements has no turn
            head += f"{first} = ({frame.vec} + {row.step} - 1) // {row.step} * {row.step} * ({row.size} > 0)\n"
            head += f"{whole} = ({row.size} + {frame.lead}) // {row.step} * {row.step}\n"
        patch.replace_stmt(row.loop, head + _three_loops(frame.move(row), row, frame.lead, *bounds[row.size, row.step]))
        head = ""
    why = f"Tiles start at addresses that are multiples of {frame.vec} elements, so inner accesses are whole vectors."
    return view.rewrite(patch, why, tunables={frame.vec: VECTORS}, flags=frame.flags)


def _rows(view: View, loops: list[RowLoop]) -> dict[str, tuple[str, str]]:
    """The pointer argument and the offset of each row's address, by the address's text; only rows with an offset."""
    rows: dict[str, tuple[str, str]] = {}
    for loop in loops:
        for address in loop.addresses:
            (_, pointer), *offset = parts = terms(view.flow.expand(address.left, loop.loop))
            if may_meet(find_accessed(view, address.left)[0], find_accessed(view, view.body)[1]):
                continue  # what is loaded for it may be another value here
            if not offset or any(sign != 1 for sign, _ in parts) or not isinstance(pointer, ast.Name):
                continue
            if pointer.id in view.function.params and pointer.id not in tree.writes(view.body):
                rows[tree.text_of(address.left)] = (pointer.id, " + ".join(tree.text_of(t) for _, t in offset))
    return rows


def _differing(view: View, a: str, b: str) -> tuple[str, str] | None:
    """The parameters, one of each offset, whose exchange makes the offsets equal; None if they differ in more."""
    one, other = tree.expression(a), tree.expression(b)
    params = set(view.function.params)
    left, right = tree.reads(one) & params - tree.reads(other), tree.reads(other) & params - tree.reads(one)
    if len(left) == len(right) == 1:
        (old,), (new,) = left, right
        if tree.is_same(tree.rename(one, {old: new}), other):
            return old, new
    return None


def _three_loops(loop: ast.For, row: RowLoop, lead: str, first: str, whole: str) -> str:
    """Head, whole tiles (from first to whole) and tail of one loop, as text."""
    main = tree.with_range(loop, first, whole, row.step)
    main.body = remove_masks(main.body, [f"{row.columns} < {row.size}"])
    head = _write_loop(_with_left_end(loop, row), "0", first, row.step)
    tail = _write_loop(loop, f"tl.maximum({first}, {whole})", f"({row.size} + {lead}) * ({row.size} > 0)", row.step)
    return head + tree.text_of(ast.fix_missing_locations(main)) + "\n" + tail


def _with_left_end(loop: ast.For, row: RowLoop) -> ast.For:
    """A copy of a loop whose masks leave out what lies before the row too."""
    mask = f"{row.columns} < {row.size}"

    def rule(node: ast.AST) -> ast.AST | None:
        is_mask = isinstance(node, ast.Compare) and tree.text_of(node) == mask
        return tree.expression(f"({row.columns} >= 0) & ({mask})") if is_mask else None

    return tree.transform(copy.deepcopy(loop), rule)  # type: ignore[return-value]


def _write_loop(loop: ast.For, low: str, high: str, step: str) -> str:
    return tree.text_of(ast.fix_missing_locations(tree.with_range(loop, low, high, step))) + "\n"
