"""Where values come from: definitions seen from a statement, sums of terms, and dependence on the program id."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree


class Flow:
    """Definitions of one function body, looked up from the statement that reads them."""

    def __init__(self, body: list[ast.stmt], params: tuple[str, ...]) -> None:
        self.params = frozenset(params)
        self.paths: dict[int, tuple[tuple[list[ast.stmt], str | None], ...]] = {}
        self.owner: dict[int, ast.stmt] = {}
        self.assigned = tree.writes(body)
        self._written: dict[int, set[str]] = {}
        self._values: dict[tuple[str, int], tuple[ast.expr, ast.stmt] | None] = {}
        self._walk(body, ((body, None),))

    def _walk(self, body: list[ast.stmt], path: tuple[tuple[list[ast.stmt], str | None], ...]) -> None:
        for stmt in body:
            self.paths[id(stmt)] = path
            self._written[id(stmt)] = tree.writes(stmt)
            inner = _bodies(stmt)
            for node in ast.walk(stmt):
                self.owner[id(node)] = stmt
            variable = stmt.target.id if isinstance(stmt, ast.For) and isinstance(stmt.target, ast.Name) else None
            for block in inner:
                self._walk(block, (*path, (block, variable)))

    def at(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds node."""
        return self.owner[id(node)]

    def loops_of(self, node: ast.AST) -> list[ast.For]:
        """The loops around node, outermost first."""
        path = self.paths[id(self.at(node))]
        holders = [self._holder(inner, block) for (block, _), (inner, _) in zip(path, path[1:], strict=False)]
        return [h for h in holders if isinstance(h, ast.For)]

    def value(self, name: str, stmt: ast.stmt) -> tuple[ast.expr, ast.stmt] | None:
        """The one value that name has where stmt reads it, with the statement that gave it; None when not known."""
        key = (name, id(stmt))
        if key not in self._values:
            self._values[key] = self._value(name, stmt) if name in self.assigned else None
        return self._values[key]

    def _value(self, name: str, stmt: ast.stmt) -> tuple[ast.expr, ast.stmt] | None:
        path = self.paths[id(stmt)]
        for depth in range(len(path) - 1, -1, -1):
            block, variable = path[depth]
            writers = [s for s in block if name in self._written[id(s)]]
            if writers:
                if len(writers) != 1 or isinstance(writers[0], ast.AugAssign) or writers[0] is stmt:
                    return None
                pair = tree.assignment(writers[0])
                if pair is None or pair[0] != name or name in tree.reads(pair[1]):
                    return None
                here = stmt if depth == len(path) - 1 else self._holder(path[depth + 1][0], block)
                if here is None or block.index(writers[0]) >= block.index(here) or name in self.params:
                    return None
                return pair[1], writers[0]
            if variable == name:
                return None
        return None

    @staticmethod
    def _holder(inner: list[ast.stmt], block: list[ast.stmt]) -> ast.stmt | None:
        """The statement of block whose body is inner."""
        return next((s for s in block if any(b is inner for b in _bodies(s))), None)

    def steady(self, name: str, stmt: ast.stmt) -> bool:
        """Whether name has one value for as long as stmt's iteration lasts."""
        if name not in self.assigned or self.value(name, stmt) is not None:
            return True
        path = self.paths[id(stmt)]
        if any(variable == name for _, variable in path):
            return not any(name in self._written[id(s)] for s in path[-1][0])
        return False

    def expand(self, node: ast.expr, stmt: ast.stmt, depth: int = 12) -> ast.expr:
        """The expression with names replaced by their values, as far as those values hold where stmt stands."""
        if depth == 0:
            return node
        known: dict[str, ast.expr] = {}
        for name in tree.reads(node):
            found = self.value(name, stmt)
            if found is not None and all(self.steady(n, found[1]) for n in tree.reads(found[0])):
                known[name] = self.expand(found[0], found[1], depth - 1)
        return tree.substituted(node, known) if known else node  # type: ignore[return-value]


def _bodies(stmt: ast.stmt) -> list[list[ast.stmt]]:
    """The non-empty lists of statements inside a statement."""
    return [b for name in ("body", "orelse") if isinstance(b := getattr(stmt, name, None), list) and b]


def terms(node: ast.expr, sign: int = 1) -> list[tuple[int, ast.expr]]:
    """A sum as its signed terms: `a + b - c` is (1, a), (1, b), (-1, c)."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        right = sign if isinstance(node.op, ast.Add) else -sign
        return [*terms(node.left, sign), *terms(node.right, right)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return terms(node.operand, -sign)
    return [(sign, node)]


def factors(node: ast.expr) -> list[ast.expr]:
    """A product as its factors."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*factors(node.left), *factors(node.right)]
    return [node]


def unhinted(node: ast.expr) -> ast.expr:
    """The expression without what only tells the compiler of its alignment."""
    while tree.is_tl(node, "multiple_of", "max_contiguous", "max_constancy"):
        node = node.args[0]  # type: ignore[attr-defined]
    return node


def stripped(node: ast.expr) -> ast.expr:
    """The expression without `[:, None]` and the like, and without alignment hints."""
    while True:
        if isinstance(node, ast.Subscript) and _only_new_axes(node.slice):
            node = node.value
        elif (bare := unhinted(node)) is not node:
            node = bare
        elif isinstance(node, ast.BinOp):
            left, right = stripped(node.left), stripped(node.right)
            return ast.BinOp(left, node.op, right) if (left, right) != (node.left, node.right) else node
        else:
            return node


def _only_new_axes(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        (isinstance(p, ast.Constant) and p.value is None)
        or (isinstance(p, ast.Slice) and p.lower is p.upper is p.step is None)
        for p in parts
    )


def dependent(body: list[ast.stmt], roots: set[str], control: bool = True) -> set[str]:
    """Names whose value depends on the root names, through loads' addresses too.

    With control, whatever a loop or branch assigns depends on the loop's bounds or the branch's condition.
    """
    found = set(roots)
    while True:
        before = len(found)
        _spread(body, found, control, False)
        if len(found) == before:
            return found


def _spread(body: list[ast.stmt], found: set[str], control: bool, tainted: bool) -> None:
    for stmt in body:
        if isinstance(stmt, (ast.For, ast.While, ast.If)):
            head = stmt.iter if isinstance(stmt, ast.For) else stmt.test
            dirty = tainted or touches(head, found)
            if isinstance(stmt, ast.For) and dirty:
                found |= tree.writes(stmt.target)
            _spread(stmt.body, found, control, dirty and control)
            _spread(stmt.orelse, found, control, dirty and control)
        elif tainted or touches(stmt, found):
            found |= tree.writes(stmt)


def touches(node: ast.AST, names: set[str]) -> bool:
    return bool(tree.reads(node) & names)
