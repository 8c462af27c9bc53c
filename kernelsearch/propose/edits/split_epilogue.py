"""Epilogues in parts: the tile of a product is finished and stored a few columns at a time.

What a thread needs for the epilogue, and the shared memory through which the copy engine stores, shrink by the number
of parts; the memory goes to one more stage of loads. Triton has no slices of a tile: halves come from a reshape, a
permutation and `tl.split`, which move nothing between threads where the tile's columns are spread over registers.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import READS, find_effects
from kernelsearch.propose.analysis.shapes import OF_PARTS
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit

COUNTS = (1, 2, 4)


class SplitEpilogue(Edit):
    summary = "a product's tile is finished and stored in PARTS parts along its columns"
    refusal = "no tile that a loop with a dot accumulates is finished after it element by element"

    def change(self, view: View) -> Changes:
        reasons = []
        for block in tree.blocks(view.body):
            for at, loop in enumerate(block):
                if isinstance(loop, ast.For) and tree.calls(loop, "dot") and block[at + 1 :]:
                    try:
                        yield _Epilogue(view, loop, block[at + 1 :]).split()
                        return
                    except NotApplicable as refused:
                        reasons.append(refused.reason)
        if reasons:
            raise NotApplicable(reasons[-1])


@dataclass
class _Epilogue:
    """The statements behind a loop with a dot, and what they become for one part of the columns."""

    view: View
    loop: ast.For
    tail: list[ast.stmt]
    names: dict[str, str] = field(default_factory=dict)
    pulled: list[ast.stmt] = field(default_factory=list)

    def split(self) -> Change:
        """The function with a loop over parts in place of the tail. Raises NotApplicable."""
        view, tiles = self.view, self._find_tiles()
        self.rows, self.columns = view.shapes.names[tiles[0]] or ("", "")
        if self.rows == self.columns or self.columns not in view.function.constexprs:
            raise NotApplicable("the tile's columns are not a constexpr of their own")
        self.count, self.part = view.fresh_name("PARTS"), view.fresh_name("part")
        self.width = f"{self.columns} // {self.count}"
        parts = {tile: view.fresh_name(f"{tile}_parts") for tile in tiles}
        self.names = {tile: view.fresh_name(f"{tile}_part") for tile in tiles}
        for stmt in self.tail:
            self._check(stmt)
        self._pull(self.tail, set())
        once = self._list_steps(self.tail, set())
        patch = tree.Patch(view.text)
        descriptors = self._narrow_descriptors(patch)
        takes = [f"{self.names[tile]} = {parts[tile]}[{self.part}]" for tile in tiles]
        tail = [self._of_part(s) for s in self.tail if s not in once]
        body = [*tree.statements("\n".join(takes)), *self.pulled, *tail]
        loop = tree.make_loop(f"for {self.part} in tl.static_range({self.count})", body)
        text = "".join(f"{tree.text_of(s)}\n" for s in once)
        text += "".join(self._cut(tile, parts[tile]) for tile in tiles) + tree.text_of(loop) + "\n"
        patch.replace_stmt(self.tail[0], text)
        for stmt in self.tail[1:]:
            patch.replace_stmt(stmt, "")
        why = "The tile is finished and stored in parts, which need fewer registers and less shared memory at a time."
        change = view.rewrite(patch, why, tunables={self.count: (COUNTS, 2)})
        return replace(change, kernel=change.kernel.with_changes(descriptors=descriptors, args=self._narrow_flags()))

    def _find_tiles(self) -> list[str]:
        """The tiles of two axes that the loop accumulates and the tail reads."""
        read = tree.reads(self.tail) & tree.writes(self.loop)
        shapes = {name: self.view.shapes.names.get(name) for name in sorted(read)}
        tiles = [name for name, shape in shapes.items() if shape and len(shape) == 2]
        if not tiles or len({shapes[t] for t in tiles}) > 1:
            raise NotApplicable("the loop leaves no tile of two axes, or several of unlike shapes")
        columns = (shapes[tiles[0]] or ("", ""))[1]
        if any(shape is None or columns in shape for name, shape in shapes.items() if name not in tiles):
            raise NotApplicable("the loop leaves more than a tile that has its columns")
        return tiles

    # ------------------------------------------------------------ what may be in an epilogue

    def _check(self, stmt: ast.stmt) -> None:
        """Raises NotApplicable unless the statement does the same for some columns as for all."""
        if isinstance(stmt, ast.If) and tree.reads(stmt.test) <= set(self.view.function.constexprs):
            for inner in (*stmt.body, *stmt.orelse):
                self._check(inner)
            return
        if tree.assignment(stmt) is None and not (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call)):
            raise NotApplicable("the epilogue has more than assignments and stores")
        for node in ast.walk(stmt):
            if isinstance(node, ast.Call) and not self._is_free(node):
                raise NotApplicable(f"the epilogue calls {tree.text_of(node.func)}, which needs the whole tile")
            changes = tree.is_tl(node, "store", "atomic_add")
            if changes and self.columns not in (self.view.shapes.of(node.args[0]) or ()):  # type: ignore[attr-defined]
                raise NotApplicable("the epilogue changes what every part of the tile would change again")
            if isinstance(node, ast.Attribute) and node.attr in ("T", "shape"):
                raise NotApplicable(f"the epilogue uses .{node.attr} of a tile")

    def _is_free(self, call: ast.Call) -> bool:
        head, _, tail = tree.callee(call).rpartition(".")
        if head in ("tl", "tl.math"):
            return tail in OF_PARTS or (tail == "trans" and len(call.args) == 1)
        if head == "libdevice" or (not head and tail in ("min", "max", "float")):
            return True
        return isinstance(call.func, ast.Attribute) and (call.func.attr == "to" or self._is_store(call))

    def _is_store(self, node: ast.AST) -> bool:
        """Whether a node stores through a descriptor."""
        match node:
            case ast.Call(ast.Attribute(ast.Name(name), "store"), [ast.List() | ast.Tuple(), _], []):
                return name not in tree.MODULES
        return False

    def _list_steps(self, body: list[ast.stmt], made: set[str]) -> list[ast.stmt]:
        """The statements that go on from a value of before the tail (`ptr += offset`): they run once, ahead of it."""
        steps: list[ast.stmt] = []
        for stmt in body:
            if isinstance(stmt, ast.If):
                if any(self._list_steps(inner, set(made)) for inner in (stmt.body, stmt.orelse)):
                    raise NotApplicable("the epilogue goes on from an earlier value under a condition")
            else:
                read = tree.reads(tree.without_types(stmt))
                moved = tree.writes(steps)
                if (read - made - moved - {*self.names}) & tree.writes(self.tail) or tree.writes(stmt) & moved:
                    if read & ({*self.names} | made) or tree.assignment(stmt) is None:
                        raise NotApplicable("the epilogue uses a value before it goes on from it")
                    steps.append(stmt)
                    continue
            made |= tree.writes(stmt)
        return steps

    def _pull(self, body: list[ast.stmt], ready: set[str]) -> None:
        """Puts definitions of the columns' values that the statements read, and do not make, into the loop of parts."""
        for stmt in body:
            for name in sorted(tree.reads(stmt) - ready - {*self.names}):
                shape = self.view.shapes.names.get(name)
                if name in tree.writes(self.tail):
                    continue
                if shape is None and name in tree.writes(self.view.body) - self.view.descriptors.keys():
                    raise NotApplicable(f"the shape of {name} is not known")
                if shape and self.columns in shape:
                    self._pull_value(name)
            ready |= tree.writes(stmt)

    def _pull_value(self, name: str) -> None:
        if (known := self.view.flow.steady_value(name, self.tail[0])) is None:
            raise NotApplicable(f"the value of {name} is not known after the loop")
        definition = ast.Assign([ast.Name(name, ast.Store())], copy.deepcopy(known[0]), lineno=1)
        self._check(definition)
        self.view.must_only(READS, definition, "what its parts need")
        if tree.calls(known[0], "load") and find_effects(self.view.body, self.view.helpers, self.tail) - READS:
            raise NotApplicable(f"{name} is loaded before another store")
        self.names[name] = self.view.fresh_name(f"{name}_part")
        for other in sorted(tree.reads(known[0]) - {*self.names}):
            if self.columns in (self.view.shapes.names.get(other) or ()):
                self._pull_value(other)
        self.pulled.append(self._of_part(definition))

    # ------------------------------------------------------------ one part

    def _cut(self, tile: str, parts: str) -> str:
        """Statements that give a tuple of the tile's parts."""

        def halves(name: str, width: str) -> str:
            return f"tl.split(tl.permute(tl.reshape({name}, ({self.rows}, 2, {width})), (0, 2, 1)))"

        left, right = (self.view.fresh_name(f"{tile}_{side}") for side in ("left", "right"))
        half, quarter = (f"{self.columns} // {n}" for n in (2, 4))
        return (
            f"if {self.count} == 1:\n    {parts} = ({tile},)\n"
            f"elif {self.count} == 2:\n    {parts} = {halves(tile, half)}\n"
            f"else:\n    {left}, {right} = {halves(tile, half)}\n"
            f"    {parts} = {halves(left, quarter)} + {halves(right, quarter)}\n"
        )

    def _of_part(self, stmt: ast.stmt) -> ast.stmt:
        """The statement for the columns of one part."""
        offset = f"{self.part} * ({self.width})"

        def rule(node: ast.AST) -> ast.AST | None:
            if tree.is_tl(node, "arange") and self.columns in tree.reads(node):
                if tree.text_of(node) != f"tl.arange(0, {self.columns})":
                    raise NotApplicable("a range along the columns does not begin at 0")
                return tree.expression(f"({offset} + tl.arange(0, {self.width}))")
            if self._is_store(node):
                assert isinstance(node, ast.Call)
                name, at = node.func.value.id, node.args[0]  # type: ignore[attr-defined]
                axis = self._axis_of(name)
                assert isinstance(at, (ast.List, ast.Tuple))
                at.elts[axis] = tree.expression(f"{tree.text_of(at.elts[axis])} + {offset}")
            return None

        return tree.rename(tree.transform(copy.deepcopy(stmt), rule), self.names)

    # ------------------------------------------------------------ descriptors

    def _axis_of(self, name: str) -> int:
        """The axis of a descriptor's block that is the tile's columns."""
        block = self.view.descriptors.get(name, (None, None))[1]
        sizes = [tree.text_of(e) for e in block.elts] if isinstance(block, (ast.List, ast.Tuple)) else []
        refuse_if(len(sizes) != 2 or sizes.count(self.columns) != 1, "a descriptor's block is not the tile")
        return sizes.index(self.columns)

    def _stored_through(self) -> Iterator[str]:
        for stmt in self.tail:
            yield from (n.func.value.id for n in ast.walk(stmt) if self._is_store(n))  # type: ignore[attr-defined]

    def _narrow_descriptors(self, patch: tree.Patch) -> dict[str, tuple]:
        """The launch's descriptors, those of the tail with blocks of one part; the function's own by the patch."""
        view, specs = self.view, dict(self.view.kernel.descriptors)
        for name in dict.fromkeys(self._stored_through()):
            axis, block = self._axis_of(name), view.descriptors[name][1]
            assert isinstance(block, (ast.List, ast.Tuple))
            outside = [n for n in ast.walk(view.node) if isinstance(n, ast.Name) and n.id == name]
            inside = [n for s in self.tail for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == name]
            if len([n for n in outside if isinstance(n.ctx, ast.Load)]) > len(inside):
                raise NotApplicable("a descriptor serves for loads too")
            if name in specs:
                sizes = [tree.text_of(e) for e in block.elts]
                sizes[axis] = self.width
                specs[name] = (*specs[name][:3], f"({', '.join(sizes)})", *specs[name][4:])
            else:
                patch.replace_expr(block.elts[axis], self.width)
        return specs

    def _narrow_flags(self) -> dict[str, Mapping[str, str]]:
        """The launch's arguments, where flags of the tail ask for the width of one part."""
        name, args = self.view.function.name, dict(self.view.kernel.args)
        tests = {n for s in self.tail if isinstance(s, ast.If) for n in tree.reads(s.test)}
        own = {
            key: text.replace(f"{self.columns} >= ", f"{self.width} >= ") if key in tests else text
            for key, text in args.get(name, {}).items()
        }
        return {**args, name: own} if own else args
