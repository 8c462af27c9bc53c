"""Several rows as one two-dimensional block: each program takes a [ROWS, BLOCK] tile instead of one row.

Values that depend on the row become [ROWS, 1], columns [1, BLOCK]; reductions go along axis 1 and keep it.
"""

from __future__ import annotations

import ast
import copy

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import ACCESSES
from kernelsearch.propose.analysis.flow import Dependence, touches
from kernelsearch.propose.analysis.shapes import ANY_SHAPE
from kernelsearch.propose.analysis.view import Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit

REDUCED = ("sum", "max", "min")


class Rows2D(Edit):
    summary = "a [ROWS, BLOCK] tile of several rows per program"

    def change(self, view: View) -> Changes:
        refuse_if(view.function.calls, "it calls helper functions")
        view.must_only(ACCESSES, view.body)
        refuse_if(not any(map(_is_row, ast.walk(view.node))), "it does not take its row from program id 0")
        for node in ast.walk(ast.Module(view.body, [])):
            if tree.callee(node).startswith("tl.") and not tree.is_tl(node, *ANY_SHAPE):
                raise NotApplicable(f"{tree.callee(node)} has no form with rows")
            method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr
            if method and tree.callee(node).partition(".")[0] not in tree.MODULES:
                refuse_if(method != "to" and not method.startswith("is_"), f"{method} has no form with rows")
            refuse_if(isinstance(node, ast.Subscript), "it works on two-dimensional blocks already")
        rewriter = _Rewriter(view)
        rows, patch = rewriter.rows_name, tree.rebuild(view.node, rewriter.body())
        why = f"Each program takes {rows} rows at once, so short rows fill its threads."
        grid = f"(cdiv({view.grid[0]}, {rows}), {view.grid[1]}, {view.grid[2]})"
        yield view.rewrite(patch, why, {rewriter.count: view.grid[0]}, {rows: ((1, 2, 4, 8, 16, 32), 4)}, grid=grid)


class _Rewriter:
    """Writes a body for one row as a body for a block of rows."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.rows_name, self.count = view.fresh_name("ROWS"), view.fresh_name("n_rows")
        self.rows, self.mask = view.fresh_name("rows"), view.fresh_name("row_mask")
        self.row = Dependence(view.body, _is_row)
        self.reduced = Dependence(view.body, lambda n: tree.is_tl(n, *REDUCED))
        self.by_row = self.row.names
        for name, shape in view.shapes.names.items():
            refuse_if(shape is None or len(shape) > 1, f"{name} is not a scalar or a one-dimensional block")

    def body(self) -> list[ast.stmt]:
        head = tree.statements(
            f"{self.rows} = tl.program_id(0) * {self.rows_name} + tl.arange(0, {self.rows_name})[:, None]\n"
            f"{self.mask} = {self.rows} < {self.count}\n"
        )
        scalars = {n for n in self.reduced.names if self.view.shapes.names.get(n) == ()}
        carried = {n for loop in tree.loops(self.view.body) for n in tree.writes(loop.body)} & (self.by_row | scalars)
        return head + [self._statement(s, carried) for s in self.view.body]

    def _statement(self, stmt: ast.stmt, carried: set[str]) -> ast.stmt:
        """The statement for a block of rows; carried are the names that get axes and change in a loop."""
        if isinstance(stmt, (ast.For, ast.If)):
            head = tree.head_of(stmt)
            if self.has_axes(head) or (isinstance(stmt, ast.If) and self.view.shapes.of(head) != ()):
                raise NotApplicable("a loop or branch depends on the row or on a reduction")
            fresh = copy.copy(stmt)
            fresh.body = [self._statement(s, carried) for s in stmt.body]
            fresh.orelse = [self._statement(s, carried) for s in stmt.orelse]
            return fresh
        refuse_if(isinstance(stmt, ast.While), "it has a while loop")
        pair = tree.assignment(stmt)
        if pair is None and not (isinstance(stmt, ast.Expr) and tree.is_tl(stmt.value, "store", "assume")):
            raise NotApplicable(f"it has a {type(stmt).__name__} statement")
        wide = tree.transform(copy.deepcopy(stmt), self._widen)
        if pair is None or pair[0] not in carried:
            return wide
        refuse_if(pair[0] in self.view.function.params, "a loop changes a parameter")
        if not (self.row.reaches(pair[1]) if pair[0] in self.by_row else self.reduced.reaches(pair[1])):
            if not isinstance(wide, ast.Assign):
                raise NotApplicable("an accumulator does not start with a plain assignment")
            wide.value = self._spread(pair[1], wide.value, self.rows_name if pair[0] in self.by_row else "1")
        return wide

    def has_axes(self, node: ast.AST) -> bool:
        """Whether a scalar is a block of one column when it is written for a block of rows."""
        return self.row.reaches(node) or self.reduced.reaches(node)

    def _spread(self, old: ast.expr, new: ast.expr, rows: str) -> ast.expr:
        """An accumulator's initial value with one entry per row, or with one for all."""
        if isinstance(new, ast.Call) and tree.is_tl(old, "zeros", "full"):
            new.args[0].elts[0] = tree.expression(rows)  # type: ignore[attr-defined]
            return new
        if tree.is_infinity(old, -1, 1) or (isinstance(old, ast.Constant) and isinstance(old.value, float)):
            return tree.expression(f"tl.full([{rows}, 1], {tree.text_of(old)}, tl.float32)")
        raise NotApplicable("an accumulator starts with neither a float number nor tl.zeros or tl.full")

    def _widen(self, node: ast.AST) -> ast.AST | None:
        """A call with the shape of a block of rows; None for any other node."""
        if _is_row(node):
            return ast.Name(self.rows, ast.Load())
        if tree.is_tl(node, "num_programs") and tree.program_axis(node) == 0:
            return ast.Name(self.count, ast.Load())
        if isinstance(node, ast.IfExp) and touches(node.test, {*self.by_row, self.rows}):
            refuse_if(any(tree.is_tl(n, "load") for n in ast.walk(node)), "whether it loads depends on the row")
            return ast.Call(tree.expression("tl.where"), [node.test, node.body, node.orelse], [])
        if tree.is_tl(node, "arange"):
            return tree.expression(f"{tree.text_of(node)}[None, :]")
        if tree.is_tl(node, "zeros", "full"):
            return self._ranked(node)
        if tree.is_tl(node, "assume"):
            refuse_if(self.has_axes(node), "an assumption depends on the row or on a reduction")
        if tree.is_tl(node, "multiple_of", "max_contiguous"):  # they name one number for each axis
            steady = tree.text_of(node.args[0]) in self.view.function.params and not self.has_axes(node)
            return None if steady else node.args[0]
        if tree.is_tl(node, *REDUCED):
            return _along_columns(node)
        if tree.is_tl(node, "load", "store"):
            if touches(node.args[0], {*self.by_row, self.rows}):
                return self._add_row_mask(node)
            refuse_if(tree.is_tl(node, "store"), "a store does not depend on the row")
        return None

    def _ranked(self, node: ast.Call) -> ast.Call:
        """A `tl.zeros` or `tl.full` of shape [SIZE] with shape [1, SIZE], or with one value for each row."""
        if not node.args or not isinstance(node.args[0], (ast.List, ast.Tuple)) or len(node.args[0].elts) != 1:
            raise NotApplicable("a block's shape is not written as [SIZE]")
        size, value = tree.text_of(node.args[0].elts[0]), tree.argument(node, 1, "value")
        if tree.is_tl(node, "full") and value is not None and (touches(value, {self.rows}) or self.has_axes(value)):
            rows = self.rows_name if touches(value, {*self.by_row, self.rows}) else "1"
            wide = f"tl.broadcast_to({tree.text_of(value)}, [{rows}, {size}])"
            dtype = tree.argument(node, 2, "dtype")
            return tree.expression(f"{wide}.to({tree.text_of(dtype)})" if dtype else wide)  # type: ignore[return-value]
        node.args[0].elts.insert(0, ast.Constant(1))
        return node

    def _add_row_mask(self, node: ast.Call) -> ast.Call:
        """The load or store with the mask of the rows as well."""
        is_load = tree.is_tl(node, "load")
        mask, other = tree.mask_of(node), tree.argument(node, 2, "other") if is_load else None
        rows: ast.expr = ast.Name(self.mask, ast.Load())
        if mask is not None:
            rows = ast.BinOp(mask, ast.BitAnd(), rows)
        elif is_load and other is None:
            other = ast.Constant(0)
        keywords = [ast.keyword("mask", rows), *([ast.keyword("other", other)] if other is not None else [])]
        rest = [k for k in node.keywords if k.arg not in ("mask", "other")]
        return ast.Call(node.func, node.args[: 1 if is_load else 2], [*keywords, *rest])


def _is_row(node: ast.AST) -> bool:
    return tree.is_tl(node, "program_id") and tree.program_axis(node) == 0


def _along_columns(node: ast.Call) -> ast.Call:
    """A reduction of a one-dimensional block, along axis 1 and keeping it."""
    axis = tree.argument(node, 1, "axis")
    plain = {k.arg for k in node.keywords} <= {"axis"} and len(node.args) <= 2
    if not plain or (axis is not None and tree.text_of(axis) not in ("0", "-1", "None")):
        raise NotApplicable("a reduction has more arguments than an axis")
    keywords = [ast.keyword("axis", ast.Constant(1)), ast.keyword("keep_dims", ast.Constant(True))]
    return ast.Call(node.func, node.args[:1], keywords)
