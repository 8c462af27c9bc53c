"""The epilogue of a product as a function of its own in Gluon: what follows the loop, element by element."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

from kernelsearch.kernel import gluon
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import strip_hints
from kernelsearch.propose.analysis.shapes import OF_PARTS
from kernelsearch.propose.analysis.tiles import expand_blocks
from kernelsearch.propose.analysis.view import NotApplicable, View

HELPERS = {
    "sigmoid": "    return 1.0 / (1.0 + gl.exp(-x))\n",
    "tanh": "    y = x * x\n"
    "    near = x + x * y * (-0.3333333333333333 + y * (0.13333333333333333 + y * -0.05396825396825397))\n"
    "    return gl.where(gl.abs(x) < 0.125, near, 1.0 - 2.0 / (1.0 + gl.exp(2.0 * x)))\n",
}
"""Functions that Gluon lacks; tanh by its series where the other form would cancel."""


@dataclass
class Epilogue:
    """What becomes of the tile that a loop accumulates: the store behind the loop, and what its value is made of.

    rows and columns are the ranges of the tile along its axes, as text.
    """

    view: View
    loop: ast.For
    accumulator: str
    store: ast.stmt
    value: ast.expr
    rows: str
    columns: str

    def write(self, name: str) -> tuple[str, list[str]]:
        """(The function of the tile, its rows and columns and some of the kernel's parameters; those parameters)."""
        view, body = self.view, self.view.body
        places = {self.rows: view.fresh_name("rows"), self.columns: view.fresh_name("cols")}
        lines: list[ast.stmt] = [ast.Return(self._localise(self.value, self.store, places))]  # type: ignore[arg-type]
        needed = tree.reads(lines)
        for stmt in body[body.index(self.store) - 1 :: -1]:
            if stmt is self.loop:
                if needed & tree.writes(stmt) != {self.accumulator}:
                    raise NotApplicable("what follows the loop reads more of it than one tile")
                needed -= {self.accumulator}
            elif tree.writes(stmt) & needed:
                self._check(stmt)
                lines.insert(0, self._localise(stmt, stmt, places))  # type: ignore[arg-type]
                needed = _read_before(lines[:1], needed)
        needed -= {*places.values()}
        if not needed <= {*view.function.params, *self._constants()}:
            raise NotApplicable("what follows the loop reads more than arguments")
        passed = sorted(needed & {*view.function.params})
        text = "\n".join(tree.text_of(_translate(line)) for line in lines)
        constexprs = view.function.constexprs
        params = [self.accumulator, *places.values()]
        params += [f"{p}: gl.constexpr" if p in constexprs else p for p in passed]
        helpers = "".join(f"@gluon.jit\ndef {n}(x):\n{t}\n\n" for n, t in HELPERS.items() if f"{n}(" in text)
        indented = text.replace("\n", "\n    ")
        return f"{helpers}@gluon.jit\ndef {name}({', '.join(params)}):\n    {indented}\n", passed

    def _constants(self) -> set[str]:
        return {text.partition("=")[0].partition(":")[0].strip() for text in self.view.kernel.constants}

    def _check(self, stmt: ast.stmt) -> None:
        """Raises NotApplicable for more than assignments, and branches on constexprs and types with such."""
        if isinstance(stmt, ast.If) and tree.reads(tree.without_types(stmt.test)) <= {*self.view.function.constexprs}:
            for inner in (*stmt.body, *stmt.orelse):
                self._check(inner)
        elif tree.assignment(stmt) is None:
            raise NotApplicable("the epilogue has more than assignments")

    def _localise(self, node: ast.AST, stmt: ast.stmt, places: dict[str, str]) -> ast.AST:
        """The node with the tile's ranges by their names in the function, and what only lies along them written out."""
        known = {}
        for name in tree.reads(node) - {self.accumulator}:
            if self.view.shapes.names.get(name):
                try:
                    whole = expand_blocks(self.view, ast.Name(name, ast.Load()), stmt)
                except NotApplicable:
                    continue
                if tree.calls(whole, "arange") and not tree.calls(whole, "load", "dot"):
                    known[name] = whole

        def rule(n: ast.AST) -> ast.AST | None:
            place = places.get(tree.text_of(n)) if isinstance(n, ast.expr) else None
            return ast.Name(place, ast.Load()) if place else None

        new = tree.transform(tree.substitute(node, known), rule)
        for load in tree.calls(new, "load"):
            if tree.reads(load) & {*places.values()} and tree.mask_of(load) is None:
                raise NotApplicable("the epilogue loads without a mask")
        return new


def _read_before(body: list[ast.stmt], needed: set[str]) -> set[str]:
    """The names whose values before the statements decide those that are needed behind them."""
    for stmt in reversed(body):
        if isinstance(stmt, ast.If):
            needed = _read_before(stmt.body, needed) | _read_before(stmt.orelse, needed) | tree.reads(stmt.test)
        else:
            kept = needed if isinstance(stmt, ast.AugAssign) else needed - tree.writes(stmt)
            needed = kept | tree.reads(stmt)
    return needed


def _translate(node: ast.AST) -> ast.AST:
    """The statement in Gluon. Raises NotApplicable for what is not the same for a part of the tile as for the whole."""

    def rule(n: ast.AST) -> ast.AST | None:
        match n:
            case ast.Attribute(attr="T" | "shape"):
                raise NotApplicable(f"the epilogue uses .{n.attr} of a tile")
            case ast.Call():
                return _translate_call(n)
            case ast.Attribute(ast.Name("tl" | "gl"), "math"):
                return ast.Name("gl", ast.Load())
            case ast.Attribute(ast.Name("tl" | "libdevice"), attr):
                return ast.Attribute(ast.Name("gl", ast.Load()), attr, ast.Load())
        return None

    return tree.transform(copy.deepcopy(node), rule)


def _translate_call(call: ast.Call) -> ast.expr | None:
    """The call, whose parts are in Gluon already, in Gluon; None if it stays."""
    head, _, name = tree.callee(call).rpartition(".")
    if head == "gl" and name in HELPERS:
        return ast.Call(ast.Name(name, ast.Load()), call.args, call.keywords)
    if name in ("multiple_of", "max_contiguous", "max_constancy"):
        return strip_hints(call.args[0])  # what holds for a tile need not hold for a part of it
    fine = name in OF_PARTS - {"store", "atomic_add", "arange", "program_id", "num_programs"}
    if not (
        (head == "gl" and fine and f"gl.{name}" in gluon.FUNCTIONS)
        or (not head and name in ("min", "max", "float"))
        or (isinstance(call.func, ast.Attribute) and call.func.attr == "to")
    ):
        raise NotApplicable(f"the epilogue calls {tree.text_of(call.func)}, which Gluon has not for part of a tile")
    return None
