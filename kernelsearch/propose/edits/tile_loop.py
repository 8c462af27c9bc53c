"""Loop over column tiles: one block as wide as the row becomes a loop over tiles of it.

The straight-line dataflow is sliced into one pass per level of dependent reductions and a last pass for
the stores. It assumes what Triton kernels assume: pointer arguments that overlap do so at equal addresses.
"""

from __future__ import annotations

import ast
import copy

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import stripped, terms
from kernelsearch.propose.analysis.idle import FALSE, IDENTITY, Idle, identity_text
from kernelsearch.propose.analysis.shapes import Shapes, axis_of
from kernelsearch.propose.analysis.straight import Step, straightened
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced

TILES = (512, 1024, 2048, 4096, 8192, 16384)
ALLOWED = frozenset(
    "load store where sum max min exp exp2 log log2 sqrt rsqrt sqrt_rn sin cos abs erf sigmoid floor ceil maximum "
    "minimum fma fdiv div_rn arange program_id num_programs cdiv multiple_of max_contiguous cast clamp full "
    "zeros".split()
)


class TileLoop(FunctionEdit):
    name = "tile_loop"
    summary = "loop over column tiles instead of one block as wide as the row"

    def change(self, view: View) -> list[Change]:
        if view.calls_helpers():
            raise CannotApply("it calls helper functions")
        steps = straightened(view)
        for step in steps:
            for node in ast.walk(step.value):
                if tree.called(node).startswith("tl.") and not tree.is_tl(node, *ALLOWED):
                    raise CannotApply(f"{tree.called(node)} cannot be cut into tiles")
        changes, reasons = [], []
        for wide in _wide_dims(view, steps):
            try:
                changes.append(_Cut(view, steps, wide).change())
            except CannotApply as reason:
                reasons.append(str(reason))
        if not changes:
            raise CannotApply("; ".join(reasons) or "no block over a constexpr width")
        return changes


def _wide_dims(view: View, steps: list[Step]) -> list[str]:
    dims = [tree.text_of(c.args[1]) for s in steps for c in tree.calls(s.value, "arange") if len(c.args) == 2]
    return [d for d in dict.fromkeys(dims) if d in view.function.constexprs]


class _Cut:
    """One cut of the steps along the dimension `wide`."""

    def __init__(self, view: View, steps: list[Step], wide: str) -> None:
        self.view, self.steps, self.wide = view, steps, wide
        function = tree.function_of(view.text)
        function.body = [_statement(s) for s in steps]
        ast.fix_missing_locations(function)
        self.shapes = Shapes(function, view.function.constexprs)
        self.values = {s.name: s for s in steps if s.name}
        self.tile, self.start = view.fresh("TILE"), view.fresh("start")
        for step in steps:
            if step.name and self.shapes.names.get(step.name) is None:
                raise CannotApply(f"the shape of {step.name} is not known")

    def tiled(self, name: str) -> bool:
        return self.wide in (self.shapes.names.get(name) or ())

    # ------------------------------------------------------------ what the cut needs to know

    def size(self) -> str:
        """The scalar that bounds the columns: every access is masked by `offsets < size`."""
        sizes = {}
        for step in self.steps:
            for node in ast.walk(step.value):
                if isinstance(node, ast.Compare) and (size := self._bound(node)) is not None:
                    sizes[size] = True
        if len(sizes) != 1:
            raise CannotApply("no one size argument masks the columns")
        return next(iter(sizes))

    def _bound(self, node: ast.Compare) -> str | None:
        """The size in `offsets < size`, where offsets are the plain columns 0, 1, ..., of the wide block."""
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Lt):
            return None
        left = stripped(self._expand(node.left))
        right = node.comparators[0]
        parts = terms(left)
        if len(parts) != 1 or not tree.is_tl(parts[0][1], "arange") or not isinstance(right, ast.Name):
            return None
        call = parts[0][1]
        assert isinstance(call, ast.Call)
        covers = tree.is_number(call.args[0], 0) and tree.text_of(call.args[1]) == self.wide
        return right.id if covers and right.id in self.view.function.params else None

    def _expand(self, node: ast.expr) -> ast.expr:
        names = {n: self.values[n].value for n in tree.reads(node) if n in self.values and self.tiled(n)}
        return self._expand(tree.substituted(node, names)) if names else node  # type: ignore[arg-type]

    def levels(self) -> dict[str, int]:
        """How many dependent reductions across the tiles stand before each name."""
        level: dict[str, int] = {}
        for step in self.steps:
            if step.name:
                own = max((level.get(n, 0) for n in step.reads), default=0)
                level[step.name] = own + (1 if self.crosses(step) else 0)
        return level

    def crosses(self, step: Step) -> bool:
        """Whether a step reduces across the tiles."""
        if step.name is None or not tree.is_tl(step.value, "sum", "max", "min"):
            return False
        operand = step.value.args[0]  # type: ignore[attr-defined]
        return self.wide in self._shape(operand) and not self.tiled(step.name)

    def _shape(self, node: ast.expr) -> tuple[str, ...]:
        names = {n: self.shapes.names.get(n) for n in tree.reads(node)}
        if isinstance(node, ast.Name):
            return names.get(node.id) or ()
        probe = tree.function_of(self.view.text)
        probe.body = [*[_statement(s) for s in self.steps if s.name], ast.Assign([ast.Name("_", ast.Store())], node)]
        return Shapes(ast.fix_missing_locations(probe), self.view.function.constexprs).names.get("_") or ()

    def check(self, size: str) -> None:
        idle = Idle(lambda c: self._bound(c) == size, self.tiled)
        stored: set[str] = set()
        loaded: dict[str, set[str]] = {}
        for step in self.steps:
            if self.crosses(step):
                self._check_reduction(step, idle)
            for call in tree.calls(step.value, "load", "store"):
                pointer = tree.argument(call, 0, "pointer")
                assert pointer is not None
                is_store = tree.is_tl(call, "store")
                mask = tree.argument(call, 2 if is_store else 1, "mask")
                address = self._expand_all(pointer)
                if self.wide in self._shape(pointer):
                    if mask is None or idle.of(mask) != FALSE:
                        raise CannotApply(f"an access is not masked by columns < {size}")
                elif is_store and self.wide in self._shape(tree.argument(call, 1, "value")):  # type: ignore[arg-type]
                    raise CannotApply("a block is stored at a scalar address")
                for base in tree.reads(address) & {p for p in self.view.function.params if p not in self.sizes()}:
                    loaded.setdefault(base, set()).add(tree.text_of(address))
                    if is_store:
                        stored.add(base)
            if step.name and self.tiled(step.name):
                idle.assign(step.name, step.value)
        for base in stored:
            if len(loaded[base]) > 1:
                raise CannotApply(f"{base} is read and written at different addresses")

    def sizes(self) -> set[str]:
        """Scalar parameters, as far as arithmetic shows them: those that are compared or multiplied."""
        scalars: set[str] = set(self.view.function.constexprs)
        for step in self.steps:
            for node in ast.walk(step.value):
                if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)):
                    scalars |= {n.id for n in (node.left, node.right) if isinstance(n, ast.Name)}
                elif isinstance(node, ast.Compare):
                    scalars |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        return scalars

    def _expand_all(self, node: ast.expr) -> ast.expr:
        names = {n: s.value for n in tree.reads(node) if (s := self.values.get(n)) and not tree.calls(s.value, "load")}
        return self._expand_all(tree.substituted(node, names)) if names else node  # type: ignore[arg-type]

    def _check_reduction(self, step: Step, idle: Idle) -> None:
        call = step.value
        assert isinstance(call, ast.Call)
        kind = tree.called(call).rpartition(".")[2]
        shape = self._shape(call.args[0])
        axis = tree.argument(call, 1, "axis")
        given = {k.arg for k in call.keywords}
        if given - {"axis", "keep_dims"} or len(call.args) > 2:
            raise CannotApply("a reduction has more arguments than an axis")
        if axis is None or (isinstance(axis, ast.Constant) and axis.value is None):
            if len(shape) != 1:
                raise CannotApply("a reduction over all axes of a block of several")
        elif axis_of(axis, len(shape)) != shape.index(self.wide):
            raise CannotApply("a reduction along another axis")
        found = idle.of(call.args[0])
        if found != IDENTITY[kind]:
            raise CannotApply(f"masked-out lanes of {tree.text_of(call.args[0])} are not proven neutral for tl.{kind}")

    # ------------------------------------------------------------ the new body

    def change(self) -> Change:
        size = self.size()
        self.check(size)
        level = self.levels()
        last = max(level.values(), default=0)
        body: list[ast.stmt] = []
        for at in range(last + 1):
            body += [_statement(s) for s in self.steps if s.name and self._scalar(s) and level[s.name] == at]
            crossing = [s for s in self.steps if self.crosses(s) and level[s.name] == at + 1]  # type: ignore[index]
            if crossing:
                body += [self._initial(s) for s in crossing]
                body.append(self._loop(size, crossing, [self._update(s) for s in crossing]))
        stores = [s for s in self.steps if s.name is None]
        wide = [s for s in stores if any(self.tiled(n) for n in s.reads)]
        if wide:
            body.append(self._loop(size, wide, [_statement(s) for s in wide]))
        body += [_statement(s) for s in stores if s not in wide]
        keeps = self.wide in {n for s in body for n in tree.reads(s)}
        text = tree.rebuilt(self.view.node, body, [f"{self.tile}: tl.constexpr"], () if keeps else (self.wide,))
        tiles = (*TILES, f"next_power_of_2({size})")
        kernel = replaced(self.view, text, space={self.tile: tiles}, config={self.tile: 4096})
        why = f"The row is walked in tiles of {self.tile} columns, so registers no longer bound its width."
        return Change(kernel, why)

    def _scalar(self, step: Step) -> bool:
        return step.name is not None and not self.tiled(step.name) and not self.crosses(step)

    def _initial(self, step: Step) -> ast.stmt:
        kind = tree.called(step.value).rpartition(".")[2]
        shape = self.shapes.names[step.name]  # type: ignore[index]
        value = identity_text(kind)
        if shape:
            value = f"tl.full([{', '.join(shape)}], {value}, tl.float32)"
        return tree.statements(f"{step.name} = {value}")[0]

    def _update(self, step: Step) -> ast.stmt:
        kind = tree.called(step.value).rpartition(".")[2]
        text = tree.text_of(step.value)
        if kind == "sum":
            return tree.statements(f"{step.name} += {text}")[0]
        function = "tl.maximum" if kind == "max" else "tl.minimum"
        return tree.statements(f"{step.name} = {function}({step.name}, {text})")[0]

    def _loop(self, size: str, wanted: list[Step], tail: list[ast.stmt]) -> ast.stmt:
        needed: set[str] = set().union(*(s.reads for s in wanted))
        kept: list[Step] = []
        for step in reversed(self.steps):
            if step.name in needed and self.tiled(step.name):  # type: ignore[arg-type]
                kept.append(step)
                needed |= step.reads
        inner = [_statement(s) for s in reversed(kept)] + tail
        inner = [self._shifted(s) for s in inner]
        loop = tree.statements(f"for {self.start} in range(0, {size}, {self.tile}):\n    pass")[0]
        assert isinstance(loop, ast.For)
        loop.body = inner
        return loop

    def _shifted(self, stmt: ast.stmt) -> ast.stmt:
        outer = self

        class Shift(ast.NodeTransformer):
            def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
                self.generic_visit(node)
                return node

            def visit_Call(self, node: ast.Call) -> ast.AST:
                self.generic_visit(node)
                if tree.is_tl(node, "arange") and tree.text_of(node.args[1]) == outer.wide:
                    return tree.expression(f"({outer.start} + tl.arange(0, {outer.tile}))")
                if tree.is_tl(node, "zeros", "full") and node.args and isinstance(node.args[0], (ast.List, ast.Tuple)):
                    node.args[0].elts = [
                        ast.Name(outer.tile, ast.Load()) if tree.text_of(e) == outer.wide else e
                        for e in node.args[0].elts
                    ]
                return node

        return Shift().visit(stmt)


def _statement(step: Step) -> ast.stmt:
    value = copy.deepcopy(step.value)
    if step.name is None:
        return ast.Expr(value)
    return ast.Assign([ast.Name(step.name, ast.Store())], value, lineno=1)
