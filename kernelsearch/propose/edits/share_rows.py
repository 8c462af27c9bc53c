"""Shared rows: many programs reduce each long row in parts, and finish it while it is still in L2.

Where a program owns a row, the rows that are under way together do not fit L2, and a second pass over them reads
memory again. Here a program takes a turn. It reduces one part of a row, a tile of PART elements, and hands what it has
on through scratch; then it does the next pass over the part whose turn was a row and LAG turns before, for which it
waits until all parts of that row are handed on. Turns are counted by an atomic, so a program waits only for others that
have begun, and each hands on what it can before it waits: there is no deadlock, in whatever order and however few at a
time they run (the argument of decoupled look-back: Merrill and Garland, Single-pass Parallel Prefix Scan, 2016).
"""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace

from kernelsearch.propose.analysis import row_parts, tree
from kernelsearch.propose.analysis.effects import ACCESSES, READS
from kernelsearch.propose.analysis.flow import drop_unread
from kernelsearch.propose.analysis.handovers import Handover, find_handovers, list_values
from kernelsearch.propose.analysis.streams import has_no_hint
from kernelsearch.propose.analysis.tile_order import find_addresses, has_no_order
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, Tunable, View, refuse_if
from kernelsearch.propose.edits.align_rows import VECTORS, AlignedTiles, align_every_tile
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.one_row import take_one_row
from kernelsearch.propose.edits.peel_tail import remove_masks

NAMES = "program turn part parts arrived each programs turns_ptr PART PARTS LAG".split()
"""What the new form calls by names that the kernel does not have yet."""

SHORT_ROW = 16384
"""Elements of a row below which nothing is gained: four float32 rows on each of 132 SMs fit an L2 of 50 MB (H100)."""


@dataclass(frozen=True)
class Pass:
    """A loop over the tiles of a row, the statements before it, and what its parts hand on: nothing if it is the last.

    before follow the pass before it.
    """

    before: list[ast.stmt]
    loop: ast.For
    handovers: tuple[Handover, ...]


class ShareRows(Edit):
    summary = "many programs share each row through scratch, and finish it while it is still in L2"
    refusal = "no loop without an order goes over the tiles of a row that loops before it have reduced"
    usual_gain = 0.2

    def change(self, view: View) -> Changes:
        *others, last = _list_forms(view)
        for form, aligned in others:
            with suppress(NotApplicable):
                yield _share(form, aligned)
                return
        yield _share(*last)


def _share(view: View, aligned: AlignedTiles | None) -> Change:
    loops = tree.loops(view.body)
    if len(loops) < 2 or not all(loop in view.body for loop in loops):
        raise NotApplicable("it does not have two loops or more, outside of branches and of each other")
    read = [find_addresses(view, loop) for loop in loops]
    if not all(tiles.keys() & read[-1].keys() for tiles in read) or not has_no_order(view, loops[-1]):
        raise NotApplicable(ShareRows.refusal)
    again = [call for address, call in read[-1].items() if any(address in tiles for tiles in read[:-1])]
    return _Shared(view, loops, again, aligned).change()


class _Shared:
    """The new form of a function whose loops, all but the last, reduce the tiles of one row."""

    def __init__(self, view: View, loops: list[ast.For], again: list[ast.Call], aligned: AlignedTiles | None) -> None:
        self.view, self.aligned = view, aligned
        self.again = {tree.text_of(call) for call in again}
        low, end, self.step = map(tree.text_of, tree.range_of(loops[0]))  # type: ignore[arg-type]
        self.high = f"{aligned.size} + {aligned.vec} - 1" if aligned else end
        refuse_if(low != "0" or self.step not in view.function.params, "its tiles do not begin where the row does")
        row_parts.must_be_of_one_row(view, tree.expression(self.high), self.step)
        row_parts.must_not_count_tiles(view, loops, self.step)
        row_parts.must_be_masked(view, loops, aligned.size if aligned else end)
        row_parts.must_do_elements(loops[-1])
        places = [view.body.index(loop) for loop in loops]
        begins = [0, *(place + 1 for place in places)]
        between = [view.body[begin:place] for begin, place in zip(begins, [*places, len(view.body)], strict=True)]
        self.after = between.pop()
        self._must_only_assign([s for loop in loops[:-1] for s in loop.body], between)
        self.names = SimpleNamespace(**{name: view.fresh_name(name) for name in NAMES})
        found = [find_handovers(view, loop, self.step) for loop in loops[:-1]]
        self.passes = [Pass(*parts) for parts in zip(between, loops, [*found, ()], strict=True)]
        names = [value.name for one in found for value in list_values(one)]
        self.pointers = {name: view.fresh_name(f"{name.strip('_')}_parts_ptr") for name in names}
        refuse_if(len(self.pointers) < len(names), "two loops accumulate under one name")
        others = [s for one in between for s in one]
        starts = [value.begin for one in found for value in list_values(one)]
        self.read = {id(s) for s in starts if tree.writes(s) & tree.reads(x for x in others if x is not s)}
        row_parts.must_store_apart(view, loops[-1])

    def _must_only_assign(self, inside: list[ast.stmt], between: list[list[ast.stmt]]) -> None:
        body, plain = self.view.body, (ast.Assign, ast.AnnAssign, ast.AugAssign)
        others = [s for s in body if not isinstance(s, (*plain, ast.For)) and not _is_store(s)]
        self.view.must_only(ACCESSES, body)
        self.view.must_only(READS, body, "a part of it", [s for s in body if _is_store(s)] + [tree.loops(body)[-1]])
        if others or any(map(_is_store, between[0])):
            raise NotApplicable("it does more than to assign and, after the first loop, to store")
        refuse_if(not all(isinstance(s, plain) for s in inside), "a loop that reduces does more than to assign")
        refuse_if(set(self.view.function.params) & tree.writes(body), "it assigns to a parameter")

    def change(self) -> Change:
        view, n = self.view, self.names
        count = f"{n.turn} = tl.atomic_add({n.turns_ptr}, 1, sem='relaxed')\n"
        body = tree.statements(f"{count}{n.parts} = tl.maximum(tl.cdiv({self.high}, {n.PART}), 1)")
        for number in range(len(self.passes)):
            test = f"{n.turn} < {n.programs} * {n.parts}"
            if number:
                body += tree.statements(f"{n.turn} -= {n.parts} + {n.LAG}")
                test = f"{n.turn} >= 0" + (f" and {test}" if number < len(self.passes) - 1 else "")
            body.append(tree.make_branch(test, self._write_pass(number)))
        patch = tree.rebuild(view.node, body, drop=self.step)
        for pointer in (n.turns_ptr, *self.pointers.values()):
            patch.add_param(pointer)
        parts, programs = f"max(cdiv({self.high}, {n.PART}), 1)", tree.parenthesise(view.grid[0])
        times = f" * {len(self.passes) - 1}" if len(self.passes) > 2 else ""
        scratch: dict[str, tuple[object, ...]] = {n.turns_ptr: ("int32", f"({programs}{times} + 1,)", 0)}
        for value in (value for one in self.passes for value in list_values(one.handovers)):
            shape = ", ".join([f"max({programs}, 1)", parts, *value.rows])
            scratch[self.pointers[value.name]] = ("float32", f"({shape})")
        tunables: dict[str, Tunable] = {
            n.PART: ((1024, 2048, 4096, 8192, 16384), 8192),
            n.LAG: ((0, 64, 128, 256, 512), 128),
        }
        made = view.rewrite(
            patch,
            "The programs that run together share a few rows, which are still in L2 when they are read again.",
            {n.programs: view.grid[0]},
            tunables,
            {n.PARTS: f"next_power_of_2({parts})"},
            f"({programs} * {parts} + ({parts} + {n.LAG}){times},)",
        )
        return Change(made.kernel.with_changes(scratch={**made.kernel.scratch, **scratch}), made.rationale)

    def _write_pass(self, number: int) -> list[ast.stmt]:
        """One pass over the part of a row that the turn stands for, with what it needs of the passes before."""
        n, own = self.names, self.passes[number]
        head = f"{n.program} = {n.turn} // {n.parts}\n{n.part} = {n.turn} % {n.parts}\n"
        body, last = tree.statements(head), number == len(self.passes) - 1
        if number:
            count = f"{n.arrived} = tl.atomic_add({self._counter(number - 1)}, 0, sem='acquire')\n"
            wait = f"{count}while {n.arrived} < {n.parts}:\n    {count}tl.debug_barrier()\n"
            body += tree.statements(f"{wait}{n.each} = tl.arange(0, {n.PARTS})\n")
        merged = {id(value.begin) for one in self.passes[:number] for value in list_values(one.handovers)}
        for before in self.passes[: number + 1]:
            kept = [s for s in before.before if id(s) not in merged - self.read and (last or not _is_store(s))]
            body += [self._once(s) if _is_store(s) else s for s in kept]
            body += tree.statements(self._write_merge(before)) if before is not own else []
        body += tree.statements(f"{tree.text_of(own.loop.target)} = {n.part} * {n.PART}")
        body += self._write_tile(own)
        if own.handovers:
            body += tree.statements(self._write_handover(own.handovers, self._counter(number)))
        else:
            body += [self._once(s) if _is_store(s) else s for s in self.after]

        def rule(node: ast.AST) -> ast.AST | None:
            if tree.is_tl(node, "program_id"):
                return ast.Name(n.program, ast.Load())
            if last and isinstance(node, ast.Call) and self._is_last_use(node) and has_no_hint(node):
                return tree.expression(tree.with_keyword(node, "eviction_policy", "'evict_first'"))
            return None

        fresh = [tree.transform(tree.rename(s, {self.step: n.PART}), rule) for s in body]
        return drop_unread(fresh)

    def _is_last_use(self, call: ast.Call) -> bool:
        """Whether what is accessed need not stay in L2: what is stored, and tiles that were loaded before."""
        again = tree.is_tl(call, "load") and tree.text_of(tree.rename(call, {self.names.PART: self.step})) in self.again
        return again or tree.is_tl(call, "store")

    def _write_tile(self, own: Pass) -> list[ast.stmt]:
        """The work on one tile, and what is handed on; an aligned tile that is whole needs no masks."""
        replaced = [s for handover in own.handovers for s in handover.replaced]
        ready = tree.statements("".join(handover.ready for handover in own.handovers))
        tile = [*(s for s in own.loop.body if s not in replaced), *ready]
        if not self.aligned:
            return tile
        start, lead = tree.text_of(own.loop.target), self.aligned.lead
        test = f"({start} >= {lead}) & ({start} + {self.names.PART} <= {self.aligned.size} + {lead})"
        return [tree.make_branch(test, remove_masks(tile, self.aligned.masks), tile)]

    def _counter(self, number: int) -> str:
        """The address of the count of parts of the program's row that a pass has handed on."""
        n = self.names
        earlier = {0: "", 1: f"{n.programs} + "}.get(number, f"{n.programs} * {number} + ")
        return f"{n.turns_ptr} + 1 + {earlier}{n.program}"

    def _write_handover(self, handovers: tuple[Handover, ...], counter: str) -> str:
        n, text = self.names, ""
        for value in list_values(handovers):
            place = f"{n.turn} * {value.rows[0]} + tl.arange(0, {value.rows[0]})" if value.rows else n.turn
            text += f"tl.store({self.pointers[value.name]} + {place}, {value.stored})\n"
        # A barrier: the atomic is done by one thread, after the stores of all of them.
        return f"{text}tl.debug_barrier()\ntl.atomic_add({counter}, 1, sem='release')\n"

    def _write_merge(self, before: Pass) -> str:
        """The values of all parts of the row, as what the statements after that pass expect."""
        n, text = self.names, ""
        for value in list_values(before.handovers):
            place, mask = f"{n.program} * {n.parts} + {n.each}", f"{n.each} < {n.parts}"
            if value.rows:
                place = f"({place})[None, :] * {value.rows[0]} + tl.arange(0, {value.rows[0]})[:, None]"
                mask = f"({mask})[None, :]"
            text += f"{value.name} = tl.load({self.pointers[value.name]} + {place}, {mask}, other={value.start})\n"
        return text + "".join(handover.merge for handover in before.handovers)

    def _once(self, store: ast.stmt) -> ast.stmt:
        """A store of a whole row, by one part of it."""
        return tree.make_branch(f"{self.names.part} == 0", [store])


def _list_forms(view: View) -> list[tuple[View, AlignedTiles | None]]:
    """The view with one row a program, of which a long row has one for each part; before it, with aligned tiles.

    Raises NotApplicable where rows are short.
    """
    bounds = [b for loop in tree.loops(view.body) if (b := tree.range_of(loop))]
    high = tree.text_of(bounds[0][1]) if bounds else ""
    lengths = [n for launch in view.own_launches if isinstance(n := launch.args.get(high), int)]
    if lengths and max(lengths) < SHORT_ROW:
        raise NotApplicable(f"rows of {max(lengths)} elements stay in L2 from one pass to the next anyway")
    forms: list[tuple[View, AlignedTiles | None]] = [(view, None)]
    with suppress(NotApplicable):
        if one_row := take_one_row(view):
            forms = [(one_row, None)]
    with suppress(NotApplicable):
        odd = any(n % VECTORS[1] for n in lengths if n >= SHORT_ROW)
        if odd and (aligned := align_every_tile(forms[0][0])):
            forms.insert(0, (aligned.view, aligned))
    return forms


def _is_store(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Expr) and tree.is_tl(stmt.value, "store")
