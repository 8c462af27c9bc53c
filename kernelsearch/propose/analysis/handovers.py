"""What a loop over the tiles of a row accumulates, as values that parts of the row can hand on to one another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import COMBINE, IDENTITY, is_float32, is_identity, update_of
from kernelsearch.propose.analysis.flow import find_unbound
from kernelsearch.propose.analysis.one_tile import reduce_tile
from kernelsearch.propose.analysis.rescaled_sums import find_rescaled_sum
from kernelsearch.propose.analysis.tile_order import find_read_later
from kernelsearch.propose.analysis.view import NotApplicable, View


@dataclass(frozen=True)
class HandedOn:
    """One value that the parts of a row hand on.

    name is the accumulator that becomes a block of all parts' values, stored what a part stores, rows the shape of
    that (`()` or `(ROWS,)`), start the value in the place of a part that there is not.
    """

    name: str
    stored: str
    rows: tuple[str, ...]
    start: str


@dataclass(frozen=True)
class Handover:
    """What the parts hand on together.

    ready are statements before it is stored, in place of those of the loop that are in replaced; merge those that make
    of the blocks of all parts' values what the statements after the loop expect.
    """

    values: tuple[HandedOn, ...]
    ready: str = ""
    merge: str = ""
    replaced: tuple[ast.stmt, ...] = ()


def find_handovers(view: View, loop: ast.For, step: str) -> tuple[Handover, ...]:
    """All that a loop accumulates over tiles of `step` elements. Raises NotApplicable where it does something else."""
    return _Handovers(view, loop, step).find()


def list_values(handovers: tuple[Handover, ...]) -> list[HandedOn]:
    return [value for handover in handovers for value in handover.values]


class _Handovers:
    """Finds what a loop accumulates, and how the parts of a row hand it on."""

    def __init__(self, view: View, loop: ast.For, step: str) -> None:
        self.view, self.loop, self.step = view, loop, step
        place = view.body.index(loop)
        self.before, self.later = view.body[:place], view.body[place + 1 :]
        self.carried = find_unbound(loop.body, tree.writes(loop.target)).keys() & tree.writes(loop.body)
        if find_read_later(view, loop) & tree.writes(loop) - self.carried:
            raise NotApplicable("a loop leaves more than what it accumulates")

    def find(self) -> tuple[Handover, ...]:
        left, found = set(self.carried), list[Handover]()
        ways = [self._hand_on_online, self._hand_on_rescaled_lanes, self._hand_on_lanes, self._hand_on_sums]
        for way in ways:
            for handover in way(left):
                found.append(handover)
                left -= {value.name for value in handover.values}
        if left or not found:
            raise NotApplicable("a loop does not only accumulate" if left else "a loop reduces nothing")
        return tuple(found)

    def _hand_on_online(self, left: set[str]) -> Iterator[Handover]:
        """A running maximum of a row and a sum that is rescaled when it grows."""
        step = find_rescaled_sum(self.loop)
        if step is None or not {step.maximum, step.total} <= left:
            return
        maximum, total, rows = step.maximum, step.total, self._rows_of(step.maximum, "max")
        if self._rows_of(total, "sum") != rows:
            raise NotApplicable("a maximum and its sum have two shapes")
        highest, axis = self.view.fresh_name("highest"), len(rows)
        rescale = step.exponential.format(maximum, highest + ("[:, None]" if rows else ""))
        merge = (
            f"{highest} = tl.max({maximum}, axis={axis})\n"
            f'{total} = tl.where({maximum} == float("-inf"), 0.0, {total} * {rescale})\n'
            f"{total} = tl.sum({total}, axis={axis})\n"
            f"{maximum} = {highest}\n"
        )
        values = (HandedOn(maximum, maximum, rows, IDENTITY["max"]), HandedOn(total, total, rows, "0.0"))
        yield Handover(values, merge=merge)

    def _hand_on_rescaled_lanes(self, left: set[str]) -> Iterator[Handover]:
        """A maximum and a rescaled sum by lane: a part reduces its own, and the same statements those of all parts.

        They are `m = tl.max(highest, axis)` and, a few statements behind it, `s = tl.sum(f(total, highest, m), axis)`.
        """
        makers = {p[0]: (p[1], s) for s in self.later if isinstance(s, ast.Assign) and (p := tree.assignment(s))}
        for m, (largest, first) in makers.items():
            if not tree.is_tl(largest, "max") or len(lanes := tree.reads(largest) & left) != 1:
                continue
            (highest,) = lanes
            for s, (summed, last) in makers.items():
                names = tree.reads(summed) & left
                if not tree.is_tl(summed, "sum") or len(names) != 2 or highest not in names:
                    continue
                (total,) = names - {highest}
                own = self.later[self.later.index(first) : self.later.index(last) + 1]
                rest = [x for x in self.later if x not in own]
                blocks = self._lanes_of(highest), self._lanes_of(total)
                alike = blocks[0][0] == blocks[1][0] and (blocks[0][1], blocks[1][1]) == (IDENTITY["max"], "0.0")
                plain = all(tree.assignment(x) and not tree.calls(x, "load") for x in own)
                if alike and plain and not tree.reads(rest) & names and len(blocks[0][0]) == 1:
                    ready = "".join(f"{tree.text_of(x)}\n" for x in own)
                    yield Handover((HandedOn(highest, m, (), blocks[0][1]), HandedOn(total, s, (), "0.0")), ready)
                    return

    def _hand_on_lanes(self, left: set[str]) -> Iterator[Handover]:
        """Accumulators by lane that a statement reduces: a part reduces its own, and the statement those of all parts.

        The reduction is `tl.sum(lanes, axis)`, or `a, b = helper(lanes, others, axis)`, which gives as many values.
        """
        for stmt in self.later:
            match stmt:
                case ast.Assign(targets=[ast.Tuple(elts=made)], value=ast.Call(func=ast.Name(id=helper)) as call):
                    if helper not in self.view.helpers or len(call.args) != len(made) + 1:
                        continue
                    lanes, axis, kind = call.args[:-1], call.args[-1], ""
                case _:
                    calls = [c for c in tree.calls(stmt, *COMBINE) if tree.reads(c) & left]
                    if len(calls) != 1 or {k.arg for k in calls[0].keywords} - {"axis"}:
                        continue
                    call, lanes, axis = calls[0], calls[0].args[:1], tree.argument(calls[0], 1, "axis")
                    kind = tree.callee(call).removeprefix("tl.")
            names = [lane.id for lane in lanes if isinstance(lane, ast.Name)]
            read = [n.id for s in self.later for n in ast.walk(s) if isinstance(n, ast.Name)]
            if len(names) < len(lanes) or not set(names) <= left or any(read.count(name) != 1 for name in names):
                continue
            blocks = [self._lanes_of(name, kind) for name in names]
            rows = blocks[0][0][:-1]
            if any(shape[:-1] != rows for shape, _ in blocks) or axis is None or not tree.is_number(axis, len(rows)):
                continue
            stored = [self.view.fresh_name(f"{name.strip('_')}_part") for name in names]
            values = (HandedOn(n, s, rows, start) for n, s, (_, start) in zip(names, stored, blocks, strict=True))
            plain = reduce_tile(self.view, self.loop.body, call, stored) if not rows else None
            ready, replaced = plain or (f"{', '.join(stored)} = {tree.text_of(call)}\n", [])
            yield Handover(tuple(values), ready, replaced=tuple(replaced))

    def _hand_on_sums(self, left: set[str]) -> Iterator[Handover]:
        """Sums, maxima and minima of a row."""
        for stmt in self.loop.body:
            update = update_of(stmt)
            others = [s for s in self.loop.body if s is not stmt]
            if update and update.name in left - tree.reads(others) - tree.writes(others):
                rows = self._rows_of(update.name, update.kind)
                merge = f"{update.name} = tl.{update.kind}({update.name}, axis={len(rows)})\n"
                yield Handover((HandedOn(update.name, update.name, rows, IDENTITY[update.kind]),), merge=merge)

    def _lanes_of(self, name: str, kind: str = "") -> tuple[tuple[str, ...], str]:
        """(The shape of a block that ends in the lanes of a tile, the value that it starts with)."""
        start = self._start_of(name)
        shape = self.view.shapes.of(start) or ()
        if len(shape) not in (1, 2) or shape[-1] != self.step or not tree.is_tl(start, "zeros", "full"):
            raise NotApplicable(f"{name} has another shape than the lanes of a tile")
        zero = tree.is_tl(start, "full") and tree.is_number(tree.argument(start, 1, "value"), 0.0)  # type: ignore[arg-type]
        known = next((k for k in IDENTITY if is_identity(start, k) or (zero and k == "sum")), None)
        if known is None or kind not in ("", known):
            raise NotApplicable(f"{name} does not start as the identity of its reduction")
        return shape, IDENTITY[known]

    def _rows_of(self, name: str, kind: str) -> tuple[str, ...]:
        """The shape of an accumulator that has one value, or one of each row of a tile."""
        start = self._start_of(name)
        shape = self.view.shapes.of(start)
        if shape is None or len(shape) > 1 or self.step in shape or not is_identity(start, kind):
            raise NotApplicable(f"{name} is not one value of a row that starts as the identity")
        return shape

    def _start_of(self, name: str) -> ast.expr:
        pairs = [p for s in self.before if name in tree.writes(s) and (p := tree.assignment(s))]
        if not pairs or not is_float32(pairs[-1][1]):
            raise NotApplicable(f"{name} does not start as float32")
        return pairs[-1][1]
