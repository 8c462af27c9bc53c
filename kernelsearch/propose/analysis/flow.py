"""Where values come from: definitions seen from a statement, sums of terms, and dependence on the program id."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from kernelsearch.kernel.source import Function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import READS, find_effects


class Flow:
    """Definitions of one function body, looked up from the statement that reads them."""

    def __init__(self, body: list[ast.stmt], params: tuple[str, ...]) -> None:
        self.params = frozenset(params)
        self.assigned = tree.writes(body)
        self._places: dict[int, tuple[list[ast.stmt], ast.stmt | None]] = {}  # a statement's block, and what holds that
        self._owners: dict[int, ast.stmt] = {}
        self._written: dict[int, set[str]] = {}
        self._walk(body, None)

    def _walk(self, block: list[ast.stmt], holder: ast.stmt | None) -> None:
        for stmt in block:
            self._places[id(stmt)] = (block, holder)
            self._written[id(stmt)] = tree.writes(stmt)
            self._owners.update((id(node), stmt) for node in ast.walk(stmt))
            for name in ("body", "orelse"):
                self._walk(getattr(stmt, name, []), stmt)

    def at(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds node."""
        return self._owners[id(node)]

    def block_of(self, stmt: ast.stmt) -> list[ast.stmt]:
        """The list of statements that stmt is in."""
        return self._places[id(stmt)][0]

    def holders_of(self, node: ast.AST) -> list[ast.stmt]:
        """The statements around the one that holds node, innermost first."""
        holders, holder = [], self._places[id(self.at(node))][1]
        while holder is not None:
            holders.append(holder)
            holder = self._places[id(holder)][1]
        return holders

    def loops_of(self, node: ast.AST) -> list[ast.For]:
        """The loops around node, outermost first."""
        return [holder for holder in reversed(self.holders_of(node)) if isinstance(holder, ast.For)]

    def value(self, name: str, stmt: ast.stmt) -> tuple[ast.expr, ast.stmt] | None:
        """The only value that name can have where stmt reads it, and the statement that assigns it; None if unknown."""
        here = stmt if name in self.assigned else None
        while here is not None:
            block, holder = self._places[id(here)]
            writers = [s for s in block if name in self._written[id(s)]]
            if writers:
                pair = tree.assignment(writers[0])
                if len(writers) > 1 or isinstance(writers[0], ast.AugAssign) or pair is None or pair[0] != name:
                    return None
                if block.index(writers[0]) >= block.index(here) or name in tree.reads(pair[1]) or name in self.params:
                    return None
                return pair[1], writers[0]
            if _is_variable_of(name, holder):
                return None
            here = holder
        return None

    def steady_value(self, name: str, stmt: ast.stmt) -> tuple[ast.expr, ast.stmt] | None:
        """The same, if the value that was computed there is still that of its expression at stmt."""
        definition = self.value(name, stmt)
        steady = definition and all(self.is_steady(n, definition[1]) for n in tree.reads(definition[0]))
        return definition if steady else None

    def is_steady(self, name: str, stmt: ast.stmt) -> bool:
        """Whether name has the same value at stmt and behind it, during the iteration that stmt is in."""
        here = stmt if name in self.assigned else None
        while here is not None:
            block, holder = self._places[id(here)]
            if writers := [s for s in block if name in self._written[id(s)]]:
                return block.index(writers[-1]) < block.index(here)
            if _is_variable_of(name, holder):
                return True
            here = holder
        return True

    def expand(self, node: ast.expr, stmt: ast.stmt, depth: int = 12) -> ast.expr:
        """The expression with names replaced by their values, as far as those are still valid at stmt."""
        if depth == 0:
            return node
        known: dict[str, ast.expr] = {}
        for name in tree.reads(node):
            if (definition := self.steady_value(name, stmt)) is not None:
                known[name] = self.expand(*definition, depth - 1)
        return tree.substitute(node, known) if known else node


def _is_variable_of(name: str, holder: ast.stmt | None) -> bool:
    return isinstance(holder, ast.For) and isinstance(holder.target, ast.Name) and holder.target.id == name


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


def are_alike(node: ast.AST, other: ast.AST | str) -> bool:
    """Whether two expressions are the same but for the order of sums, products and comparisons."""
    return order_text(node) == order_text(tree.expression(other) if isinstance(other, str) else other)


def order_text(node: ast.AST) -> str:
    """The expression's text in one order of its terms and factors."""
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return f"({' '.join(sorted(f'{sign:+d}{order_text(term)}' for sign, term in terms(node)))})"
        case ast.BinOp(op=ast.Mult()):
            return f"({'*'.join(sorted(map(order_text, factors(node))))})"
        case ast.BinOp(left=left, op=op, right=right):
            return f"({order_text(left)} {type(op).__name__} {order_text(right)})"
        case ast.Compare(left=left, ops=[ast.LtE() | ast.Lt() as op], comparators=[right]):
            return f"({order_text(right)} {'>=' if isinstance(op, ast.LtE) else '>'} {order_text(left)})"
        case ast.Compare(left=left, ops=[ast.GtE() | ast.Gt() as op], comparators=[right]):
            return f"({order_text(left)} {'>=' if isinstance(op, ast.GtE) else '>'} {order_text(right)})"
        case ast.Subscript(value=value, slice=index):
            return f"{order_text(value)}[{tree.text_of(index).strip('()')}]"
        case ast.Call(func=func, args=args, keywords=keywords):
            named = [k.value for k in keywords if k.arg == "axis"]
            name = tree.callee(node).replace("tl.math.", "tl.") or order_text(func)
            return f"{name}({', '.join(map(order_text, [*args, *named]))})"
        case ast.Attribute(value=value, attr=attr):
            return f"{order_text(value)}.{attr}"
    return tree.text_of(node)


def strip_hints(node: ast.expr) -> ast.expr:
    """The expression without hints about its alignment and without `.to(tl.int64)`, which both leave its value."""
    while True:
        match node:
            case ast.Call(ast.Attribute(inner, "to"), [ast.Attribute(ast.Name("tl"), "int64")], []):
                node = inner
            case ast.Call(args=[inner, *_]) if tree.is_tl(node, "multiple_of", "max_contiguous", "max_constancy"):
                node = inner
            case _:
                return node


def strip_axes(node: ast.expr) -> ast.expr:
    """The expression without `[:, None]` and the like, and without alignment hints."""
    node = strip_hints(node)
    while isinstance(node, ast.Subscript) and _only_new_axes(node.slice):
        node = strip_hints(node.value)
    if isinstance(node, ast.BinOp):
        return ast.BinOp(strip_axes(node.left), node.op, strip_axes(node.right))
    return node


def _only_new_axes(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        (isinstance(p, ast.Constant) and p.value is None)
        or (isinstance(p, ast.Slice) and p.lower is p.upper is p.step is None)
        for p in parts
    )


def find_dependent(body: list[ast.stmt], roots: set[str], control: bool = True) -> set[str]:
    """Names whose value depends on the root names, directly or through the addresses of loads.

    With control, whatever a loop or branch assigns depends on the loop's bounds or the branch's condition.
    """
    names, before = set(roots), -1
    while len(names) > before:
        before = len(names)
        _spread(body, names, control, False)
    return names


class Dependence:
    """What depends on the expressions that are roots: names, and whether an expression does (`reaches`)."""

    def __init__(self, body: list[ast.stmt], is_root: Callable[[ast.AST], bool], control: bool = True) -> None:
        self.is_root = is_root
        mark = lambda n: ast.Name("<root>", ast.Load()) if is_root(n) else None  # noqa: E731
        marked = [tree.transform(copy.deepcopy(s), mark) for s in body]
        self.names = find_dependent(marked, {"<root>"}, control) - {"<root>"}

    def reaches(self, node: ast.AST) -> bool:
        return touches(node, self.names) or any(map(self.is_root, ast.walk(node)))


def _spread(body: list[ast.stmt], names: set[str], control: bool, tainted: bool) -> None:
    """Adds to names what the statements assign from them; all that they assign if tainted."""
    for stmt in body:
        if isinstance(stmt, (ast.For, ast.While, ast.If)):
            dirty = tainted or touches(tree.head_of(stmt), names)
            if isinstance(stmt, ast.For) and dirty:
                names |= tree.writes(stmt.target)
            for block in (stmt.body, stmt.orelse):
                _spread(block, names, control, dirty and control)
        elif tainted or touches(stmt, names):
            names |= tree.writes(stmt)


def touches(node: ast.AST, names: set[str]) -> bool:
    """Whether node reads one of the names."""
    return bool(tree.reads(node) & names)


def drop_unread(body: list[ast.stmt], helpers: Mapping[str, Function] = {}) -> list[ast.stmt]:
    """The statements without those, here and in loops, that only assign a name that nothing reads."""
    read: set[str]
    keep = lambda s: not (pair := tree.assignment(s)) or pair[0] in read or find_effects(s, helpers) - READS  # noqa: E731
    while True:
        read = tree.reads(body)
        for block in tree.blocks(body):
            block[:] = filter(keep, block)
        if tree.reads(body) == read:
            return body


def find_unbound(body: list[ast.stmt], bound: AbstractSet[str] = frozenset()) -> dict[str, None]:
    """The names, in order, that are read where not every way from the first statement to there has bound them.

    bound are those that are bound before it.
    """
    unbound: dict[str, None] = {}
    _follow(body, set(bound), unbound)
    return unbound


def _follow(body: list[ast.stmt], bound: set[str], unbound: dict[str, None]) -> set[str]:
    """The names that are bound behind the statements; adds to unbound what they read before."""
    for statement in body:
        unbound |= dict.fromkeys(sorted(tree.reads(tree.head_of(statement)) - bound))
        match statement:
            case ast.For(target=target, body=inner):
                _follow(inner, bound | tree.writes(target), unbound)
            case ast.While(body=inner):
                _follow(inner, bound, unbound)
            case ast.If(body=inner, orelse=other):
                bound = _follow(inner, bound, unbound) & _follow(other, bound, unbound)
            case _:
                bound = bound | tree.writes(statement)
    return bound
