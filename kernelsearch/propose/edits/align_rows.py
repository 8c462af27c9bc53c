"""Peel to an aligned start: tiles begin at the row's address rounded down, so inner accesses are whole vectors.

Rows with an odd stride have different alignments, and an access that may be unaligned is done element by element.
Here the columns shift by `lead`, the number of elements between the rounded-down address and the row: the first tile
masks them out, the tiles after it are aligned and need no mask, and a last one masks the end. A tile of several rows,
each of which has another alignment, becomes one row first.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import update_of
from kernelsearch.propose.analysis.flow import terms
from kernelsearch.propose.analysis.idle import FALSE, FINITE, IDENTITY, Idle
from kernelsearch.propose.analysis.rescaled_sums import find_rescaled_sum
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.one_row import take_one_row
from kernelsearch.propose.edits.peel_tail import remove_masks


@dataclass(frozen=True)
class RowLoop:
    """A loop over tiles of a row: its first statement is `cols = start + arange`, its addresses are scalar + cols."""

    loop: ast.For
    size: str
    step: str
    columns: str
    addresses: tuple[ast.BinOp, ...]


class AlignRows(Edit):
    summary = "tiles start at an aligned address, with a masked head and tail"
    refusal = "no loop goes over the tiles of a row at a scalar address"

    def change(self, view: View) -> Changes:
        one_row: View | None = view
        while one_row is not None:
            for block in tree.blocks(one_row.body):
                loops = [r for s in block if isinstance(s, ast.For) and (r := _row_loop(one_row, s)) is not None]
                if loops:
                    yield _aligned(one_row, loops)
                    return
            one_row = take_one_row(one_row)


def _row_loop(view: View, loop: ast.For) -> RowLoop | None:
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
    return RowLoop(loop, size, step, name, tuple(addresses)) if addresses and _neutral(view, loop, name, size) else None


def _neutral(view: View, loop: ast.For, name: str, size: str) -> bool:
    """Whether masked-out lanes change nothing: every access is masked, every update folds in the identity."""
    wide = {n for n in tree.writes(loop.body) if view.shapes.names.get(n) != ()}
    idle = Idle(lambda c: tree.text_of(c) == f"{name} < {size}", lambda n: n in wide)
    seen: set[str] = set()
    carried = {u.name for s in loop.body if (u := update_of(s)) is not None}
    kept: dict[str, str] = {}
    step = find_rescaled_sum(loop)
    for stmt in loop.body:
        if step and stmt in step.own:
            if idle.of(step.highest.args[0]) != IDENTITY["max"]:
                return False
            continue
        if isinstance(stmt, (ast.For, ast.If, ast.While)):
            return False
        for call in tree.calls(stmt, "load", "store"):
            mask = tree.mask_of(call)
            if name in tree.reads(call.args[0]) and (mask is None or idle.of(mask) != FALSE):
                return False
        update, pair = update_of(stmt), tree.assignment(stmt)
        if pair is not None and _keeps(*pair, idle, kept):
            continue
        if update is not None and update.name not in seen:
            value = update.value
            if tree.is_tl(value, "sum", "max", "min"):
                if not tree.is_tl(value, update.kind):
                    return False
                value = value.args[0]  # type: ignore[attr-defined]
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


def _aligned(view: View, loops: list[RowLoop]) -> Change:
    patch = tree.Patch(view.text)
    vec = view.fresh_name("VEC")
    rows = _rows(view, loops)
    if not rows:
        raise NotApplicable("no row's address is a pointer argument plus an offset")
    row_offset, floor, lead = view.fresh_name("row_offset"), view.fresh_name("row_floor"), view.fresh_name("lead")
    _, main = next(iter(rows.values()))
    head = f"{row_offset} = {main}\n{floor} = {row_offset} // {vec} * {vec}\n{lead} = {row_offset} - {floor}\n"
    flags: dict[str, str] = {}
    bases: dict[str, str] = {}
    for row, (pointer, offset) in rows.items():
        base = bases[row] = view.fresh_name(f"{pointer.removesuffix('_ptr')}_base")
        strides = _differing(view, main, offset)
        aligned, shifted = f"{base} = {pointer} + {floor}\n", f"{base} = {pointer} + ({offset} - {lead})\n"
        if strides is not None and offset != main:
            same = view.fresh_name("SAME_STRIDE")
            flags[same] = f"{strides[0]} == {strides[1]}"
            head += f"if {same}:\n    {aligned}else:\n    {shifted}"
        else:
            head += aligned if offset == main else shifted
    bounds: dict[tuple[str, str], tuple[str, str]] = {}  # names that loops of one size and step share
    for loop in loops:
        if (loop.size, loop.step) not in bounds:
            first, whole = bounds[loop.size, loop.step] = view.fresh_name("first_whole"), view.fresh_name("whole")
            head += f"{first} = ({vec} + {loop.step} - 1) // {loop.step} * {loop.step}\n"
            head += f"{whole} = ({loop.size} + {lead}) // {loop.step} * {loop.step}\n"
        patch.replace_stmt(loop.loop, head + _three_loops(loop, lead, bases, *bounds[loop.size, loop.step]))
        head = ""
    why = f"Tiles start at addresses that are multiples of {vec} elements, so inner accesses are whole vectors."
    return view.rewrite(patch, why, tunables={vec: ((8, 16, 64), 8)}, flags=flags)


def _rows(view: View, loops: list[RowLoop]) -> dict[str, tuple[str, str]]:
    """The pointer argument and the offset of each row's address, by the address's text; only rows with an offset."""
    rows: dict[str, tuple[str, str]] = {}
    for loop in loops:
        for address in loop.addresses:
            (_, pointer), *offset = parts = terms(view.flow.expand(address.left, loop.loop))
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


def _three_loops(row: RowLoop, lead: str, bases: dict[str, str], first: str, whole: str) -> str:
    """Head, whole tiles (from first to whole) and tail of one loop, as text."""
    start, columns, step = tree.text_of(row.loop.target), row.columns, row.step
    mask = f"{columns} < {row.size}"

    def from_base(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.BinOp(left=left, op=ast.Add(), right=ast.Name(id=name)) if name == columns:
                base = bases.get(tree.text_of(left))
                return base and tree.expression(f"{base} + ({start} + tl.arange(0, {step}))")
        return None

    def with_left_end(node: ast.AST) -> ast.AST | None:
        is_mask = isinstance(node, ast.Compare) and tree.text_of(node) == mask
        return tree.expression(f"({columns} >= 0) & ({mask})") if is_mask else None

    loop = tree.with_range(row.loop, "0", row.size, step)
    first_line = tree.statements(f"{columns} = {start} - {lead} + tl.arange(0, {step})")
    loop.body = [*first_line, *(tree.transform(s, from_base) for s in loop.body[1:])]  # type: ignore[list-item]
    head = tree.transform(tree.with_range(loop, "0", first, step), with_left_end)
    main = tree.with_range(loop, first, whole, step)
    main.body = remove_masks(main.body, [mask])
    tail = tree.with_range(loop, f"tl.maximum({first}, {whole})", f"{row.size} + {lead}", step)
    return "".join(tree.text_of(ast.fix_missing_locations(part)) + "\n" for part in (head, main, tail))
