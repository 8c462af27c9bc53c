"""What a loop over the tiles of a row accumulates, as values that parts of the row can hand on to one another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import COMBINE, IDENTITY, is_float32, is_identity, reduction_of, update_of
from kernelsearch.propose.analysis.device_functions import DEVICE_FUNCTIONS
from kernelsearch.propose.analysis.flow import find_unbound
from kernelsearch.propose.analysis.rescaled_sums import find_rescaled_sum
from kernelsearch.propose.analysis.tile_order import find_read_later
from kernelsearch.propose.analysis.view import NotApplicable, View, refuse_if


@dataclass(frozen=True)
class HandedOn:
    """One value that the parts of a row hand on.

    name is the accumulator that becomes a block of all parts' values, stored what a part stores, rows the shape of
    that (`()` or `(ROWS,)`), start the value in the place of a part that there is not, begin the statement ahead of the
    loop that starts it.
    """

    name: str
    stored: str
    rows: tuple[str, ...]
    start: str
    begin: ast.stmt


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
        refuse_if(left or not found, "a loop does not only accumulate" if left else "a loop reduces nothing")
        return tuple(found)

    def _hand_on_online(self, left: set[str]) -> Iterator[Handover]:
        """A running maximum of a row and a sum that is rescaled when it grows."""
        step = find_rescaled_sum(self.loop)
        if step is None or not {step.maximum, step.total} <= left:
            return
        maximum, total, rows = step.maximum, step.total, self._rows_of(step.maximum, "max")
        refuse_if(self._rows_of(total, "sum") != rows, "a maximum and its sum have two shapes")
        highest, axis = self.view.fresh_name("highest"), len(rows)
        rescale = step.exponential.format(maximum, highest + ("[:, None]" if rows else ""))
        merge = (
            f"{highest} = tl.max({maximum}, axis={axis})\n"
            f'{total} = tl.where({maximum} == float("-inf"), 0.0, {total} * {rescale})\n'
            f"{total} = tl.sum({total}, axis={axis})\n"
            f"{maximum} = {highest}\n"
        )
        starts = ((maximum, IDENTITY["max"]), (total, "0.0"))
        yield Handover(tuple(self._value(name, name, rows, start) for name, start in starts), merge=merge)

    def _hand_on_rescaled_lanes(self, left: set[str]) -> Iterator[Handover]:
        """A maximum and a rescaled sum by lane: a part reduces its own, and the statements after the loop those of all.

        They are `m = tl.max(highest, axis)` and `s = tl.sum(total * tl.exp(highest - m), axis)`, where a maximum of
        minus infinity may be replaced by 0; the loop must do so, for tiles that have lanes of minus infinity only.
        """
        made = {p[0]: p[1] for s in self.later if isinstance(s, ast.Assign) and (p := tree.assignment(s))}
        for summed in made.values():
            match summed:
                case ast.Call(
                    args=[ast.BinOp(ast.Name(total), ast.Mult(), ast.Call(args=[ast.BinOp(left=shift)]) as g), *_]
                ) if tree.is_tl(summed, "sum") and tree.is_tl(g, "exp", "exp2"):
                    pass
                case _:
                    continue
            top, highest = tree.text_of(g.args[0].right), tree.text_of(shift)  # type: ignore[attr-defined]
            finite = "tl.where({0} == float('-inf'), 0.0, {0})"
            written = tree.text_of(made[top]) if top in made else ""
            m = next((name for name in made if written == finite.format(name)), top)
            tests = map(tree.text_of, tree.calls(ast.Module(self.loop.body, []), "where"))
            guarded = any("== float('-inf'), 0.0," in test for test in tests)
            minus = isinstance(g.args[0].op, ast.Sub)  # type: ignore[attr-defined]
            largest = made.get(m)
            if not {total, highest} <= left or not guarded or not minus or largest is None:
                continue
            if not tree.is_tl(largest, "max") or tree.text_of(largest.args[0]) != highest:
                continue
            blocks = self._lanes_of(highest, "max"), self._lanes_of(total, "sum")
            if blocks[0][0] == blocks[1][0] and len(blocks[0][0]) == 1 and self._count_reads({highest, total}) == 3:
                parts = [self.view.fresh_name(f"{name.strip('_')}_part") for name in (highest, total)]
                factor = f"{tree.callee(g)}({highest} - {finite.format(parts[0])})"
                ready = f"{parts[0]} = tl.max({highest}, axis=0)\n{parts[1]} = tl.sum({total} * {factor}, axis=0)\n"
                values = (self._value(n, p, (), b[1]) for n, p, b in zip((highest, total), parts, blocks, strict=True))
                yield Handover(tuple(values), ready)
                return

    def _count_reads(self, names: set[str]) -> int:
        """How often the statements behind the loop name these names."""
        return sum(isinstance(n, ast.Name) and n.id in names for s in self.later for n in ast.walk(s))

    def _hand_on_lanes(self, left: set[str]) -> Iterator[Handover]:
        """Accumulators by lane that a statement reduces: a part reduces its own, and the statement those of all parts.

        The reduction is `tl.sum(lanes, axis)`, or that of a seed's device function, which gives as many values.
        """
        axis: ast.expr | None
        for stmt in self.later:
            match stmt:
                case ast.Assign(targets=[ast.Tuple(elts=made)], value=ast.Call(func=ast.Name()) as call):
                    if len(call.args) != len(made) + 1:
                        continue
                    lanes, axis, kind = call.args[:-1], call.args[-1], ""
                case _:
                    calls = [c for c in tree.calls(stmt, *COMBINE) if tree.reads(c) & left]
                    if len(calls) != 1 or {k.arg for k in calls[0].keywords} - {"axis"}:
                        continue
                    call, lanes, axis = calls[0], calls[0].args[:1], tree.argument(calls[0], 1, "axis")
                    kind = tree.callee(call).removeprefix("tl.")
            names = [lane.id for lane in lanes if isinstance(lane, ast.Name)]
            if len(names) < len(lanes) or not set(names) <= left or self._count_reads(set(names)) != len(names):
                continue
            blocks = [self._lanes_of(name, kind) for name in names]
            rows = blocks[0][0][:-1]
            if any(shape[:-1] != rows for shape, _ in blocks) or axis is None or not tree.is_number(axis, len(rows)):
                continue
            stored = [self.view.fresh_name(f"{name.strip('_')}_part") for name in names]
            ready, replaced = f"{', '.join(stored)} = {tree.text_of(call)}\n", list[ast.stmt]()
            if kind and not self._is_kept_by_lane(names[0], kind):
                continue
            if not kind:
                if (plain := reduce_tile(self.view, self.loop.body, call, stored)) is None:
                    continue
                ready, replaced = (ready, []) if rows else plain
            values = (self._value(n, s, rows, start) for n, s, (_, start) in zip(names, stored, blocks, strict=True))
            yield Handover(tuple(values), ready, replaced=tuple(replaced))

    def _is_kept_by_lane(self, name: str, kind: str) -> bool:
        """Whether the loop does no more with lanes than to fold a value into them, perhaps under a mask."""
        writers = [s for s in self.loop.body if name in tree.writes(s)]
        match [tree.assignment(s) for s in writers]:
            case [(_, ast.Call(args=[_, ast.Name(id=fresh), ast.Name(id=old)]) as where)] if old == name:
                makers = [s for s in self.loop.body if fresh in tree.writes(s)]
                pair = tree.assignment(makers[0]) if len(makers) == 1 and tree.is_tl(where, "where") else None
                update = update_of(ast.Assign([ast.Name(name, ast.Store())], pair[1])) if pair else None
                writers += makers
            case [_]:
                update = update_of(writers[0])
            case _:
                return False
        others = [s for s in self.loop.body if s not in writers]
        alone = name not in tree.reads(others) and update is not None and not tree.reads(update.value) & self.carried
        return alone and update.kind == kind and not tree.calls(update.value, *COMBINE)  # type: ignore[union-attr]

    def _hand_on_sums(self, left: set[str]) -> Iterator[Handover]:
        """Sums, maxima and minima of a row."""
        for stmt in self.loop.body:
            update = update_of(stmt)
            others = [s for s in self.loop.body if s is not stmt]
            if update and update.name in left - tree.reads(others) - tree.writes(others):
                if reduction_of(update.value, update.kind) is None or tree.reads(update.value) & self.carried:
                    continue
                rows = self._rows_of(update.name, update.kind)
                merge = f"{update.name} = tl.{update.kind}({update.name}, axis={len(rows)})\n"
                yield Handover((self._value(update.name, update.name, rows, IDENTITY[update.kind]),), merge=merge)

    def _value(self, name: str, stored: str, rows: tuple[str, ...], start: str) -> HandedOn:
        return HandedOn(name, stored, rows, start, self._find_start(name))

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

    def _find_start(self, name: str) -> ast.stmt:
        """The statement before the loop that starts an accumulator, the last that writes it."""
        writers = [s for s in self.before if name in tree.writes(s)]
        pair = tree.assignment(writers[-1]) if writers else None
        refuse_if(pair is None or not is_float32(pair[1]), f"{name} does not start as float32")
        return writers[-1]

    def _start_of(self, name: str) -> ast.expr:
        return tree.assignment(self._find_start(name))[1]  # type: ignore[index]


# ------------------------------------------------------------ one tile: lanes of one value need no rescaling

STEPS = {"online_along": "online_add", "welford_along": "welford_add"}
"""The functions that reduce lanes, as TorchInductor's kernels have them, and those that add a value to each lane."""

REDUCED = {
    "online_along": (
        '{0} = tl.max(tl.where({mask}, {x}, float("-inf")), 0)\n'
        "{1} = tl.sum(tl.where({mask}, tl.exp({x} - {0}), 0.0), 0)\n"
    ),
    "welford_along": (
        "{2} = tl.sum(tl.where({mask}, 1.0, 0.0), 0)\n"
        "{0} = tl.sum(tl.where({mask}, {x}, 0.0), 0) / tl.maximum({2}, 1.0)\n"
        "{1} = tl.where({mask}, {x} - {0}, 0.0)\n"
        "{1} = tl.sum({1} * {1}, 0)\n"
    ),
}
"""The same of one tile x with a mask: maximum and sum of exponentials; mean, squares of what is left, and count."""


def reduce_tile(view: View, body: list[ast.stmt], call: ast.Call, made: list[str]) -> tuple[str, list[ast.stmt]] | None:
    """(Statements that give the names made what call makes of lanes after one tile, those of body that they replace).

    body is that of a loop which adds a tile to lanes of one dimension. None where the functions are not known.
    """
    along = tree.callee(call)
    step = STEPS.get(along, "")
    known = {name: view.helpers[name].text.strip() for name in (along, step) if name in view.helpers}
    if len(known) < 2 or any(text != DEVICE_FUNCTIONS[name].strip() for name, text in known.items()):
        return None
    lanes = [tree.text_of(lane) for lane in call.args[:-1]]
    for stmt in body:
        match stmt:
            case ast.Assign(targets=[ast.Tuple(elts=fresh)], value=ast.Call(args=args) as added):
                if tree.callee(added) != step or not set(lanes) <= set(given := list(map(tree.text_of, args))):
                    continue
                kept = _find_kept(body, dict(zip(lanes, map(tree.text_of, fresh), strict=True)))
                x = given[0] if step == "welford_add" else given[-1]
                if kept is not None and x.isidentifier():
                    return REDUCED[along].format(*made, x=x, mask=kept[0]), [stmt, *kept[1]]
    return None


def _find_kept(body: list[ast.stmt], fresh: dict[str, str]) -> tuple[str, list[ast.stmt]] | None:
    """(The mask under which every lane takes its fresh value, the statements that say so)."""
    masks, found = set(), []
    for lane, value in fresh.items():
        writers = [s for s in body if lane in tree.writes(s)]
        match [tree.assignment(s) for s in writers]:
            case [(_, ast.Call(args=[mask, ast.Name(id=new), ast.Name(id=old)]) as where)] if (new, old) == (
                value,
                lane,
            ):
                if not tree.is_tl(where, "where"):
                    return None
                masks.add(tree.text_of(mask))
                found += writers
            case _:
                return None
    return (masks.pop(), found) if len(masks) == 1 else None
