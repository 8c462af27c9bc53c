"""Matrix products in Gluon (Hopper): a warp feeds a ring of tiles, one or two groups of warps multiply and finish them.

Triton shares out the warps of a product by rules of its own, and spills where its epilogue is heavy. Here all is
written out: a barrier of each stage says that its tiles are there, another that they are read; a group of warps has one
product in flight while it waits for the next tiles; the epilogue comes in parts, and the copy engine stores one while
the next is computed. The epilogue is the kernel's own, whatever it does to each element. Shapes that the copy engine
cannot take have a plain loop.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from kernelsearch.core.types import Value
from kernelsearch.kernel import gluon
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import strip_hints
from kernelsearch.propose.analysis.shapes import OF_PARTS
from kernelsearch.propose.analysis.tiles import Tile, expand_blocks, find_operand, find_unit_axis, tile_of
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.gluon_template import GluonTemplate, find_only_loop
from kernelsearch.propose.edits.short_functions import ShortFunctions

Values = tuple[tuple[Value, ...], Value]

TILES: tuple[Values, ...] = ((64, 128, 256), 128), ((64, 128, 256), 256), ((64, 128), 64)
"""The values of a tile's rows, columns and depth, each with the one to start from."""
OTHERS: dict[str, Values] = {
    "STAGES": ((2, 3, 4, 5, 6), 4),
    "GROUP": ((4, 8, 16), 16),
    "CONSUMERS": ((1, 2), 2),
    "PARTS": ((1, 2, 4), 2),
    "LOADER": ((24, 40), 40),
}
SHARED_BYTES = 231_000
"""What tiles may take of an SM's shared memory; barriers have the rest."""


class GluonProduct(GluonTemplate):
    summary = (
        "a product in Gluon, with a warp that loads and one or two groups of warps that multiply and finish (Hopper)"
    )
    refusal = "no loop accumulates a tile by dots of two loaded tiles"

    def change(self, view: View) -> Changes:
        self.require_place(view)
        plain = self._make(view)
        short = ShortFunctions().apply(view.kernel, view.task)
        if isinstance(short, list):  # first: only these warps finish a tile, so that an erf is the kernel's time
            with suppress(NotApplicable):
                yield self._make(view.with_kernel(short[0].kernel))
        yield plain

    def _make(self, view: View) -> Change:
        product = _find_product(view)
        a, b, c = product.a, product.b, product.c
        (m, k), n = a.axes, b.axes[1]
        tiles = (m.width, n.width, k.width)
        if len({*tiles}) < 3 or not {*tiles} <= {*view.function.constexprs}:
            raise NotApplicable("its tile's sizes are not three constexprs")
        text, passed = product.epilogue.write("finish")
        own = {name: view.fresh_name(name) for name in OTHERS}
        a_desc, b_desc, c_desc = (view.fresh_name(f"{x}_desc") for x in "abc")
        rows, parts = f"{m.width} // {own['CONSUMERS']}", f"{n.width} // {own['PARTS']}"
        flips = [find_unit_axis(view, tile) == 0 for tile in (a, b, c)]
        refuse_if(flips[2], "its output's rows are not contiguous")

        def describe(tile: Tile, flip: bool, *block: str) -> tuple[str | None, ...]:
            first, last = tile.axes[::-1] if flip else tile.axes
            sides = block[::-1] if flip else block
            pairs = ((first.size, last.size), (first.stride, last.stride), sides)
            return (tile.pointer, *(f"({x}, {y})" for x, y in pairs), None)

        def turn(flip: bool, x: str, y: str) -> str:
            return f"{y}, {x}" if flip else f"{x}, {y}"

        typed = "".join(f", own_{p}" + ": gl.constexpr" * (p in view.function.constexprs) for p in passed)
        strides = ", ".join(axis.stride for tile in (a, b, c) for axis in tile.axes)

        def pair(keys: str, values: Iterable[str]) -> dict[str, str]:
            return dict(zip(keys.split(), values))

        names = {"finish": text, "typed": typed, "strides": strides, **own}
        names |= {"passed": "".join(f", own_{p}" for p in passed), "given": "".join(f", {p}" for p in passed)}
        names |= {"a_at": turn(flips[0], "m * BM + i * ROWS", "k * BK"), "b_at": turn(flips[1], "k * BK", "n * BN")}
        names |= {"a_tile": turn(flips[0], "BM // CONSUMERS", "BK"), "b_tile": turn(flips[1], "BK", "BN")}
        names |= pair("a_turn b_turn", (".permute((1, 0))" * flip for flip in flips))
        names |= pair("a_desc b_desc c_desc", (a_desc, b_desc, c_desc)) | pair("a b c", (x.pointer for x in (a, b, c)))
        names |= pair("M N K", (m.size, n.size, k.size)) | pair("BM BN BK", tiles)
        consumers = own["CONSUMERS"]
        shared = (
            f"2 * ({own['STAGES']} * ({m.width} + {n.width}) * {k.width} + {m.width} * {n.width} // {own['PARTS']})"
        )
        return self.write(
            view,
            "product.gluon.txt",
            names,
            {
                a_desc: describe(a, flips[0], rows, k.width),
                b_desc: describe(b, flips[1], k.width, n.width),
                c_desc: describe(c, False, rows, parts),
            },
            f"(min(num_sms * (3 - {consumers}), cdiv({m.size}, {m.width}) * cdiv({n.size}, {n.width})),)",
            {
                **dict(zip(tiles, TILES)),
                **{own[name]: values for name, values in OTHERS.items()},
                "num_warps": ((4,), 4),
                "maxnreg": ((128, 168), 168),
            },
            (
                f"maxnreg == 88 + 40 * {consumers}",
                f"{m.width} >= 64 * {consumers}",
                f"{m.width} * {n.width} <= 16384 * {consumers} and {n.width} <= 128 * {consumers}",
                f"{shared} <= {SHARED_BYTES}",
            ),
            "A warp of its own feeds a ring of tiles, so that the others only multiply and finish.",
        )


@dataclass(frozen=True)
class _Product:
    """c = finish(a @ b): the tiles that are loaded, rows by depth and depth by columns, and the one that is stored."""

    a: Tile
    b: Tile
    c: Tile
    epilogue: Epilogue


def _find_product(view: View) -> _Product:
    """The one product of a function that does nothing else. Raises NotApplicable."""
    loop, (dot,), stored = find_only_loop(view, 1, "one dot")
    step, store = view.flow.at(dot), view.flow.at(stored)
    refuse_if(store not in view.body[view.body.index(loop) :], "its store is not behind the loop")
    accumulator = _find_accumulator(view, loop, step, dot)
    a, b = (find_operand(view, operand, step) for operand in dot.args[:2])
    c = tile_of(view, stored)
    _check_axes(view, loop, a, b, c)
    value = tree.argument(stored, 1, "value")
    assert value is not None
    rows, columns = (axis.index for axis in c.axes)
    return _Product(a, b, c, Epilogue(view, loop, accumulator, store, value, rows, columns))


def _find_accumulator(view: View, loop: ast.For, step: ast.stmt, dot: ast.Call) -> str:
    """The name of the float32 tile that begins at zero and to which each turn of the loop adds the dot."""
    pair, added = tree.assignment(step), tree.argument(dot, 2, "acc")
    name = pair[0] if pair else ""
    match pair[1] if pair else None:
        case ast.Call() as call if call is dot and isinstance(added, ast.Name) and added.id == name:
            pass
        case ast.BinOp(ast.Name(left), ast.Add(), right) if left == name and tree.is_same(right, dot) and not added:
            pass
        case _:
            raise NotApplicable("the loop does more to its tile than to add a dot")
    start = tree.only_assignment(view.body[: view.body.index(loop)], name)
    zeros = start and tree.is_tl(start[1], "zeros") and tree.argument(start[1], 1, "dtype")
    if not zeros or tree.text_of(zeros) != "tl.float32" or [s for s in loop.body if name in tree.writes(s)] != [step]:
        raise NotApplicable("the loop's tile does not begin as zeros in float32")
    return name


def _check_axes(view: View, loop: ast.For, a: Tile, b: Tile, c: Tile) -> None:
    """Raises NotApplicable unless the loop runs over all of the depth, and the tile stored is the one multiplied."""
    (rows, depth), (other, columns) = a.axes, b.axes
    steps, variable = tree.range_of(loop), tree.text_of(loop.target)
    if steps is None or (depth.origin, depth.width, depth.size) != (other.origin, other.width, other.size):
        raise NotApplicable("its operands are not read alike along the depth")
    start, stop, stride = steps
    whole = tree.is_number(start, 0) and (tree.text_of(stop), tree.text_of(stride)) == (depth.size, depth.width)
    refuse_if(not whole or depth.origin != variable, "its loop does not run over the whole depth, a tile a turn")
    for mine, stored in zip((rows, columns), c.axes):
        if (mine.origin, mine.width, mine.size) != (stored.origin, stored.width, stored.size):
            raise NotApplicable("the tile that it stores is not the one that it accumulates")
    refuse_if(a.offset or b.offset or c.offset, "its matrices do not begin where its arguments point")
    known = {*view.function.params} - tree.writes(view.body)
    refuse_if(not a.ingredients | b.ingredients | c.ingredients <= known, "a matrix has a size that is no argument")


# ------------------------------------------------------------ the epilogue: a function of its own, element by element

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
