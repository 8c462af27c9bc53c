"""Rows that slide: a program does ROWS consecutive rows of a plane, and what one row loaded the next ones keep.

In a window over rows (a stencil, pooling, a convolution of each channel by itself) the load for `y + 1` of one row is
the load for `y` of the next. One of each such chain remains, the others are carried from iteration to iteration.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import ACCESSES
from kernelsearch.propose.analysis.flow import Flow, drop_unread, find_dependent, touches
from kernelsearch.propose.analysis.polynomials import Opaque, Polynomial, read_polynomial
from kernelsearch.propose.analysis.shapes import ANY_SHAPE
from kernelsearch.propose.analysis.tile_order import find_accessed, find_pointers, may_meet
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit

BY_ROW = ANY_SHAPE.difference({"sum", "max", "min"}) | {"to", "float", "broadcast_to"}
"""Functions and methods that give each row of a block a value of its own."""
ROWS = (4, 8, 16, 32, 64)
MOST_PROGRAMS = 65535
"""Along the grid's second axis."""


class SlidingRows(Edit):
    summary = "ROWS consecutive rows of a plane per program, which keep the loads that they share"
    refusal = "no row's load is the next row's load one row further up"

    def change(self, view: View) -> Changes:
        if any(not isinstance(s, (ast.Assign, ast.Expr)) for s in view.body) or view.function.calls:
            raise NotApplicable("it has a loop, a branch or a helper")
        must_do_rows_alike(view)
        view.must_only(ACCESSES, view.body)
        refuse_if(may_meet(*find_accessed(view, view.body)), "it may store what it loads")
        for place, stmt in enumerate(view.body):
            pair = tree.assignment(stmt)
            if pair and tree.calls(pair[1], "arange"):
                rows = _Rows(view, place, pair[0])
                if rows.size and rows.chains:
                    yield rows.write()
                    return


def must_do_rows_alike(view: View, others: Collection[str] = ()) -> None:
    """Raises NotApplicable if a function other than these may give an element what another element has."""
    for call in (n for n in ast.walk(view.node) if isinstance(n, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else tree.text_of(call.func)
        if name not in BY_ROW and name not in others and not tree.callee(call).startswith("libdevice."):
            raise NotApplicable(f"{name} may combine rows")


@dataclass(frozen=True)
class _Rows:
    """Rows numbered over all planes by a block `name`, which statement `place` of the body defines."""

    view: View
    place: int
    name: str

    @cached_property
    def size(self) -> str:
        """The parameter by which rows are taken apart: `name % size` is the row in its plane; empty if none is."""
        found = [n for s in self.view.body for n in ast.walk(s) if isinstance(n, ast.BinOp) and self._is_name(n.left)]
        sizes = {tree.text_of(n.right) for n in found if isinstance(n.op, (ast.Mod, ast.FloorDiv))}
        return sizes.pop() if len(sizes) == 1 and sizes <= set(self.view.function.params) else ""

    @cached_property
    def bound(self) -> tuple[str, str]:
        """(The name of the condition that a row exists, the number of rows). Raises NotApplicable without one."""
        for pair in filter(None, map(tree.assignment, self.view.body)):
            match pair[1]:
                case ast.Compare(left, [ast.Lt()], [ast.Name(count)]) if self._is_name(left):
                    return pair[0], count
        raise NotApplicable("its rows have no mask")

    @property
    def mask(self) -> str:
        return self.bound[0]

    @cached_property
    def chains(self) -> list[list[ast.Call]]:
        """Loads of which each is, one row further down, the one before it; the longest chains alone."""
        refuse_if(not all(map(self._is_masked, tree.calls(self.view.node, "store"))), "a store has no mask of the rows")
        loads = list(filter(self._is_masked, tree.calls(self.view.node, "load")))
        keys = {}
        for call in loads:
            try:
                keys[id(call)] = self._describe(call, 0), self._describe(call, 1)
            except Opaque:
                continue
        known = {keys[id(c)][0]: c for c in loads if id(c) in keys}
        after = {i: known.get(here_next[1]) for i, here_next in keys.items() if here_next[0] != here_next[1]}
        later = {id(c) for c in after.values() if c is not None}
        chains = []
        for first in (c for c in loads if id(c) in after and id(c) not in later):
            chain = [first]
            while (following := after.get(id(chain[-1]))) is not None:
                chain.append(following)
            chains.append(chain)
        longest = max(map(len, chains), default=0)
        return [c for c in chains if len(c) == longest] if longest > 1 else []

    def write(self) -> Change:
        """The change."""
        view, names = self.view, self._name_new()
        blocks = [tree.text_of(c.args[1]) for c in tree.calls(view.body[self.place], "arange")]
        refuse_if(len(blocks) != 1, "its rows are not one block")
        head = [*view.body[: self.place], *self._write_head(names)]
        before, inside = self._split(names)
        reach = len(self.chains[0]) - 1
        inside = [*tree.statements(self._write_row(names, reach)), *inside]
        loop = tree.make_loop(f"for {names['step']} in range({names['ROWS']} + {reach})", inside)
        patch = tree.rebuild(view.node, drop_unread([*head, *before, loop]))
        why = f"Each program does {names['ROWS']} rows in turn and loads each row of the input once for all of them."
        tunables = {names["ROWS"]: (ROWS, 16)}
        return view.rewrite(patch, why, tunables=tunables, grid=self._write_grid(names["ROWS"], blocks[0]))

    # ------------------------------------------------------------ what is the same one row further down

    def _is_name(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self.name

    def _is_masked(self, call: ast.Call) -> bool:
        mask = tree.mask_of(call)
        return mask is not None and self.mask in {tree.text_of(part) for part in tree.conjuncts(mask)}

    @cached_property
    def _flow(self) -> Flow:
        """Definitions, with the rows' number and mask as if they were parameters."""
        known = {self.name, self.mask}
        body = [s for s in self.view.body if not (tree.writes(s) & known)]
        return Flow(body, (*self.view.function.params, *known))

    def _describe(self, call: ast.Call, down: int) -> tuple[object, ...]:
        """What a load reads, so many rows further down; equal for loads that read the same. Raises Opaque."""
        stmt = self._flow.at(call)
        parts = set()
        for part in tree.conjuncts(self._flow.expand(tree.mask_of(call), stmt)):  # type: ignore[arg-type]
            if tree.text_of(part) == self.mask:
                continue
            if isinstance(part, ast.Compare) and len(part.ops) == 1:
                left, right = (self._read(side, down) for side in (part.left, part.comparators[0]))
                parts.add((type(part.ops[0]).__name__, left - right))
            else:
                self._read(part, down)
                parts.add(("", tree.text_of(part)))  # type: ignore[arg-type]
        return self._read(self._flow.expand(call.args[0], stmt), down), frozenset(parts), tuple(tree.list_options(call))

    def _read(self, node: ast.expr, down: int) -> Polynomial:
        """The expression, so many rows further down, as a polynomial in the row, its plane, and all else."""

        def known(name: str) -> Polynomial | None:
            moved = Polynomial.of("<row>") + Polynomial.number(down)
            rows = Polynomial.of("<plane>") * Polynomial.of(self.size) + moved
            return {"<row>": moved, self.name: rows}.get(name)

        return read_polynomial(self._place(node, {"row": "<row>", "plane": "<plane>"}), known, {"<row>", self.name})

    # ------------------------------------------------------------ the new text

    def _name_new(self) -> dict[str, str]:
        fresh = self.view.fresh_name
        return {n: fresh(n) for n in ("ROWS", "group", "groups", "plane", "first", "step", "row", "exists", "whole")}

    def _write_head(self, names: dict[str, str]) -> list[ast.stmt]:
        pair = tree.assignment(self.view.body[self.place])
        n = names
        return tree.statements(
            f"{n['group']} = {tree.text_of(pair[1])}\n"  # type: ignore[index]
            f"{n['groups']} = tl.cdiv({self.size}, {n['ROWS']})\n"
            f"{n['plane']} = {n['group']} // {n['groups']}\n"
            f"{n['first']} = {n['group']} % {n['groups']} * {n['ROWS']}\n"
            f"{n['exists']} = {n['plane']} * {self.size} < {self.bound[1]}\n"
        )

    def _write_row(self, names: dict[str, str], reach: int) -> str:
        n = names
        return (
            f"{n['row']} = {n['first']} + {n['step']} - {reach}\n"
            f"{self.name} = {n['plane']} * {self.size} + {n['row']}\n"
            f"{n['whole']} = {n['exists']} & ({n['row']} < {self.size})\n"
            f"{self.mask} = {n['whole']} & ({n['step']} >= {reach})\n"
        )

    def _split(self, names: dict[str, str]) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """(The statements before the loop over rows, those inside it)."""
        kept = [[self.view.fresh_name(f"kept_{i}_{j}") for j in range(len(c))] for i, c in enumerate(self.chains)]
        for names_of_chain, chain in zip(kept, self.chains):
            for name, call in zip(names_of_chain, chain):
                call.kept = name  # type: ignore[attr-defined]
        last = {names_of_chain[-1] for names_of_chain in kept}
        before: list[ast.stmt] = []
        inside: list[ast.stmt] = []
        body = [s for s in self.view.body[self.place + 1 :] if self.mask not in tree.writes(s)]
        moved = find_dependent([self._place(s, names) for s in body], {names["row"], self.name})
        for stmt in body:
            new = self._place(stmt, names, carried=True)
            for call in tree.calls(stmt, "load"):
                held = getattr(call, "kept", None)
                if held in last:
                    text = tree.text_of(self._widen(self._place(call, names), names["whole"]))
                    inside += tree.statements(f"{held} = {text}")
                elif not held and not self._is_masked(call) and touches(new, moved):
                    raise NotApplicable("a load has no mask of the rows")
            if touches(new, moved.union(*kept)) or not tree.assignment(stmt):
                inside.append(new)
            else:
                before.append(self._widen(new, names["exists"]))  # type: ignore[arg-type]
        for i, chain in enumerate(self.chains):
            shape, pointer = self.view.shapes.of(chain[-1]), self._pointer(chain[-1])
            if shape is None:
                raise NotApplicable("the shape of a load is not known")
            for name, following in zip(kept[i], kept[i][1:]):
                before += tree.statements(f"{name} = tl.zeros([{', '.join(shape)}], {pointer}.dtype.element_ty)")
                inside += tree.statements(f"{name} = {following}")
        return before, inside

    def _place(self, node: tree.Node, names: dict[str, str], carried: bool = False) -> tree.Node:
        """The statement with the row and the plane by their own names, and loads of chains as what was kept."""

        def rule(n: ast.AST) -> ast.AST | None:
            if carried and (kept := getattr(n, "kept", None)):
                return ast.Name(kept, ast.Load())
            if isinstance(n, ast.BinOp) and self._is_name(n.left) and tree.text_of(n.right) == self.size:
                known = {ast.Mod: names["row"], ast.FloorDiv: names["plane"]}.get(type(n.op))
                return ast.Name(known, ast.Load()) if known else None
            return None

        return tree.transform(copy.deepcopy(node), rule)

    def _widen(self, node: ast.AST, mask: str) -> ast.AST:
        """The node with another mask of rows."""
        return tree.rename(copy.deepcopy(node), {self.mask: mask})

    def _pointer(self, call: ast.Call) -> str:
        """The tensor that a load reads: what its address begins with. Raises NotApplicable."""
        (pointer, *others) = find_pointers(self.view, call)
        refuse_if(others or not pointer, "the tensor of a load is not known")
        return pointer

    def _write_grid(self, rows: str, block: str) -> str:
        """The grid, with as many programs along the rows' axes as groups of rows need."""
        need = f"cdiv(cdiv({self.bound[1]}, {self.size}) * cdiv({self.size}, {rows}), {block})"
        stmt = self.view.body[self.place]
        expanded = self.view.flow.expand(tree.assignment(stmt)[1], stmt)  # type: ignore[index]
        used = sorted({tree.program_axis(c) for c in tree.calls(expanded, "program_id")})  # type: ignore[type-var]
        grid = list(self.view.grid)
        if used == [1, 2]:
            grid[1:] = f"min({need}, {MOST_PROGRAMS})", f"cdiv({need}, {MOST_PROGRAMS})"
        elif len(used) == 1:
            grid[used[0]] = need  # type: ignore[index]
        else:
            raise NotApplicable("its rows are not counted along the grid's axes")
        return f"({', '.join(grid)})"
