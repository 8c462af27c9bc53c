"""Columns that slide: whole vectors are loaded once, and what neighbouring columns share is taken from registers.

In a window along a row (pooling, a stencil, a short convolution) the loads for `x`, `x + 1`, `x + 2` of a tile read
almost the same elements, each a little further along, most of them from addresses at which no vector begins. Here a
tile is loaded at shifts that are multiples of VEC columns, in whole vectors. A load at any other shift is put together
from two of them: a thread holds VEC neighbours, and `tl.split` and `tl.join` of an axis that lies in a thread move
nothing.
"""

from __future__ import annotations

import ast
import itertools
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import READS
from kernelsearch.propose.analysis.flow import drop_unread
from kernelsearch.propose.analysis.polynomials import Opaque, Polynomial
from kernelsearch.propose.analysis.row_parts import must_keep_axes, must_not_decide
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.analysis.windows import BELOW, VEC, Bound, Columns, Window
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.sliding_rows import must_do_rows_alike


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
class _Columns(Columns):
    """The columns of a tile, and the function with their windows made of whole vectors."""

    @cached_property
    def windows(self) -> list[Window]:
        """The loads that can be put together. Raises NotApplicable where one of them may matter elsewhere."""
        found: list[Window] = []
        for depth in (0, 1, 2, 12):  # addresses as they are written, if that shows as many of one row
            deeper = [w for block in tree.blocks(self.view.body) for w in self.list_windows(block, depth)]
            deeper = [w for w in deeper if w.is_whole() and self._stays(w)]
            found = max(found, deeper, key=lambda windows: sum(len(w.taps) for w in windows))
        self._must_end_in_masked_stores(found)
        return found

    def write(self) -> Change:
        """The change."""
        view = self.view
        patch = tree.Patch(view.text)
        for window in self.windows:
            first = min(window.taps, key=lambda t: window.block.index(t.stmt))
            text, values = self._write_window(window)
            patch.insert_before(first.stmt, text)
            for tap in window.taps:
                patch.replace_expr(tap.call, values[tap.shift])
        node = tree.function_of(patch.text())
        patch = tree.rebuild(node, drop_unread(node.body, view.helpers))
        change = view.rewrite(patch, f"Vectors of {VEC} columns are loaded once, and all shifts are made of them.")
        return Change(change.kernel.with_changes(**self._widen_space(change)), change.rationale)

    # ------------------------------------------------------------ whether it may be

    def _stays(self, window: Window) -> bool:
        """Whether nothing that the loads read changes between the first and the last of them."""
        places = [window.block.index(t.stmt) for t in window.taps]
        between = window.block[min(places) : max(places) + 1]
        if not self.view.does_only(READS, between) or any(isinstance(s, ast.For) for s in between):
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
                bounds = self.split_mask(mask, self.flow.at(call))[0] if mask is not None else bounds
            refuse_if(not all(window.fixed <= bounds for window in windows), "a store has no mask of the columns")

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
            "config": {k: max(v, VEC) if k in own and isinstance(v, int) else v for k, v in kernel.config.items()},
        }


def _write(polynomial: Polynomial) -> str:
    """The text of a polynomial: names first, its number last."""
    text = ""
    for names, factor in sorted(polynomial.terms, key=lambda t: (not t[0], t[1] < 0, len(t[0]), t[0])):
        sign = (" - " if factor < 0 else " + ") if text else ("-" if factor < 0 else "")
        own = [str(abs(factor))] if abs(factor) != 1 or not names else []
        text += sign + " * ".join([*own, *map(tree.parenthesise, names)])
    return text or "0"
