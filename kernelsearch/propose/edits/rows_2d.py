"""Several rows as one two-dimensional block: each program takes a [ROWS, BLOCK] tile instead of one row.

Values that depend on the row become [ROWS, 1], columns [1, BLOCK]; reductions go along axis 1 and keep it.
"""

from __future__ import annotations

import ast
import copy

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import dependent, touches
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced

ROWS = (1, 2, 4, 8, 16, 32)
ELEMENTWISE = frozenset(
    "load store where sum max min exp exp2 log log2 sqrt rsqrt sqrt_rn sin cos abs erf sigmoid floor ceil maximum "
    "minimum fma fdiv div_rn arange program_id num_programs cdiv range static_range cast clamp zeros full assume "
    "multiple_of max_contiguous".split()
)


class Rows2D(FunctionEdit):
    name = "rows_2d"
    summary = "a [ROWS, BLOCK] tile of several rows per program"

    def change(self, view: View) -> list[Change]:
        if view.calls_helpers():
            raise CannotApply("it calls helper functions")
        if 0 not in view.axes or tree.calls(view.node, "num_programs"):
            raise CannotApply("it does not take its row from program id 0 alone")
        for node in ast.walk(ast.Module(view.body, [])):
            if tree.called(node).startswith("tl.") and not tree.is_tl(node, *ELEMENTWISE):
                raise CannotApply(f"{tree.called(node)} has no form with rows")
            if isinstance(node, ast.Subscript):
                raise CannotApply("it works on two-dimensional blocks already")
        rewriter = _Rewriter(view)
        body = rewriter.body()
        kernel = replaced(
            view,
            tree.rebuilt(view.node, body, [rewriter.count, f"{rewriter.rows_name}: tl.constexpr"]),
            grid=f"(cdiv({view.grid[0]}, {rewriter.rows_name}), {view.grid[1]}, {view.grid[2]})",
            args={rewriter.count: view.grid[0]},
            space={rewriter.rows_name: ROWS},
            config={rewriter.rows_name: 4},
        )
        why = f"Each program takes {rewriter.rows_name} rows at once, so short rows fill its threads."
        return [Change(kernel, why)]


class _Rewriter:
    def __init__(self, view: View) -> None:
        self.view = view
        self.rows_name, self.count = view.fresh("ROWS"), view.fresh("n_rows")
        self.rows, self.mask = view.fresh("rows"), view.fresh("row_mask")
        self.by_row = self._by_row()
        for name, shape in view.shapes.names.items():
            if shape is None or len(shape) > 1:
                raise CannotApply(f"{name} is not a scalar or a one-dimensional block")

    def _by_row(self) -> set[str]:
        body = copy.deepcopy(self.view.body)

        class Mark(ast.NodeTransformer):
            def visit_Call(self, node: ast.Call) -> ast.AST:
                self.generic_visit(node)
                if tree.is_tl(node, "program_id") and _axis(node) == 0:
                    return ast.Name("<row>", ast.Load())
                return node

        return dependent([Mark().visit(s) for s in body], {"<row>"})

    def row(self, node: ast.AST) -> bool:
        """Whether an expression depends on the row."""
        here = any(_axis(c) == 0 for c in tree.calls(node, "program_id"))
        return here or touches(node, self.by_row)

    def body(self) -> list[ast.stmt]:
        head = tree.statements(
            f"{self.rows} = tl.program_id(0) * {self.rows_name} + tl.arange(0, {self.rows_name})[:, None]\n"
            f"{self.mask} = {self.rows} < {self.count}\n"
        )
        carried = {n for loop in tree.loops(self.view.body) for n in tree.writes(loop.body)} & self.by_row
        return head + [self._statement(s, carried) for s in self.view.body]

    def _statement(self, stmt: ast.stmt, carried: set[str]) -> ast.stmt:
        if isinstance(stmt, (ast.For, ast.If)):
            head = stmt.iter if isinstance(stmt, ast.For) else stmt.test
            if self.row(head) or (not isinstance(stmt, ast.For) and self.view.shapes.of(head) != ()):
                raise CannotApply("a loop or branch depends on the row")
            fresh = copy.copy(stmt)
            fresh.body = [self._statement(s, carried) for s in stmt.body]
            fresh.orelse = [self._statement(s, carried) for s in stmt.orelse]
            return fresh
        if isinstance(stmt, (ast.While, ast.Return)):
            raise CannotApply("it has a while loop or a return")
        pair = tree.assignment(stmt)
        if pair is None and not (isinstance(stmt, ast.Expr) and tree.is_tl(stmt.value, "store", "assume")):
            raise CannotApply(f"it has a {type(stmt).__name__} statement")
        if pair is not None and pair[0] in self.view.function.params and pair[0] in carried:
            raise CannotApply("a loop changes a parameter")
        fresh = self._expr(copy.deepcopy(stmt))
        if pair is not None and pair[0] in carried and not self.row(pair[1]) and self._is_initial(stmt):
            assert isinstance(fresh, ast.Assign)
            fresh.value = self._spread(pair[1], fresh.value)
        return fresh

    def _is_initial(self, stmt: ast.stmt) -> bool:
        if not isinstance(stmt, ast.Assign):
            raise CannotApply("an accumulator does not start with a plain assignment")
        return True

    def _spread(self, old: ast.expr, new: ast.expr) -> ast.expr:
        """An accumulator's initial value with one entry per row."""
        shape = self.view.shapes.of(old)
        if tree.is_tl(old, "zeros", "full"):
            return self._wide(new)
        infinite = tree.is_infinity(old, 1) or tree.is_infinity(old, -1)
        if shape == () and (infinite or (isinstance(old, ast.Constant) and isinstance(old.value, float))):
            return tree.expression(f"tl.full([{self.rows_name}, 1], {tree.text_of(old)}, tl.float32)")
        raise CannotApply("an accumulator starts with neither a float number nor tl.zeros or tl.full")

    def _wide(self, node: ast.expr) -> ast.expr:
        assert isinstance(node, ast.Call) and isinstance(node.args[0], (ast.List, ast.Tuple))
        node.args[0].elts[0] = ast.Name(self.rows_name, ast.Load())
        return node

    def _expr(self, stmt: ast.stmt) -> ast.stmt:
        outer = self

        class Widen(ast.NodeTransformer):
            def visit_Call(self, node: ast.Call) -> ast.AST:
                by_row = {id(a): outer.row(a) for a in [*node.args, *(k.value for k in node.keywords)]}
                pointer_by_row = bool(node.args) and by_row[id(node.args[0])]
                self.generic_visit(node)
                if tree.is_tl(node, "program_id") and _axis(node) == 0:
                    return ast.Name(outer.rows, ast.Load())
                if tree.is_tl(node, "arange"):
                    index = tree.expression("x[None, :]")
                    assert isinstance(index, ast.Subscript)
                    return ast.Subscript(node, index.slice, ast.Load())
                if tree.is_tl(node, "zeros", "full"):
                    return _ranked(node)
                if tree.is_tl(node, "sum", "max", "min"):
                    return _along_columns(node)
                if tree.is_tl(node, "load") and pointer_by_row:
                    return outer._masked(node, 1, True)
                if tree.is_tl(node, "store"):
                    if not pointer_by_row:
                        raise CannotApply("a store does not depend on the row")
                    return outer._masked(node, 2, False)
                return node

        return Widen().visit(stmt)

    def _masked(self, node: ast.Call, position: int, load: bool) -> ast.Call:
        mask = tree.argument(node, position, "mask")
        node.args = node.args[:position] if not load else node.args
        if mask is None:
            node.keywords.insert(0, ast.keyword("mask", ast.Name(self.mask, ast.Load())))
            if load and tree.argument(node, 2, "other") is None:
                node.keywords.insert(1, ast.keyword("other", ast.Constant(0)))
            return node
        both = ast.BinOp(mask, ast.BitAnd(), ast.Name(self.mask, ast.Load()))
        other = tree.argument(node, 2, "other") if load else None
        rest = [k for k in node.keywords if k.arg not in ("mask", "other")]
        node.args = node.args[:position]
        kept = [ast.keyword("other", other)] if other is not None else []
        node.keywords = [ast.keyword("mask", both), *kept, *rest]
        return node


def _axis(node: ast.Call) -> object:
    axis = tree.argument(node, 0, "axis")
    return axis.value if isinstance(axis, ast.Constant) else None


def _ranked(node: ast.Call) -> ast.Call:
    if not node.args or not isinstance(node.args[0], (ast.List, ast.Tuple)) or len(node.args[0].elts) != 1:
        raise CannotApply("a block's shape is not written as [SIZE]")
    node.args[0].elts.insert(0, ast.Constant(1))
    return node


def _along_columns(node: ast.Call) -> ast.Call:
    extra = {k.arg for k in node.keywords} - {"axis"}
    axis = tree.argument(node, 1, "axis")
    if extra or len(node.args) > 2 or (axis is not None and tree.text_of(axis) not in ("0", "-1", "None")):
        raise CannotApply("a reduction has more arguments than an axis")
    keywords = [ast.keyword("axis", ast.Constant(1)), ast.keyword("keep_dims", ast.Constant(True))]
    return ast.Call(node.func, node.args[:1], keywords)
