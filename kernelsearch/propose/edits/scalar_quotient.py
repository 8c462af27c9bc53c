"""Scalar quotients: a tile that lies in one group of columns divides once, and loads once what belongs to the group.

Where each channel of a row has a weight (a group norm, a bias after a convolution), the channel of a column is a
quotient, `column // size`: a division for each element, and a load of the weight for each. Most tiles lie in one.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from functools import cached_property

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.bounds import is_never_negative
from kernelsearch.propose.analysis.flow import drop_unread, find_dependent, find_unbound, strip_axes, terms, touches
from kernelsearch.propose.analysis.row_parts import must_do_elements, must_keep_axes, must_not_decide
from kernelsearch.propose.analysis.tile_order import find_read_later
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View
from kernelsearch.propose.edits.base import Edit

HINTS = ("multiple_of", "max_contiguous", "max_constancy")
SHORT_GROUP = 256
"""Columns of a group below which few tiles lie in one."""


class ScalarQuotient(Edit):
    summary = "a tile inside one group of columns (`column // size`) divides once, and loads once what the group has"
    refusal = "no load asks for a column by nothing but its quotient by a size"
    usual_gain = 0.1

    def change(self, view: View) -> Changes:
        for block in tree.blocks(view.body):
            for place, stmt in enumerate(block):
                pair = tree.assignment(stmt)
                if pair and view.shapes.of(pair[1]) and block[place + 1 :]:
                    tile = _Tile(view, block, place, *pair)
                    if tile.first and tile.size and tile.loads:
                        yield tile.write()
                        return


@dataclass(frozen=True)
class _GroupLoad:
    """A load of what the group has, and the masks `column < end` that it need not have, with their ends."""

    call: ast.Call
    ends: dict[str, str]

    def write(self, first: str) -> ast.Call:
        """The load if there is a first column."""
        parts = []
        mask = tree.mask_of(self.call)
        for part in tree.conjuncts(mask) if mask else []:
            end = self.ends.get(tree.text_of(part))
            parts.append(f"({first} < {end})" if end else tree.parenthesise(tree.text_of(part)))

        def replace(node: ast.expr) -> ast.expr:
            return tree.expression(" & ".join(parts)) if node is mask else node

        keywords = [ast.keyword(k.arg, replace(k.value)) for k in self.call.keywords]
        return ast.Call(self.call.func, list(map(replace, self.call.args)), keywords)


@dataclass(frozen=True)
class _Tile:
    """Columns, `name = value`: a number and the elements of a block. Statement `place` of a list of statements."""

    view: View
    block: list[ast.stmt]
    place: int
    name: str
    value: ast.expr

    @property
    def after(self) -> list[ast.stmt]:
        return self.block[self.place + 1 :]

    @cached_property
    def first(self) -> tuple[str, str] | None:
        """(The first column, the number of columns); None if the columns are not neighbours."""
        parts = terms(self.value)
        scalars = [(sign, part) for sign, part in parts if self.view.shapes.of(part) == ()]
        wide = [part for sign, part in parts if sign == 1 and self.view.shapes.of(part) != ()]
        if len(wide) != 1 or len(scalars) != len(parts) - 1 or not scalars or self.name in tree.reads(self.value):
            return None
        if "int64" in tree.text_of(self.view.flow.expand(self.value, self.block[self.place])):
            return None
        block = strip_axes(self.view.flow.expand(wide[0], self.block[self.place]))
        if not isinstance(block, ast.Call) or not tree.is_tl(block, "arange") or not tree.is_number(block.args[0], 0):
            return None
        signed = [f"{'-' if sign < 0 else '+'} {tree.parenthesise(tree.text_of(part))}" for sign, part in scalars]
        return " ".join(signed).removeprefix("+ "), tree.text_of(block.args[1])

    @cached_property
    def size(self) -> str:
        """The parameter by which the columns are divided; empty if there is none, or if groups are short."""
        divided = (n for s in self.after for n in ast.walk(s) if self._is_divided(n))
        sizes = {tree.text_of(n.right) for n in divided} & set(self.view.function.params) - self.view.flow.assigned  # type: ignore[attr-defined]
        size = sizes.pop() if len(sizes) == 1 else ""
        seen = [n for launch in self.view.own_launches if isinstance(n := launch.args.get(size), int)]
        return "" if seen and max(seen) < SHORT_GROUP else size

    @cached_property
    def quotient(self) -> str:
        return self.view.fresh_name("group")

    @cached_property
    def inner(self) -> list[ast.stmt]:
        """The statements after it as they are where all columns have one quotient."""

        def rule(node: ast.AST) -> ast.AST | None:
            if not self._is_divided(node) or tree.text_of(node.right) != self.size:  # type: ignore[attr-defined]
                return None
            whole = isinstance(node.op, ast.FloorDiv)  # type: ignore[attr-defined]
            return tree.expression(self.quotient if whole else f"({self.name} - {self.quotient} * {self.size})")

        return [tree.transform(copy.deepcopy(s), rule) for s in self.after]  # type: ignore[misc]

    @cached_property
    def wide(self) -> set[str]:
        """The names that may differ from column to column, in inner."""
        shape = self.view.shapes.of(self.value)
        assert shape is not None
        others = self.view.shapes.names.items()
        wide = {n for n, s in others if s is None or (s and (len(s) != len(shape) or s[self.axis] != "1"))}
        lanes = [s for s in self.inner if tree.calls(s, "arange")]
        return find_dependent(self.inner, (wide - tree.writes(self.after)) | {self.name} | tree.writes(lanes))

    @property
    def axis(self) -> int:
        shape = self.view.shapes.of(self.value)
        return shape.index(self.first[1]) if shape and self.first and self.first[1] in shape else 0

    def _axes_of(self, node: ast.AST) -> set[tuple[int, str]]:
        """The other axes along which an expression may differ."""
        shapes = (self.view.shapes.names.get(name) or () for name in tree.reads(node))
        return {(i, size) for shape in shapes for i, size in enumerate(shape) if i != self.axis and size != "1"}

    @cached_property
    def loads(self) -> list[_GroupLoad]:
        """The loads in inner that do not ask for the column any more, other than by its end."""
        if any(isinstance(s, (ast.For, ast.While, ast.If)) for s in self.after) or self.name in tree.writes(self.after):
            return []
        moved = find_dependent(self.after, {self.name})
        found = []
        for before, call in zip(
            *(tree.calls(ast.Module(b, []), "load") for b in (self.after, self.inner)), strict=True
        ):
            if call.args and touches(before.args[0], moved) and not self._is_wide(call.args[0]):
                mask, axes = tree.mask_of(call), self._axes_of(call.args[0])
                parts = tree.conjuncts(mask) if mask else []
                ends = {tree.text_of(part): self._read_end(part, before) for part in parts if self._is_wide(part)}
                rest = [part for part in parts if tree.text_of(part) not in ends]
                rest += [a for a in (*call.args[1:], *(k.value for k in call.keywords)) if a is not mask]
                if all(ends.values()) and not any(self._is_wide(r) or self._axes_of(r) - axes for r in rest):
                    found.append(_GroupLoad(call, ends))
        return found

    def _is_wide(self, node: ast.expr) -> bool:
        return touches(node, self.wide) or bool(tree.calls(node, "load", "arange"))

    def write(self) -> Change:
        """The change. Raises NotApplicable where columns beyond the end, which get the values too, may matter."""
        view, n = self.view, self.quotient
        self._must_be_plain()
        masks = {mask for load in self.loads for mask in load.ends}
        for store, call in zip(
            *(tree.calls(ast.Module(b, []), "store") for b in (self.after, self.inner)), strict=True
        ):
            mask = tree.mask_of(store)
            if not masks <= {tree.text_of(part) for part in (tree.conjuncts(mask) if mask else [])}:
                raise NotApplicable("a store has no mask of the columns")
            if not touches(call.args[0], self.wide):
                raise NotApplicable("a store is of the group, not of a column")
        first, count = self.first  # type: ignore[misc]
        replaced = {id(load.call): load.write(first) for load in self.loads}
        loaded = [s for s in self.inner if any(id(node) in replaced for node in ast.walk(s))]
        must_not_decide(self.inner, tree.writes(loaded))
        must_keep_axes(self.inner, tree.writes(loaded) | {n})
        inner = [tree.transform(s, lambda node: replaced.get(id(node))) for s in self.inner]
        names = {name: view.fresh_name(f"{name}_in") for name in sorted(tree.writes(inner))}
        head = f"{n} = {tree.parenthesise(first)} // {self.size}\n"
        test = f"{first} - {n} * {self.size} + {count} <= {self.size}"
        if not is_never_negative(view, self.value, self.block[self.place]):  # a quotient is rounded towards 0
            test = f"({first} >= 0) & ({test})"
        (assigned, branch) = tree.statements(f"{head}if {test}:\n    pass\nelse:\n    pass")
        assert isinstance(branch, ast.If)
        branch.body, branch.orelse = drop_unread([tree.rename(s, names) for s in inner]), self.after  # type: ignore[misc]
        patch = tree.Patch(view.text)
        patch.replace_stmt(self.after[0], f"{tree.text_of(assigned)}\n{tree.text_of(branch)}\n")
        for stmt in self.after[1:]:
            patch.replace_stmt(stmt, "")
        return view.rewrite(patch, "Tiles inside one group divide once, and load once what the group has.")

    def _must_be_plain(self) -> None:
        """Raises NotApplicable where a branch over what comes after the columns does not leave all as it is."""
        view, after = self.view, ast.Module(self.after, [])
        must_do_elements(after)  # type: ignore[arg-type]
        for node in ast.walk(after):
            name = tree.callee(node).removeprefix("tl.")
            if isinstance(node, ast.IfExp) or name in view.helpers or name in HINTS or name.startswith("atomic"):
                raise NotApplicable(f"{name or 'a condition'} may need a tile")
        blocks = [self.block[: self.place]]
        for holder in view.flow.holders_of(self.block[self.place]):
            around = view.flow.block_of(holder)
            blocks.append(around[: around.index(holder)])
        before = {name for b in blocks for s in b for name in _list_bound(s)}
        bound = {*view.function.params, *before, *find_unbound(self.after, {self.name})}
        if tree.writes(self.after) & bound:
            raise NotApplicable("a name has a value before it gets one of the columns")
        if tree.writes(self.after) & find_read_later(view, self.after[-1]):
            raise NotApplicable("what it computes of the columns is used later")

    def _is_divided(self, node: ast.AST) -> bool:
        match node:
            case ast.BinOp(ast.Name(name), ast.FloorDiv() | ast.Mod(), ast.Name()):
                return name == self.name
        return False

    def _read_end(self, part: ast.expr, call: ast.Call) -> str:
        """The end of a mask `column < end`; empty for any other mask."""
        stmt = self.view.flow.at(call)
        value = self.view.flow.value(part.id, stmt) if isinstance(part, ast.Name) else (part, stmt)
        match value:
            case (ast.Compare(ast.Name(name), [ast.Lt()], [end]), _) if name == self.name:
                return tree.text_of(end) if not touches(end, tree.writes(self.block)) else ""
        return ""


def _list_bound(stmt: ast.stmt) -> set[str]:
    """The names that have a value after a statement whatever it does: for a jit function, all that it leaves."""
    if isinstance(stmt, ast.If):
        both = [{name for s in block for name in _list_bound(s)} for block in (stmt.body, stmt.orelse)]
        return both[0] & both[1]
    return set() if isinstance(stmt, (ast.For, ast.While)) else tree.writes(stmt)
