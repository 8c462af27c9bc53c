"""Loop over column tiles: one block as wide as the row becomes a loop over tiles of it.

The straight-line dataflow is sliced into one pass per level of dependent reductions and a last pass for
the stores. Like all Triton kernels it assumes that pointer arguments that overlap do so at equal addresses.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import COMBINE, format_identity, reduction_of
from kernelsearch.propose.analysis.flow import strip_axes, terms
from kernelsearch.propose.analysis.idle import FALSE, IDENTITY, Idle
from kernelsearch.propose.analysis.shapes import Shapes, axis_of
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View
from kernelsearch.propose.edits.base import Edit

BY_ELEMENT = frozenset(
    "load store where sum max min exp exp2 log log2 sqrt rsqrt sqrt_rn sin cos abs erf sigmoid floor ceil maximum "
    "minimum fma fdiv div_rn arange program_id num_programs cdiv range static_range cast clamp zeros full assume "
    "multiple_of max_contiguous".split()
)
"""Functions of `tl` that treat the elements of a block alike, or reduce them: they work on blocks of any shape."""


@dataclass(frozen=True)
class StraightStep:
    """One statement: `name = value`, or a store if name is None."""

    name: str | None
    value: ast.expr

    @property
    def reads(self) -> set[str]:
        return tree.reads(self.value)


class TileLoop(Edit):
    summary = "loop over column tiles instead of one block as wide as the row"
    refusal = "no block over a constexpr width"

    def change(self, view: View) -> Changes:
        if view.function.calls:
            raise NotApplicable("it calls helper functions")
        steps = straighten(view)
        for step in steps:
            for node in ast.walk(step.value):
                if tree.callee(node).startswith("tl.") and not tree.is_tl(node, *BY_ELEMENT):
                    raise NotApplicable(f"{tree.callee(node)} cannot be cut into tiles")
        changes, reasons = [], []
        for wide in dict.fromkeys(tree.text_of(c.args[1]) for s in steps for c in tree.calls(s.value, "arange")):
            if wide not in view.function.constexprs:
                continue
            try:
                changes.append(_Cut(view, steps, wide).change())
            except NotApplicable as reason:
                reasons.append(str(reason))
        if reasons and not changes:
            raise NotApplicable("; ".join(reasons))
        return changes


class _Cut:
    """One cut of the steps along the dimension `wide`."""

    def __init__(self, view: View, steps: list[StraightStep], wide: str) -> None:
        self.view, self.steps, self.wide = view, steps, wide
        function = tree.function_of(view.text)
        function.body = [_statement(s, s.value) for s in steps]  # of the steps' own nodes: shapes are known by node
        self.shapes = Shapes(function, view.function.constexprs)
        self.values = {s.name: s for s in steps if s.name}
        self.tile, self.start = view.fresh_name("TILE"), view.fresh_name("start")
        for step in steps:
            if step.name and self.shapes.names.get(step.name) is None:
                raise NotApplicable(f"the shape of {step.name} is not known")
        nodes = [n for step in steps for n in ast.walk(step.value) if isinstance(n, ast.Compare)]
        sizes = {size for n in nodes if (size := self._bound(n)) is not None}
        if len(sizes) != 1:
            raise NotApplicable("there is not exactly one size argument that masks the columns")
        self.size = sizes.pop()  # every access is masked by `offsets < size`

    def is_tiled(self, name: str) -> bool:
        return self.wide in (self.shapes.names.get(name) or ())

    # ------------------------------------------------------------ conditions

    def _bound(self, node: ast.Compare) -> str | None:
        """The size in `offsets < size`, where offsets are the plain columns 0, 1, ..., of the wide block."""
        match terms(strip_axes(self._expand(node.left, lambda s: self.is_tiled(s.name)))), node.ops, node.comparators:
            case [[(_, ast.Call(args=[low, high]) as lanes)], [ast.Lt()], [ast.Name(id=size)]]:
                covers = tree.is_tl(lanes, "arange") and tree.is_number(low, 0) and tree.text_of(high) == self.wide
                return size if covers and size in self.view.function.params else None
        return None

    def _expand(self, node: ast.expr, replaces: Callable[[StraightStep], bool]) -> ast.expr:
        """The expression with names replaced by the values of steps, of those for which replaces is true."""
        names = {n: s.value for n in tree.reads(node) if (s := self.values.get(n)) and replaces(s)}
        return self._expand(tree.substitute(node, names), replaces) if names else node  # type: ignore[arg-type]

    def levels(self) -> dict[str, int]:
        """For each name, the length of the longest chain of reductions across the tiles that it depends on."""
        level: dict[str, int] = {}
        for step in self.steps:
            if step.name:
                own = max((level.get(n, 0) for n in step.reads), default=0)
                level[step.name] = own + (1 if self.crosses(step) else 0)
        return level

    def crosses(self, step: StraightStep) -> bool:
        """Whether a step reduces across the tiles."""
        if step.name is None or not tree.is_tl(step.value, "sum", "max", "min"):
            return False
        return self._is_wide(step.value.args[0]) and not self.is_tiled(step.name)  # type: ignore[attr-defined]

    def _is_wide(self, node: ast.AST | None) -> bool:
        return self.wide in ((node is not None and self.shapes.of(node)) or ())

    def check(self) -> None:
        """Raises NotApplicable if an access is not masked by the size, or if a result could change."""
        idle = Idle(lambda c: self._bound(c) == self.size, self.is_tiled)
        pointers = set(self.view.function.params) - self._scalars()
        stored: set[str] = set()
        addresses: dict[str, set[str]] = {}
        for step in self.steps:
            if self.crosses(step):
                self._check_reduction(step, idle)
            for call in tree.calls(step.value, "load", "store"):
                pointer: ast.expr = tree.argument(call, 0, "pointer")  # type: ignore[assignment]
                is_store = tree.is_tl(call, "store")
                if self._is_wide(pointer):
                    mask = tree.mask_of(call)
                    if mask is None or idle.of(mask) != FALSE:
                        raise NotApplicable(f"an access is not masked by columns < {self.size}")
                elif is_store and self._is_wide(tree.argument(call, 1, "value")):
                    raise NotApplicable("a block is stored at a scalar address")
                address = self._expand(pointer, lambda s: not tree.calls(s.value, "load"))
                for base in tree.reads(address) & pointers:
                    addresses.setdefault(base, set()).add(tree.text_of(address))
                    if is_store:
                        stored.add(base)
            if step.name and self.is_tiled(step.name):
                idle.assign(step.name, step.value)
        for base in stored:
            if len(addresses[base]) > 1:
                raise NotApplicable(f"{base} is read and written at different addresses")

    def _scalars(self) -> set[str]:
        """Constexprs and other names that are compared or multiplied, so they are no pointers."""
        scalars: set[str] = set(self.view.function.constexprs)
        for step in self.steps:
            for node in ast.walk(step.value):
                if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)):
                    scalars |= {n.id for n in (node.left, node.right) if isinstance(n, ast.Name)}
                elif isinstance(node, ast.Compare):
                    scalars |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        return scalars

    def _check_reduction(self, step: StraightStep, idle: Idle) -> None:
        kind = _kind(step)
        call = reduction_of(step.value, kind)
        if call is None:
            raise NotApplicable("a reduction has more arguments than an axis")
        shape = self.shapes.of(call.args[0]) or ()
        axis = tree.argument(call, 1, "axis")
        if axis is None or (isinstance(axis, ast.Constant) and axis.value is None):
            if len(shape) != 1:
                raise NotApplicable("a reduction over all axes of a block of several")
        elif axis_of(axis, len(shape)) != shape.index(self.wide):
            raise NotApplicable("a reduction along another axis")
        if idle.of(call.args[0]) != IDENTITY[kind]:
            lanes = tree.text_of(call.args[0])
            raise NotApplicable(f"masked-out lanes of {lanes} are not proven neutral for tl.{kind}")

    # ------------------------------------------------------------ the new body

    def change(self) -> Change:
        self.check()
        level = self.levels()
        body: list[ast.stmt] = []
        for at in range(max(level.values(), default=0) + 1):
            body += [_statement(s) for s in self.steps if self._is_scalar(s) and level[s.name] == at]  # type: ignore[index]
            crossing = [s for s in self.steps if self.crosses(s) and level[s.name] == at + 1]  # type: ignore[index]
            if crossing:
                body += [self._initial(s) for s in crossing]
                body.append(self._loop(crossing, [self._update(s) for s in crossing]))
        stores = [s for s in self.steps if s.name is None]
        wide = [s for s in stores if any(self.is_tiled(n) for n in s.reads)]
        if wide:
            body.append(self._loop(wide, [_statement(s) for s in wide]))
        body += [_statement(s) for s in stores if s not in wide]
        unused = None if self.wide in tree.reads(body) else self.wide
        tiles = (512, 1024, 2048, 4096, 8192, 16384, f"next_power_of_2({self.size})")
        why = f"The row is walked in tiles of {self.tile} columns, so registers no longer bound its width."
        return self.view.rewrite(tree.rebuild(self.view.node, body, unused), why, tunables={self.tile: (tiles, 4096)})

    def _is_scalar(self, step: StraightStep) -> bool:
        return step.name is not None and not self.is_tiled(step.name) and not self.crosses(step)

    def _initial(self, step: StraightStep) -> ast.stmt:
        shape = self.shapes.names[step.name]  # type: ignore[index]
        return tree.statements(f"{step.name} = {format_identity(shape, _kind(step))}")[0]  # type: ignore[arg-type]

    def _update(self, step: StraightStep) -> ast.stmt:
        kind, text = _kind(step), tree.text_of(step.value)
        combined = COMBINE[kind].format(a=step.name, b=text)
        return tree.statements(f"{step.name} += {text}" if kind == "sum" else f"{step.name} = {combined}")[0]

    def _loop(self, wanted: list[StraightStep], tail: list[ast.stmt]) -> ast.stmt:
        """The loop over tiles that computes what the wanted steps need, and then runs tail."""
        needed: set[str] = set().union(*(s.reads for s in wanted))
        body: list[ast.stmt] = []
        for step in reversed(self.steps):
            if step.name in needed and self.is_tiled(step.name):  # type: ignore[arg-type]
                body.insert(0, _statement(step))
                needed |= step.reads
        body = [tree.transform(s, self._by_tile) for s in [*body, *tail]]  # type: ignore[misc]
        return tree.make_loop(f"for {self.start} in range(0, {self.size}, {self.tile})", body)

    def _by_tile(self, node: ast.AST) -> ast.AST | None:
        """The columns or the block of one tile, for those of the whole row; None for any other node."""
        match node:
            case ast.Call(args=[_, width]) if tree.is_tl(node, "arange") and tree.text_of(width) == self.wide:
                return tree.expression(f"({self.start} + tl.arange(0, {self.tile}))")
            case ast.Call(args=[ast.List() | ast.Tuple() as shape, *_]) if tree.is_tl(node, "zeros", "full"):
                tile = ast.Name(self.tile, ast.Load())
                shape.elts = [tile if tree.text_of(e) == self.wide else e for e in shape.elts]
        return None


def _kind(step: StraightStep) -> str:
    """The name of a step's function: `sum`, `max` or `min` of a reduction."""
    return tree.callee(step.value).rpartition(".")[2]


def _statement(step: StraightStep, value: ast.expr | None = None) -> ast.stmt:
    """The step as a statement, with a copy of its value unless one is given."""
    value = value or copy.deepcopy(step.value)
    return ast.Assign([ast.Name(step.name, ast.Store())], value, lineno=1) if step.name else ast.Expr(value)


def straighten(view: View) -> list[StraightStep]:
    """The body as single assignments, where each reduction has its own.

    Raises NotApplicable if it has branches, loops, returns or effects other than stores.
    """
    steps: list[StraightStep] = []
    current: dict[str, str] = {}
    used = set(view.taken)
    for stmt in view.body:
        if pair := tree.assignment(stmt):
            name = target = pair[0]
            value = _extract_reductions(tree.rename(pair[1], current), name, steps, used)
            if name in current or name in view.function.params:
                target = _unused(f"{name}_new" if name in view.function.params else name, used)
            current[name] = target
            steps.append(StraightStep(target, value))
        elif isinstance(stmt, ast.Expr) and tree.is_tl(stmt.value, "store"):
            value = _extract_reductions(tree.rename(stmt.value, current), "total", steps, used)
            steps.append(StraightStep(None, value))
        elif not isinstance(stmt, ast.Pass):
            raise NotApplicable(f"the body is not straight-line: it has a {type(stmt).__name__} statement")
    return steps


def _unused(base: str, used: set[str]) -> str:
    name, i = base, 1
    while name in used:
        i += 1
        name = f"{base.removesuffix('_new')}_{i}"
    used.add(name)
    return name


def _extract_reductions(value: ast.AST, near: str, steps: list[StraightStep], used: set[str]) -> ast.expr:
    """The value, with every reduction inside it moved to a step of its own, innermost first. Changes value."""

    def rule(node: ast.AST) -> ast.AST | None:
        if node is value or not tree.is_tl(node, "sum", "max", "min"):
            return None
        kind = tree.callee(node).rpartition(".")[2]
        name = _unused(f"{near}_{kind}", used)
        steps.append(StraightStep(name, node))  # type: ignore[arg-type]
        return ast.Name(name, ast.Load())

    return tree.transform(value, rule)  # type: ignore[return-value]
