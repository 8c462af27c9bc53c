"""Windows: loads of a tile's columns that differ by their shift along a row, and the bounds of what they ask for."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.bounds import is_never_negative
from kernelsearch.propose.analysis.canonical import MIRRORED
from kernelsearch.propose.analysis.flow import Flow, strip_axes, terms
from kernelsearch.propose.analysis.polynomials import Opaque, Polynomial, evaluate_polynomial, read_polynomial
from kernelsearch.propose.analysis.shapes import broadcast_shapes
from kernelsearch.propose.analysis.tiles import write_sum
from kernelsearch.propose.analysis.view import View

VEC = 4
"""Columns of a vector: 16 bytes of float32. Two splits in two take one apart."""
ASSUMED = re.compile(r"(\w+) == (-?\d+)")
BELOW, FROM = "<", ">="
COMPARED = {ast.Lt: (BELOW, 0), ast.LtE: (BELOW, 1), ast.Gt: (FROM, 1), ast.GtE: (FROM, 0)}
"""What `column OP limit` is for whole numbers: an operator, and what is added to the limit."""

Bound = tuple[str, Polynomial]
"""BELOW or FROM, and the limit of a column."""


@dataclass(frozen=True)
class Tap:
    """A load at `shift` columns from where the others of its window are; limits are bounds of the column."""

    stmt: ast.stmt
    call: ast.Call
    shift: int
    limits: frozenset[Bound]


@dataclass
class Window:
    """Loads of one row at `address + shift`, in order. natural: no column is below 0."""

    block: list[ast.stmt]
    address: str
    others: tuple[str, ...]
    options: tuple[str, ...]
    natural: bool
    taps: list[Tap] = field(default_factory=list)

    @property
    def moving(self) -> frozenset[Bound]:
        """The bounds that move with the shift, those of the row, for a shift of 0."""
        found = {(op, limit + Polynomial.number(t.shift)) for t in self.taps for op, limit in t.limits}
        return frozenset(bound for bound in found if all(self._holds(t, *bound) for t in self.taps))

    def _holds(self, tap: Tap, op: str, limit: Polynomial) -> bool:
        return self.is_implied(op, limit, tap.shift) or (op, limit - Polynomial.number(tap.shift)) in tap.limits

    def is_implied(self, op: str, limit: Polynomial, shift: int) -> bool:
        """Whether every column has this bound, so many columns further along."""
        least = limit - Polynomial.number(shift)
        return self.natural and op == FROM and all(not names and n < 0 for names, n in least.terms)

    @property
    def fixed(self) -> frozenset[Bound]:
        """The bounds that do not: those of the tile."""
        return frozenset.intersection(*(t.limits for t in self.taps))

    @property
    def first(self) -> int:
        return min(t.shift for t in self.taps)

    @property
    def last(self) -> int:
        return max(t.shift for t in self.taps)

    @property
    def asked(self) -> frozenset[Bound]:
        """The bounds of what the loads ask for by those of the tile, for a shift of 0."""
        shifts = {BELOW: self.last, FROM: self.first}
        begin = {(FROM, Polynomial.number(self.first))} if self.natural and self.shifts[0] < self.first else set()
        return frozenset(begin | {(op, limit + Polynomial.number(shifts[op])) for op, limit in self.fixed})

    @property
    def shifts(self) -> list[int]:
        """The shifts of the vectors that the window needs."""
        apart = {t.shift for t in self.taps if t.shift % VEC}
        return sorted({t.shift // VEC * VEC for t in self.taps} | {shift // VEC * VEC + VEC for shift in apart})

    def is_whole(self) -> bool:
        """Whether vectors are fewer than loads, and lie between bounds or between what the loads ask for.

        A load at another shift than theirs is done element by element.
        """
        explained = all(
            (op, limit) in self.fixed or (op, limit + Polynomial.number(t.shift)) in self.moving
            for t in self.taps
            for op, limit in t.limits
        )
        ops = {op for op, _ in self.fixed}
        begins = (
            self.shifts[0] == self.first or FROM in ops or (self.natural and any(o == FROM for o, _ in self.moving))
        )
        ends = BELOW in ops or any(op == BELOW for op, _ in self.moving)
        loads = sum(VEC if shift % VEC else 1 for shift in {t.shift for t in self.taps})
        return explained and begins and ends and len(self.shifts) < loads


@dataclass(frozen=True)
class Columns:
    """The columns of a tile: `name = value`, a number plus the elements of a block along the last axis."""

    view: View
    name: str
    value: ast.expr

    @cached_property
    def block(self) -> str:
        """The constexpr that says how many columns a tile has; empty if the columns are not neighbours."""
        parts = terms(self.value)
        arange = tree.calls(self.value, "arange")[0]
        own = [(sign, part) for sign, part in parts if tree.calls(part, "arange")]
        plain = len(own) == 1 and own[0][0] == 1 and strip_axes(own[0][1]) is arange
        if not plain or any(self.view.shapes.of(part) != () for _, part in parts if part is not own[0][1]):
            return ""
        shape, size = self.view.shapes.of(self.value), tree.text_of(arange.args[1])
        is_last = shape is not None and shape[-1] == size and set(shape[:-1]) <= {"1"}
        written = [s for s in tree.all_statements(self.view.body) if self.name in tree.writes(s)]
        known = is_last and size in self.view.function.constexprs and len(written) == 1
        return size if known and not self._has_thin_tiles(size) else ""

    def _has_thin_tiles(self, size: str) -> bool:
        """Whether a launch has tiles that are no vectors, of a width that nobody tunes."""
        tuned = {name.rpartition(".")[2] for name in (*self.view.kernel.space, *self.view.task.space)}
        seen = [n for launch in self.view.own_launches if isinstance(n := launch.args.get(size), int)]
        return size not in tuned and any(n % VEC for n in seen)

    def bounds_of(self, window: Window) -> frozenset[Bound]:
        """The bounds of what may be loaded: the row's, and of what the loads ask for those that do not follow."""
        return window.moving | {
            (op, limit)
            for op, limit in window.asked
            if not any(op == own and self._is_inside(op, end, limit) for own, end in window.moving)
        }

    def _is_inside(self, op: str, end: Polynomial, limit: Polynomial) -> bool:
        """Whether a row ends, or begins, inside of a limit: known, or in all launches that were seen."""
        apart = limit - end if op == BELOW else end - limit
        passed = [launch.args for launch in self.view.own_launches] or [{}]
        found = (evaluate_polynomial(apart, args) for args in passed)
        return all(number is not None and number >= 0 for number in found)

    @cached_property
    def flow(self) -> Flow:
        """Definitions, with the columns as if they were a parameter."""
        body = [s for s in self.view.body if self.name not in tree.writes(s)]
        return Flow(body, (*self.view.function.params, self.name))

    def list_windows(self, block: list[ast.stmt], depth: int) -> list[Window]:
        """The windows among the statements of one list, addresses expanded so deep; a single load is one too."""
        windows: dict[tuple[object, ...], Window] = {}
        plain = [s for s in block if isinstance(s, (ast.Assign, ast.AnnAssign, ast.AugAssign))]
        for stmt, call in ((s, call) for s in plain for call in tree.calls(s, "load") if call.args):
            choices = (n for n in ast.walk(stmt) if isinstance(n, (ast.IfExp, ast.BoolOp)))
            if self.name in tree.writes(stmt) or any(call in ast.walk(choice) for choice in choices):
                continue
            with suppress(Opaque):
                place, window, tap = self._describe(block, stmt, call, depth)
                windows.setdefault((*place, window.others, window.options), window).taps.append(tap)
        return list(windows.values())

    def _describe(
        self, block: list[ast.stmt], stmt: ast.stmt, call: ast.Call, depth: int
    ) -> tuple[tuple[str, Polynomial], Window, Tap]:
        """(What the address begins with and the rest, but for the column; the window, without taps; the load as a tap).

        Raises Opaque.
        """
        mask, shape = tree.mask_of(call), self.view.shapes.of(call)
        address = self.flow.expand(call.args[0], stmt, depth)
        (sign, start), *rest = terms(address)
        wide = self.view.shapes.of(mask) if mask else None
        if mask is None or not isinstance(start, ast.Name) or sign < 0 or (shape or ())[-1:] != (self.block,):
            raise Opaque
        if wide is None or broadcast_shapes(shape, wide) != shape:
            raise Opaque
        read = [(sign, self._read(p)) for sign, p in rest]
        shift = sum(sign * dict(poly.terms).get((), 0) for sign, poly in read if _is_number(poly))
        place = sum((Polynomial.number(sign) * poly for sign, poly in read), Polynomial.number(-shift))
        beside = place - Polynomial.of(self.name)
        if _has(beside, self.name) or _has(beside, start.id) or () in dict(beside.terms):
            raise Opaque
        self._must_be_one(address, {self.name})
        limits, others = self.split_mask(mask, stmt)
        given = [*call.args[2:], *(k.value for k in call.keywords if k.arg != "mask")]
        for value in given:
            self._must_be_one(value)
        text = write_sum([(s, p) for s, p in terms(address) if not _is_number(self._read(p))])
        natural = is_never_negative(self.view, self.value, self.view.flow.at(self.value))
        window = Window(block, text, others, tuple(tree.list_options(call)), natural)
        return (start.id, beside), window, Tap(stmt, call, shift, limits)

    def _must_be_one(self, node: ast.AST, others: Collection[str] = ()) -> None:
        """Raises Opaque if an expression may have several values along a row, or at several places of the function.

        Names in others may.
        """
        for n in ast.walk(node):
            if tree.is_tl(n, "load", "arange") or isinstance(n, (ast.IfExp, ast.Lambda)):
                raise Opaque
        for name in tree.reads(node).difference(others):
            shape = self.view.shapes.names.get(name, ())
            if self._written[name] > 1 or shape is None or shape[-1:] not in ((), ("1",)):
                raise Opaque

    @cached_property
    def _written(self) -> Counter[str]:
        """How often each name is assigned."""
        nodes = (n for s in self.view.body for n in ast.walk(s))
        stored = [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        return Counter([*stored, *(name for name in self.view.function.params if name in stored)])

    def split_mask(self, mask: ast.expr, stmt: ast.stmt) -> tuple[frozenset[Bound], tuple[str, ...]]:
        """(A mask's bounds of the column, its other conditions as texts). Raises Opaque."""
        bounds: set[Bound] = set()
        others: set[str] = set()
        for part in tree.conjuncts(mask):
            if self.name not in tree.reads(self.flow.expand(part, stmt)):
                self._must_be_one(part)
                others.add(tree.parenthesise(tree.text_of(part)))
            elif isinstance(part, ast.Name) and (found := self.flow.value(part.id, stmt)) is not None:
                inner = self.split_mask(*found)
                bounds |= inner[0]
                others |= set(inner[1])
            else:
                bounds.add(self._read_bound(self.flow.expand(part, stmt)))
        return frozenset(bounds), tuple(sorted(others))

    def _read(self, node: ast.expr) -> Polynomial:
        return read_polynomial(node, self._assumed.get, {self.name})

    @cached_property
    def _assumed(self) -> dict[str, Polynomial]:
        """The constexprs of which the text takes one value for granted, as after the turns of a loop over a window."""
        found = (ASSUMED.fullmatch(condition) for condition in self.view.assumed)
        return {m[1]: Polynomial.number(int(m[2])) for m in found if m}

    def _read_bound(self, node: ast.expr) -> Bound:
        """A comparison as a bound of the column. Raises Opaque."""
        if not isinstance(node, ast.Compare) or len(node.ops) > 1 or type(node.ops[0]) not in COMPARED:
            raise Opaque
        left, right, op = self._read(node.left), self._read(node.comparators[0]), type(node.ops[0])
        if not _has(left, self.name):
            left, right, op = right, left, MIRRORED[op]
        limit = right - left + Polynomial.of(self.name)
        for text in {factor for names, _ in limit.terms for factor in names}:
            atom = tree.expression(text)
            self._must_be_one(atom)
            if text == self.name or any(
                isinstance(n, ast.Div) or isinstance(getattr(n, "value", None), float) for n in ast.walk(atom)
            ):
                raise Opaque
        word, more = COMPARED[op]
        return word, limit + Polynomial.number(more)


def _is_number(polynomial: Polynomial) -> bool:
    return all(not names for names, _ in polynomial.terms)


def _has(polynomial: Polynomial, name: str) -> bool:
    return any(name in names for names, _ in polynomial.terms)
