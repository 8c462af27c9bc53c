"""Means and squares of what is left, of blocks that a loop walks: found in three forms, written in two.

The forms: a loop for the sum and a loop for the squares; one loop that merges the moments of each tile; one loop that
keeps the moments of each lane, which are merged after it. Chan, Golub and LeVeque, "Updating formulae and a pairwise
algorithm for computing sample variances" (1979), equations 2.1: values are centred before they are squared, so nothing
cancels as in E[x²] - E[x]².
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import indent

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import format_identity, format_reduction, is_identity
from kernelsearch.propose.analysis.effects import READS
from kernelsearch.propose.analysis.flow import find_dependent, strip_axes, terms
from kernelsearch.propose.analysis.idle import ZERO, Idle
from kernelsearch.propose.analysis.lanes import reduce_tiles
from kernelsearch.propose.analysis.passes import Fold, TwoPasses, find_two_passes, inline_names
from kernelsearch.propose.analysis.shapes import Shape, axis_of
from kernelsearch.propose.analysis.tile_order import find_accessed, may_meet
from kernelsearch.propose.analysis.tiles import without_flags
from kernelsearch.propose.analysis.view import Change, View

MEANS = ("{t} / {n}", "{t} / {n}.to(tl.float32)", "{t} * (1.0 / {n})", "{t} * (1 / {n})", "1.0 / {n} * {t}")
"""How the mean is written, of the total t of n elements."""


@dataclass(frozen=True)
class Moments:
    """The moments of the elements from 0 to size of a row, step at a time, and the statements that compute them.

    The loop is in a list of statements, place. body is what it does before a tile's block is known; the block is zero
    outside mask. gone are the statements that another form replaces, loop among them; head and tail are those between
    them that stay, before and after. reduction has the block's axis. lanes says how moments are kept now, by lane or
    by tile; None means two passes.
    """

    view: View
    place: list[ast.stmt]
    loop: ast.For
    gone: list[ast.stmt]
    body: list[ast.stmt]
    block: ast.expr
    mask: ast.expr
    reduction: ast.Call
    mean: str
    squares: str
    lanes: bool | None = None
    head: tuple[ast.stmt, ...] = ()
    tail: tuple[ast.stmt, ...] = ()

    @property
    def size(self) -> str:
        return tree.text_of(tree.range_of(self.loop)[1])  # type: ignore[index]

    @property
    def step(self) -> str:
        return tree.text_of(tree.range_of(self.loop)[2])  # type: ignore[index]

    @property
    def shape(self) -> Shape:
        """The shape of the mean, which is that of the squares."""
        return self.view.shapes.of(self.reduction) or ()

    @property
    def block_shape(self) -> Shape:
        return self.view.shapes.of(self.reduction.args[0]) or ()

    @property
    def axis(self) -> int:
        """The block's axis along which the moments are taken."""
        axis = tree.argument(self.reduction, 1, "axis")
        return 0 if axis is None else axis_of(axis, len(self.block_shape)) or 0

    @property
    def before(self) -> list[ast.stmt]:
        """What the place does before, without the statements that are gone."""
        return [*(s for s in self.place[: self.place.index(self.loop)] if s not in self.gone), *self.head]

    @property
    def after(self) -> list[ast.stmt]:
        last = max(self.place.index(s) for s in self.gone)
        return [*self.tail, *self.place[last + 1 :]]

    def widen(self, name: str) -> str:
        """A name with the mean's shape, in the form that broadcasts to the block."""
        if len(self.block_shape) < 2 or len(self.shape) == len(self.block_shape):
            return name
        return f"{name}[None, :]" if self.axis == 0 else f"{name}[:, None]"

    def rewrite(self, lanes: bool, why: str) -> Change:
        """The change that computes the moments in one pass, by lane or by tile."""
        patch = tree.Patch(self.view.text)
        for stmt in (*self.gone, *self.head, *self.tail):
            patch.replace_stmt(stmt, "")
        head, tail = (_text_of(part) for part in (self.head, self.tail))
        patch.replace_stmt(self.loop, head + self.write(lanes, "0", self.size, self.size) + tail)
        return self.view.rewrite(patch, why)

    def write(self, lanes: bool, low: str, high: str, extent: str) -> str:
        """The statements that compute mean and squares of the elements from low to high, extent many."""
        loop, fresh = tree.with_range(self.loop, low, high, self.step), self.view.fresh_name
        head = f"for {tree.text_of(loop.target)} in {tree.text_of(loop.iter)}:\n"
        zero = format_identity(self.block_shape if lanes else self.shape, "sum")
        if lanes:
            names = [fresh(n) for n in ("seen", "shift", f"{self.mean}_lanes", f"{self.squares}_lanes")]
            starts, step = f"{names[2]} = {zero}\n{names[3]} = {zero}\n", _format_lane_step(self, names)
            finish = _format_finish(self, [fresh("lane_count"), self.mean, fresh("apart"), self.squares], names, extent)
            starts = f"{names[0]} = 0.0\n{starts}"
        else:
            names = [fresh(n) for n in ("here", "tile_mean", "centred_tile", "shift", "both")]
            names += [self.squares, self.mean, fresh("seen")]
            starts, step = f"{self.mean} = {zero}\n{self.squares} = {zero}\n", _format_tile_step(self, names)
            starts, finish = f"{names[-1]} = 0.0\n{starts}", ""
        return starts + head + indent(_text_of(self.body) + step, "    ") + finish


def _text_of(body: list[ast.stmt] | tuple[ast.stmt, ...]) -> str:
    return "".join(tree.text_of(s) + "\n" for s in body)


def _format_tile_step(m: Moments, names: list[str]) -> str:
    """The statements that merge the moments of a tile with those of the tiles before it."""
    here, tile_mean, centred, shift, both, squares, mean, seen = names
    block = tree.text_of(m.block)
    return (
        f"{here} = tl.minimum({m.size} - {tree.text_of(m.loop.target)}, {m.step}).to(tl.float32)\n"
        f"{tile_mean} = {format_reduction(m.reduction, block)} / {here}\n"
        f"{centred} = tl.where({tree.text_of(m.mask)}, {tree.parenthesise(block)} - {m.widen(tile_mean)}, 0.0)\n"
        f"{shift} = {tile_mean} - {mean}\n"
        f"{both} = {seen} + {here}\n"
        f"{squares} += {format_reduction(m.reduction, f'{centred} * {centred}')}"
        f" + {shift} * {shift} * ({seen} * {here} / {both})\n"
        f"{mean} += {shift} * ({here} / {both})\n"
        f"{seen} = {both}\n"
    )


def _format_lane_step(m: Moments, names: list[str]) -> str:
    """The statements that add one element to the moments of each lane."""
    seen, shift, mean, squares = names
    block = tree.parenthesise(tree.text_of(m.block))
    return (
        f"{seen} += 1.0\n"
        f"{shift} = tl.where({tree.text_of(m.mask)}, {block} - {mean}, 0.0)\n"
        f"{mean} += {shift} * (1.0 / {seen})\n"
        f"{squares} += {shift} * ({block} - {mean})\n"
    )


def _format_finish(m: Moments, names: list[str], lanes: list[str], extent: str) -> str:
    """The statements that merge the moments of the lanes, each of which has every step-th of extent elements."""
    count, mean, apart, squares = names
    along = "" if len(m.block_shape) < 2 else "[:, None]" if m.axis == 0 else "[None, :]"
    rest = f"tl.where({count} > 0, {lanes[3]} + {count} * {apart} * {apart}, 0.0)"
    return (
        f"{count} = (({extent} + {m.step} - 1 - tl.arange(0, {m.step})) // {m.step}).to(tl.float32){along}\n"
        f"{mean} = {format_reduction(m.reduction, f'{lanes[2]} * ({count} / {extent})')}\n"
        f"{apart} = {lanes[2]} - {m.widen(mean)}\n"
        f"{squares} = {format_reduction(m.reduction, rest)}\n"
    )


# ------------------------------------------------------------ finding


def find_moments(view: View) -> Iterator[Moments]:
    """The moments that a function computes, in whichever form."""
    summed = reduce_tiles(view)
    for form in (view, *([summed] if summed else [])):
        for place in tree.blocks(form.body):
            for at, loop in enumerate(place):
                if isinstance(loop, ast.For):
                    yield from filter(_is_sound, _by_tile(form, place, loop))
                    yield from filter(_is_sound, _by_lane(form, place, loop, place[at + 1 : at + 5]))
        for passes in find_two_passes(form, "sum", "sum", stores=True):
            yield from filter(_is_sound, _by_passes(form, passes))


def _by_passes(view: View, passes: TwoPasses) -> Iterator[Moments]:
    """The moments if the first loop sums x, `mean = total / size` follows, and the second loop sums (x - mean)²."""
    first, second, between = passes.first, passes.second, passes.between
    size = tree.text_of(tree.range_of(first.loop)[1])  # type: ignore[index]
    forms = [f.format(t=first.name, n=size) for f in MEANS]
    means = [s for s in between if (p := tree.assignment(s)) and tree.text_of(p[1]) in forms]
    if len(means) != 1 or not isinstance(means[0], ast.Assign):
        return
    mean = tree.assignment(means[0])[0]  # type: ignore[index]
    mask = _centred_mask(second, mean, inline_names(first.loop.body, first.reduction.args[0]))
    inside = tree.writes([first.loop, second.loop])
    if mask is None or mean in inside | tree.reads(first.loop):
        return
    if tree.reads(mask) & inside - tree.writes(first.loop.target):
        return
    rest = [s for s in between if s not in (means[0], second.start)]
    late = find_dependent(rest, {mean})  # what needs the mean moves behind the loop, with all stores
    tail = [s for s in rest if not view.does_only(READS, s) or tree.writes(s) & late]
    head = [s for s in rest if s not in tail]
    if first.name in tree.reads([*passes.after, *rest, *second.loop.body]):
        return
    if (tree.reads(rest) | tree.writes(rest)) & (inside | {second.name}) or tree.writes(rest) & {mean, first.name}:
        return
    if tree.writes(head) & tree.reads(first.loop) or tree.writes(tail) & tree.reads(second.loop):
        return
    stored, loaded = find_accessed(view, tail)[1], find_accessed(view, [second.loop, *head])[0]
    named = (ast.Name(p[0], ast.Load()) for s in first.body if (p := tree.assignment(s)))
    mask = next((name for name in named if tree.is_same(inline_names(first.body, name), mask)), mask)
    if not may_meet(loaded, stored):
        gone = [first.start, second.start, means[0], first.loop, second.loop]
        yield Moments(
            view, view.flow.block_of(first.loop), first.loop, gone, first.body, first.reduction.args[0], mask,
            first.reduction, mean, second.name, None, tuple(head), tuple(tail),
        )  # fmt: skip


def _by_tile(view: View, place: list[ast.stmt], loop: ast.For) -> Iterator[Moments]:
    """The moments if the loop merges those of each tile, as `Moments.write` writes it."""
    body, step = loop.body[:-8], loop.body[-8:]
    pairs = [p for s in step if (p := tree.assignment(s))]
    match [value for _, value in pairs]:
        case [_, ast.BinOp(left=ast.Call(args=[block, *_]) as reduction), ast.Call(args=[mask, *_]), _, _, _, _, _]:
            *_, squares, mean, seen = names = [name for name, _ in pairs]
            gone = [loop, *(_starts(place, loop, (seen, mean, squares)))]
            found = Moments(view, place, loop, gone, body, block, mask, reduction, mean, squares, False)
            others = set(names) - {mean, squares}
            if len(gone) == 4 and _is_written(step, _format_tile_step(found, names), found, others):
                yield found


def _by_lane(view: View, place: list[ast.stmt], loop: ast.For, finish: list[ast.stmt]) -> Iterator[Moments]:
    """The moments if the loop keeps those of each lane and finish merges them, as `Moments.write` writes it."""
    body, step = loop.body[:-4], loop.body[-4:]
    pairs = [p for s in (*step, *finish) if (p := tree.assignment(s))]
    match [value for _, value in pairs]:
        case [_, ast.Call(args=[mask, ast.BinOp(left=block), *_]), _, _, _, ast.Call(args=[_, *_]) as whole, _, _]:
            names = [name for name, _ in pairs]
            gone = [loop, *finish, *_starts(place, loop, (names[0], *names[2:4]))]
            found = Moments(view, place, loop, gone, body, block, mask, whole, names[5], names[7], True)
            text = _format_lane_step(found, names[:4]) + _format_finish(found, names[4:], names[:4], found.size)
            others = set(names) - {names[5], names[7]}
            if len(gone) == 8 and _is_written([*step, *finish], text, found, others):
                yield found


def _starts(place: list[ast.stmt], loop: ast.For, names: tuple[str, ...]) -> list[ast.stmt]:
    """The statements before the loop that set these names to zero; fewer than the names if one is set otherwise."""
    starts = (tree.only_assignment(place[: place.index(loop)], name) for name in names)
    return [start[0] for start in starts if start and is_identity(start[1], "sum")]


def _is_written(body: list[ast.stmt], text: str, found: Moments, others: set[str]) -> bool:
    """Whether a body is this text, and nothing behind it reads the other names."""
    alike = [tree.text_of(s) for s in body] == [tree.text_of(s) for s in tree.statements(text)]
    return alike and not tree.reads(found.after) & others


def _centred_mask(fold: Fold, mean: str, block: ast.expr) -> ast.expr | None:
    """The mask in `where(mask, block - mean, 0) ** 2` as the loop computes it; None for anything else."""
    match inline_names(fold.loop.body, fold.reduction.args[0]):
        case ast.BinOp(left=ast.Call(args=[mask, centred, other]) as left, op=ast.Mult(), right=right):
            wanted = ast.BinOp(block, ast.Sub(), ast.Name(mean, ast.Load()))
            square = tree.is_tl(left, "where") and tree.is_number(other, 0) and tree.is_same(left, right)
            if isinstance(centred, ast.BinOp):
                centred = ast.BinOp(centred.left, centred.op, strip_axes(centred.right))
            return mask if square and tree.is_same(centred, wanted) else None
    return None


# ------------------------------------------------------------ the mask


def _is_sound(m: Moments) -> bool:
    """Whether the loop walks all elements below size, and mask and block leave out those past it and no other."""
    bounds = tree.range_of(m.loop)
    if bounds is None or not tree.is_number(bounds[0], 0) or not m.view.does_only(READS, m.loop):
        return False
    if not m.block_shape or m.view.shapes.of(m.reduction) is None or len(m.block_shape) > 2:
        return False
    if m.size not in m.view.function.params or m.size in tree.writes(m.view.body):
        return False
    mask, block = (without_flags(m.view, m.view.flow.expand(e, m.loop.body[-1])) for e in (m.mask, m.block))
    parts = tree.conjuncts(mask)
    along = [p for p in parts if _is_tail(m, p)]
    if len(along) != 1 or not all(_is_apart(m, p) for p in parts if p is not along[0]):
        return False
    return all(Idle(lambda c: _key(c) == _key(part), lambda _: True).of(block) == ZERO for part in parts)  # noqa: B023


def _key(part: ast.expr) -> str:
    """The text of a comparison, without the axes along which it is laid."""
    inner = part.value if isinstance(part, ast.Subscript) else part
    if isinstance(inner, ast.Compare):
        inner = ast.Compare(strip_axes(inner.left), inner.ops, inner.comparators)
    return tree.text_of(inner)


def _axes(node: ast.AST) -> set[int]:
    """The axes along which ranges are laid by `[:, None]` and `[None, :]`."""
    slices = [n.slice for n in ast.walk(node) if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Tuple)]
    return {at for s in slices for at, e in enumerate(s.elts) if isinstance(e, ast.Slice)}


def _is_tail(m: Moments, part: ast.expr) -> bool:
    """Whether a comparison is `start + arange(0, step) < size` along the axis of the moments."""
    inner = part.value if isinstance(part, ast.Subscript) else part
    if not isinstance(inner, ast.Compare) or not isinstance(inner.ops[0], ast.Lt) or len(inner.ops) != 1:
        return False
    signed = terms(strip_axes(inner.left))
    wanted = sorted([tree.text_of(m.loop.target), f"tl.arange(0, {m.step})"])
    if sorted(tree.text_of(t) for _, t in signed) != wanted or {sign for sign, _ in signed} != {1}:
        return False
    axes = _axes(part) == {m.axis} if len(m.block_shape) == 2 else not _axes(part)
    return axes and tree.text_of(inner.comparators[0]) == m.size


def _is_apart(m: Moments, part: ast.expr) -> bool:
    """Whether a condition is the same in every tile and along the axis of the moments."""
    return tree.text_of(m.loop.target) not in tree.reads(part) and _axes(part) == {1 - m.axis}
