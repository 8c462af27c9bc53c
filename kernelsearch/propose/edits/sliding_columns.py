"""Columns that slide: whole vectors are loaded once, and what neighbouring columns share is taken from registers.

In a window along a row (pooling, a stencil, a short convolution) the loads for `x`, `x + 1`, `x + 2` of a tile read
almost the same elements, each a little further along, most of them from addresses at which no vector begins. Here a
tile is loaded at shifts that are multiples of VEC columns, in whole vectors. A load at any other shift is put together
from two of them: a thread holds VEC neighbours, and `tl.split` and `tl.join` of an axis that lies in a thread move
nothing.
"""

from __future__ import annotations

import ast
import copy
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.bounds import is_never_negative
from kernelsearch.propose.analysis.flow import Flow, drop_unread, strip_axes, terms
from kernelsearch.propose.analysis.polynomials import Opaque, Polynomial, evaluate_polynomial, read_polynomial
from kernelsearch.propose.analysis.row_parts import must_keep_axes, must_not_decide
from kernelsearch.propose.analysis.shapes import broadcast_shapes
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.sliding_rows import must_do_rows_alike, replace_nodes

VEC = 4
"""Columns of a vector: 16 bytes of float32. Two splits in two take one apart."""
ASSUMED = re.compile(r"(\w+) == (-?\d+)")
BELOW, FROM = "<", ">="
COMPARED = {ast.Lt: (BELOW, 0), ast.LtE: (BELOW, 1), ast.Gt: (FROM, 1), ast.GtE: (FROM, 0)}
"""What `column OP limit` is for whole numbers: an operator, and what is added to the limit."""
MIRRORED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}

Bound = tuple[str, Polynomial]
"""BELOW or FROM, and the limit of a column."""


class SlidingColumns(Edit):
    summary = "loads of neighbouring columns are put together from whole vectors that are loaded once"
    refusal = "no tile is loaded at several shifts along a row, between bounds"
    usual_gain = 0.2

    def change(self, view: View) -> Changes:
        if any(isinstance(s, (ast.If, ast.While)) for s in tree.all_statements(view.body)) or view.function.calls:
            raise NotApplicable("it has a branch or a helper")
        must_do_rows_alike(view, {"split", "join", "reshape"})
        for stmt in view.body:
            pair = tree.assignment(stmt)
            if pair and tree.calls(pair[1], "arange"):
                columns = _Columns(view, *pair)
                if columns.block and columns.windows:
                    yield columns.write()
                    return


@dataclass(frozen=True)
class Tap:
    """A load at `shift` columns from where the others of its window are; limits are bounds of the column."""

    stmt: ast.stmt
    call: ast.Call
    shift: int
    limits: frozenset[Bound]


@dataclass
class Window:
    """Loads of one row at `address + shift`, in order. beside is the address without its start and the column.

    natural: no column is below 0.
    """

    block: list[ast.stmt]
    address: str
    beside: Polynomial
    start: str
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
class _Columns:
    """The columns of a tile: `name = value`, a number plus the elements of a block along the last axis."""

    view: View
    name: str
    value: ast.expr

    @cached_property
    def block(self) -> str:
        """The constexpr that says how many columns a tile has; empty if the columns are not neighbours."""
        parts = terms(self.value)
        (arange,) = tree.calls(self.value, "arange")[:1]
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

    @cached_property
    def is_natural(self) -> bool:
        """Whether no column is below 0."""
        return is_never_negative(self.view, self.value, self.view.flow.at(self.value))

    @cached_property
    def windows(self) -> list[Window]:
        """The loads that can be put together. Raises NotApplicable where one of them may matter elsewhere."""
        found: list[Window] = []
        for depth in (0, 1, 2, 12):  # addresses as they are written, if that shows as many of one row
            deeper = [w for block in tree.blocks(self.view.body) for w in self._list_windows(block, depth)]
            deeper = [w for w in deeper if w.is_whole() and self._stays(w)]
            found = max(found, deeper, key=lambda windows: sum(len(w.taps) for w in windows))
        self._must_end_in_masked_stores(found)
        return found

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
        launches = self.view.own_launches
        found = [evaluate_polynomial(apart, launch.args) for launch in launches]
        return (bool(found) and all(n is not None and n >= 0 for n in found)) or (
            _is_number(apart) and dict(apart.terms).get((), 0) >= 0
        )

    def write(self) -> Change:
        """The change."""
        view = self.view
        added: dict[int, str] = {}
        replaced: dict[int, ast.expr] = {}
        for window in self.windows:
            first = min(window.taps, key=lambda t: window.block.index(t.stmt))
            text, values = self._write_window(window)
            added[id(first.stmt)] = added.get(id(first.stmt), "") + text
            replaced |= {id(t.call): tree.expression(values[t.shift]) for t in window.taps}

        def rebuild(block: list[ast.stmt]) -> list[ast.stmt]:
            new: list[ast.stmt] = []
            for stmt in block:
                new += tree.statements(added.get(id(stmt), ""))
                if isinstance(stmt, ast.For):
                    new.append(copy.copy(stmt))
                    new[-1].body = rebuild(stmt.body)  # type: ignore[attr-defined]
                else:
                    new.append(replace_nodes(stmt, lambda n: replaced.get(id(n))))  # type: ignore[arg-type]
            return new

        patch = tree.rebuild(view.node, drop_unread(rebuild(view.body)))
        change = view.rewrite(patch, f"Vectors of {VEC} columns are loaded once, and all shifts are made of them.")
        return Change(change.kernel.with_changes(**self._widen_space(change)), change.rationale)

    # ------------------------------------------------------------ what is loaded

    @cached_property
    def _flow(self) -> Flow:
        """Definitions, with the columns as if they were a parameter."""
        body = [s for s in self.view.body if self.name not in tree.writes(s)]
        return Flow(body, (*self.view.function.params, self.name))

    def _list_windows(self, block: list[ast.stmt], depth: int) -> Iterator[Window]:
        windows: dict[tuple[object, ...], Window] = {}
        plain = [s for s in block if isinstance(s, (ast.Assign, ast.AnnAssign, ast.AugAssign))]
        for stmt, call in ((s, call) for s in plain for call in tree.calls(s, "load") if call.args):
            choices = (n for n in ast.walk(stmt) if isinstance(n, (ast.IfExp, ast.BoolOp)))
            if self.name in tree.writes(stmt) or any(call in ast.walk(choice) for choice in choices):
                continue
            with suppress(Opaque):
                window, tap = self._describe(block, stmt, call, depth)
                key = (window.start, window.beside, window.others, window.options)
                windows.setdefault(key, window).taps.append(tap)
        return iter(windows.values())

    def _describe(self, block: list[ast.stmt], stmt: ast.stmt, call: ast.Call, depth: int) -> tuple[Window, Tap]:
        """The window that a load is of, still without taps, and the load as a tap. Raises Opaque."""
        mask, shape = tree.mask_of(call), self.view.shapes.of(call)
        address = self._flow.expand(call.args[0], stmt, depth)
        (sign, start), *rest = terms(address)
        wide = self.view.shapes.of(mask) if mask else None
        if mask is None or not isinstance(start, ast.Name) or sign < 0 or shape is None or shape[-1] != self.block:
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
        limits, others = self._split(mask, stmt)
        given = [*call.args[2:], *(k.value for k in call.keywords if k.arg != "mask")]
        for value in given:
            self._must_be_one(value)
        options = [tree.text_of(a) for a in call.args[2:]]
        options += [f"{k.arg}={tree.text_of(k.value)}" for k in call.keywords if k.arg != "mask"]
        text = tree.text_of(self._drop_numbers(address))  # type: ignore[arg-type]
        window = Window(block, text, beside, start.id, others, tuple(options), self.is_natural)
        return window, Tap(stmt, call, shift, limits)

    def _drop_numbers(self, address: ast.expr) -> ast.expr | None:
        """The address without the numbers that are added to it, in the order in which it was written."""
        match address:
            case ast.BinOp(left, ast.Add() | ast.Sub() as op, right):
                left, right = self._drop_numbers(left), self._drop_numbers(right)
                if left is None and right is not None:
                    return right if isinstance(op, ast.Add) else ast.UnaryOp(ast.USub(), right)
                return left if right is None else ast.BinOp(left, op, right)  # type: ignore[arg-type]
        return None if _is_number(self._read(address)) else address

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

    def _split(self, mask: ast.expr, stmt: ast.stmt) -> tuple[frozenset[Bound], tuple[str, ...]]:
        """(A mask's bounds of the column, its other conditions as texts). Raises Opaque."""
        bounds: set[Bound] = set()
        others: set[str] = set()
        for part in tree.conjuncts(mask):
            if self.name not in tree.reads(self._flow.expand(part, stmt)):
                self._must_be_one(part)
                others.add(tree.parenthesise(tree.text_of(part)))
            elif isinstance(part, ast.Name) and (found := self._flow.value(part.id, stmt)) is not None:
                inner = self._split(*found)
                bounds |= inner[0]
                others |= set(inner[1])
            else:
                bounds.add(self._read_bound(self._flow.expand(part, stmt)))
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
            if text == self.name or any(isinstance(n, ast.Div) or _is_float(n) for n in ast.walk(atom)):
                raise Opaque
        word, more = COMPARED[op]
        return word, limit + Polynomial.number(more)

    # ------------------------------------------------------------ whether it may be

    def _stays(self, window: Window) -> bool:
        """Whether nothing that the loads read changes between the first and the last of them."""
        places = [window.block.index(t.stmt) for t in window.taps]
        between = window.block[min(places) : max(places) + 1]
        if any(tree.calls(s, "store") or isinstance(s, ast.For) for s in between):
            return False
        limits = [_write(limit) for _, limit in window.moving | window.asked]
        options = [option.partition("=")[2] or option for option in window.options]
        read = tree.reads(tree.expression(", ".join((window.address, *window.others, *limits, *options))))
        return not read & tree.writes(between)

    def _must_end_in_masked_stores(self, windows: list[Window]) -> None:
        """Columns outside of the tile get other values than before: no store, address or mask may see them."""
        names = tree.writes(t.stmt for w in windows for t in w.taps)
        must_not_decide(self.view.body, names)
        must_keep_axes(self.view.body, names)
        for call in tree.calls(self.view.node, "store"):
            mask = tree.mask_of(call)
            bounds: frozenset[Bound] = frozenset()
            with suppress(Opaque):
                bounds = self._split(mask, self._flow.at(call))[0] if mask is not None else bounds
            if not all(window.fixed <= bounds for window in windows):
                raise NotApplicable("a store has no mask of the columns")

    # ------------------------------------------------------------ the new text

    def _write_window(self, window: Window) -> tuple[str, dict[int, str]]:
        """(The loads of whole vectors and their elements, what stands for the load at each shift)."""
        shape = self.view.shapes.of(window.taps[0].call)
        rows = ", ".join(shape[:-1])  # type: ignore[index]
        shaped = f"{rows}, " if rows else ""
        vectors = {
            s: self.view.fresh_name(f"left_{-s}" if s < 0 else f"right_{s}" if s else "here") for s in window.shifts
        }
        elements: dict[int, str] = {}
        loads, splits = "", ""
        needed = {t.shift // VEC * VEC + more for t in window.taps if t.shift % VEC for more in (0, VEC)}
        for shift, name in vectors.items():
            column = _write(Polynomial.of(self.name) + Polynomial.number(shift))
            place = f"{window.address}{f' - {-shift}' if shift < 0 else f' + {shift}' if shift else ''}"
            needed_bounds = [bound for bound in self.bounds_of(window) if not window.is_implied(*bound, shift)]
            bounds = sorted(f"({column} {op} {_write(limit)})" for op, limit in needed_bounds)
            options = "".join(f", {option}" for option in window.options)
            if window.last > 0 and not any(
                op == BELOW for op, _ in window.moving
            ):  # without a column nothing is asked for
                bounds += sorted(f"({_write(limit)} > 0)" for op, limit in window.fixed if op == BELOW)
            mask = " & ".join([*bounds, *window.others])
            loads += f"{name} = tl.load({place}, {mask}{options})\n"
            if shift in needed:
                even, odd = (self.view.fresh_name(f"{name}_{word}") for word in ("even", "odd"))
                own = [self.view.fresh_name(f"{name}_at_{i}") for i in range(VEC)]
                elements |= dict(zip(itertools.count(shift), own))
                splits += f"{even}, {odd} = tl.split(tl.reshape({name}, [{shaped}{self.block} // {VEC}, 2, 2]))\n"
                splits += f"{own[0]}, {own[2]} = tl.split({even})\n{own[1]}, {own[3]} = tl.split({odd})\n"
        values = {}
        for shift in {t.shift for t in window.taps}:
            if shift % VEC:
                a, b, c, d = (elements[shift + i] for i in range(VEC))
                joined = f"tl.join(tl.join({a}, {c}), tl.join({b}, {d}))"
                values[shift] = f"tl.reshape({joined}, [{shaped}{self.block}])"
            else:
                values[shift] = vectors[shift]
        return loads + splits, values

    def _widen_space(self, change: Change) -> dict[str, dict[str, object]]:
        """The space and config without tiles narrower than a vector."""
        kernel, name = change.kernel, self.view.function.name
        own = {self.block, f"{name}.{self.block}"}
        wide = lambda values: tuple(v for v in values if v % VEC == 0) or (VEC,)  # noqa: E731
        return {
            "space": {k: wide(v) if k in own else v for k, v in kernel.space.items()},
            "config": {k: max(v, VEC) if k in own else v for k, v in kernel.config.items()},
        }


def _is_float(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float)


def _is_number(polynomial: Polynomial) -> bool:
    return all(not names for names, _ in polynomial.terms)


def _has(polynomial: Polynomial, name: str) -> bool:
    return any(name in names for names, _ in polynomial.terms)


def _write(polynomial: Polynomial) -> str:
    """The text of a polynomial: names first, its number last."""
    text = ""
    for names, factor in sorted(polynomial.terms, key=lambda t: (not t[0], t[1] < 0, len(t[0]), t[0])):
        sign = (" - " if factor < 0 else " + ") if text else ("-" if factor < 0 else "")
        own = [str(abs(factor))] if abs(factor) != 1 or not names else []
        text += sign + " * ".join([*own, *map(tree.parenthesise, names)])
    return text or "0"
