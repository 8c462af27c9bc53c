"""The syntax tree of a jit function: small queries on `ast`, and patches of its text.

A `Patch` collects replacements by position, so comments and layout outside the changed nodes survive.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from textwrap import indent
from typing import Any, TypeGuard, TypeVar

from kernelsearch.core.parsing import parse_python, read_dotted

MODULES = frozenset({"tl", "triton", "libdevice"})
"""Names that the kernel file imports; they are never values."""

Nodes = ast.AST | Iterable[ast.AST]
Span = tuple[int, int, int, int]
Node = TypeVar("Node", ast.expr, ast.stmt, ast.AST)
"""What is rewritten stays what it is: rules give expressions for expressions, statements for statements."""


def function_of(text: str) -> ast.FunctionDef:
    """The node of the one function in this text."""
    node = parse_python(text).body[-1]
    assert isinstance(node, ast.FunctionDef)
    return node


def find_constexprs(node: ast.FunctionDef) -> set[str]:
    return {a.arg for a in node.args.args if a.annotation and "constexpr" in text_of(a.annotation)}


def expression(text: str) -> ast.expr:
    return parse_python(text, "eval").body


def statements(text: str) -> list[ast.stmt]:
    return parse_python(text).body


def text_of(node: ast.AST) -> str:
    return ast.unparse(node)


def is_same(a: ast.AST | None, b: ast.AST | None) -> bool:
    """Whether two expressions have the same text, or both are None."""
    return a is b or (a is not None and b is not None and ast.unparse(a) == ast.unparse(b))


def parenthesise(text: str) -> str:
    """The expression with parentheses, unless it is a name, a number, a call or a subscript."""
    plain = isinstance(expression(text), (ast.Name, ast.Call, ast.Subscript, ast.Attribute, ast.Constant))
    return text if plain else f"({text})"


def callee(node: ast.AST) -> str:
    """The dotted name of a call's function (`tl.load`); empty for anything else."""
    return ".".join(read_dotted(node.func)) if isinstance(node, ast.Call) else ""


def is_tl(node: ast.AST, *names: str) -> TypeGuard[ast.Call]:
    """Whether node is a call of one of these functions of `tl`."""
    head, _, tail = callee(node).rpartition(".")
    return head in ("tl", "tl.math") and tail in names


def argument(call: ast.Call, position: int | None, name: str) -> ast.expr | None:
    """A call's argument by keyword or position; None if the call does not have it."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[position] if position is not None and position < len(call.args) else None


def mask_of(access: ast.Call) -> ast.expr | None:
    """The mask of a `tl.load` or `tl.store`."""
    return argument(access, 2 if is_tl(access, "store") else 1, "mask")


def conjuncts(mask: ast.expr) -> list[ast.expr]:
    """The masks of which all hold where this one does."""
    match mask:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return [*conjuncts(left), *conjuncts(right)]
    return [mask]


def program_axis(node: ast.AST) -> int | None:
    """The literal axis of `tl.program_id(axis)` or `tl.num_programs(axis)`; None for anything else."""
    axis = argument(node, 0, "axis") if is_tl(node, "program_id", "num_programs") else None
    return axis.value if isinstance(axis, ast.Constant) and axis.value in (0, 1, 2) else None  # type: ignore


def walk(nodes: Nodes) -> Iterator[ast.AST]:
    """One or several nodes with all that is inside them."""
    return ast.walk(nodes) if isinstance(nodes, ast.AST) else itertools.chain.from_iterable(map(ast.walk, nodes))


def calls(nodes: Nodes, *names: str) -> list[ast.Call]:
    """All calls of these functions of `tl` inside, in source order."""
    return sorted((n for n in walk(nodes) if is_tl(n, *names)), key=lambda n: (n.lineno, n.col_offset))


def reads(nodes: Nodes) -> set[str]:
    """Names that are read inside, except modules."""
    names: set[str] = set()
    for n in walk(nodes):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
            names.add(n.id)
        elif isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
            names.add(n.target.id)
    return names - MODULES


def writes(nodes: Nodes) -> set[str]:
    """Names that are assigned inside, including loop variables."""
    return {n.id for n in walk(nodes) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def blocks(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """The body and every nested list of statements, outermost first."""
    yield body
    for stmt in body:
        for name in ("body", "orelse"):
            if inner := getattr(stmt, name, None):
                yield from blocks(inner)


def head_of(stmt: ast.stmt) -> ast.AST:
    """What a loop runs over or a loop or branch asks; any other statement itself."""
    return stmt.iter if isinstance(stmt, ast.For) else stmt.test if isinstance(stmt, (ast.While, ast.If)) else stmt


def all_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement of the body and of its nested blocks, outermost first."""
    return itertools.chain.from_iterable(blocks(body))


def loops(body: list[ast.stmt]) -> list[ast.For]:
    """All `for` loops, outermost first, in source order."""
    return [s for s in all_statements(body) if isinstance(s, ast.For)]


def range_of(loop: ast.For) -> tuple[ast.expr, ast.expr, ast.expr] | None:
    """(start, stop, step) of a loop over `range` or `tl.range` with a plain loop variable, else None."""
    if callee(loop.iter) not in ("range", "tl.range", "tl.static_range") or not isinstance(loop.target, ast.Name):
        return None
    names = ("arg1", "arg2", "step")
    first, second, step = (argument(loop.iter, at, name) for at, name in enumerate(names))  # type: ignore[arg-type]
    if first is None or loop.orelse:
        return None
    start, stop = (ast.Constant(0), first) if second is None else (first, second)
    return start, stop, step or ast.Constant(1)


def loop_options(loop: ast.For) -> list[ast.keyword]:
    """Keywords of a loop's range other than its bounds: `num_stages` and the like."""
    assert isinstance(loop.iter, ast.Call)
    return [k for k in loop.iter.keywords if k.arg not in ("arg1", "arg2", "step")]


def with_range(loop: ast.For, low: str, high: str, step: str) -> ast.For:
    """A copy of a loop with other bounds and the same options."""
    options = "".join(f", {text_of(k)}" for k in loop_options(loop))
    fresh = statements(text_of(loop))[0]
    assert isinstance(fresh, ast.For)
    fresh.iter = expression(f"{callee(loop.iter)}({low}, {high}, {step}{options})")
    return fresh


def strip_docstrings(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements without docstrings."""
    return [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]


def is_assertion(stmt: ast.stmt) -> bool:
    """Whether a statement only asserts something before the launch."""
    return isinstance(stmt, ast.Expr) and is_tl(stmt.value, "static_assert")


def assignment(stmt: ast.stmt) -> tuple[str, ast.expr] | None:
    """(name, value) of `name = value` or `name: type = value`, or of `name op= value` as `name op value`; else None."""
    match stmt:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return name, value
        case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
            return name, ast.BinOp(ast.Name(name, ast.Load()), op, value)
    return None


def is_infinity(node: ast.AST, *signs: int) -> bool:
    """Whether node is plus (1) or minus (-1) infinity, as `float("-inf")` or `-float("inf")`."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return is_infinity(operand, *(-sign for sign in signs))
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=value), *_]):
            word = str(value).strip().lower()
            return word.lstrip("+-") in ("inf", "infinity") and (-1 if word.startswith("-") else 1) in signs
    return False


def is_number(node: ast.AST, value: float) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, (bool, str)) and node.value == value


class _Transformer(ast.NodeTransformer):
    def __init__(self, rule: Callable[[ast.AST], ast.AST | None]) -> None:
        self.rule = rule

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        new = self.rule(node)
        return node if new is None else new


def transform(node: Node, rule: Callable[[ast.AST], ast.AST | None]) -> Node:
    """Replaces nodes by what rule returns for them, innermost first, in place; rule returns None to keep a node."""
    return _Transformer(rule).visit(node)


def substitute(node: Node, names: Mapping[str, ast.expr]) -> Node:
    """A copy of node with names that it reads replaced by expressions."""

    def rule(n: ast.AST) -> ast.AST | None:
        read = isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in names
        return copy.deepcopy(names[n.id]) if read else None  # type: ignore[attr-defined]

    return transform(copy.deepcopy(node), rule)


def without_types(node: Node) -> Node:
    """A copy with a number for `ptr.dtype`, which is the same wherever the pointer has moved to."""
    typed = lambda n: ast.Constant(0) if isinstance(n, ast.Attribute) and n.attr == "dtype" else None  # noqa: E731
    return transform(copy.deepcopy(node), typed)


def does_nothing(stmt: ast.stmt) -> bool:
    """Whether a statement is `row = row`, which a replaced program id leaves over."""
    return isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and is_same(stmt.targets[0], stmt.value)


def only_assignment(body: Iterable[ast.stmt], name: str) -> tuple[ast.stmt, ast.expr] | None:
    """The one statement that writes a name, and what it assigns; None if there are others, or it does more."""
    writers = [s for s in body if name in writes(s)]
    pair = assignment(writers[0]) if len(writers) == 1 else None
    return (writers[0], pair[1]) if pair else None


def is_assigned_once(body: list[ast.stmt], name: str) -> bool:
    """Whether one statement of the body, or of a block in it, writes a name, and in one place."""
    return sum(name in writes(s) for s in all_statements(body)) == 1


def list_options(access: ast.Call) -> list[str]:
    """The arguments of a load behind its pointer and mask, as text."""
    named = (f"{k.arg}={text_of(k.value)}" for k in access.keywords if k.arg != "mask")
    return [*map(text_of, access.args[2:]), *named]


def rename(node: Node, names: Mapping[str, str]) -> Node:
    """A copy of node with names replaced by names, both where they are read and where they are assigned."""
    fresh = copy.deepcopy(node)
    for n in ast.walk(fresh):
        if isinstance(n, ast.Name) and n.id in names:
            n.id = names[n.id]
    return fresh


def rebuild(node: ast.FunctionDef, body: list[ast.stmt], drop: str | None = None) -> Patch:
    """The function with another body and without the parameter drop, as a patch to which parameters can be added."""
    fresh = copy.deepcopy(node)
    old, defaults = fresh.args.args, fresh.args.defaults
    every = zip(old, [*[None] * (len(old) - len(defaults)), *defaults], strict=True)
    pairs = [(param, default) for param, default in every if param.arg != drop]
    fresh.args.args = [param for param, _ in pairs]
    fresh.args.defaults = [default for _, default in pairs if default is not None]
    fresh.body = body or [ast.Pass()]
    return Patch(ast.unparse(ast.fix_missing_locations(fresh)) + "\n")


def make_loop(head: str, body: list[ast.stmt]) -> ast.For:
    """A loop with this head (`for row in range(n)`) around the statements."""
    (node,) = statements(f"{head}:\n    pass")
    node.body = body  # type: ignore[attr-defined]
    return node  # type: ignore[return-value]


def with_keyword(call: ast.Call, name: str, value: str) -> str:
    """The text of a call that has arguments, with one keyword more."""
    return f"{ast.unparse(call)[:-1]}, {name}={value})"


def make_branch(test: str, body: list[ast.stmt], orelse: Sequence[ast.stmt] = ()) -> ast.If:
    """A branch with this condition, as text, around the statements."""
    return ast.If(expression(test), body, list(orelse))


class Patch:
    """Replacements collected by position of `ast` nodes, applied once to the text: what is around them stays."""

    def __init__(self, text: str) -> None:
        self.source = normalise(text)
        self.node = function_of(self.source)
        self._expressions: dict[Span, str] = {}
        self._instead: dict[int, str] = {}  # these three by the statement's line
        self._before: dict[int, str] = defaultdict(str)
        self._after: dict[int, str] = defaultdict(str)
        self._params: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Whether no expression and no statement changes."""
        return not (self._expressions or self._instead or self._before or self._after)

    def replace_expr(self, node: ast.expr, text: str) -> None:
        """Replaces an expression; the text must have the parentheses that it needs."""
        self._expressions[_span(node)] = text

    def replace_stmt(self, node: ast.stmt, text: str) -> None:
        """Replaces a statement by any number of statements; an empty text removes it."""
        self._instead[node.lineno] = text

    def insert_before(self, node: ast.stmt, text: str) -> None:
        self._before[node.lineno] += text

    def insert_after(self, node: ast.stmt, text: str) -> None:
        self._after[node.lineno] += text

    def add_param(self, text: str) -> None:
        """Adds a parameter, `NAME` or `NAME: tl.constexpr`, before those that have defaults."""
        self._params.append(text)

    def text(self) -> str:
        lines = self.source.splitlines(keepends=True)
        starts = [0, *itertools.accumulate(map(len, lines))]
        cuts = [(starts[a - 1] + b, 0, starts[c - 1] + d, text) for (a, b, c, d), text in self._expressions.items()]
        for block in blocks(self.node.body):
            kept = [s for s in block if self._instead.get(s.lineno) != "" or s.lineno in {*self._before, *self._after}]
            for stmt in block:
                line, deep = stmt.lineno, stmt.col_offset
                put = lambda text: text and indent(text.rstrip("\n") + "\n", " " * deep)  # noqa: B023, E731
                first, begin, end = line - 1, starts[line - 1], starts[stmt.end_lineno or line]
                if line in self._after:
                    cuts.append((end, -deep - 2, end, put(self._after[line])))
                if line in self._before:
                    cuts.append((begin, -1, begin, put(self._before[line])))
                if line in self._instead:
                    while stmt not in kept and lines[first - 1].strip()[:1] in ("", "#"):
                        first -= 1  # a comment goes with its statement
                    lost = not kept and stmt is block[-1]
                    cuts.append((starts[first], 0, end, put("pass" if lost else self._instead[line])))
        if self._params:
            cuts.append(self._add_params(starts))
        parts, at = list[str](), 0
        for begin, _, end, text in sorted(cuts):
            if begin >= at:
                parts += [self.source[at:begin], self._fit(begin, end, text)]
                at = end
        return "".join([*parts, self.source[at:]])

    def _add_params(self, starts: list[int]) -> tuple[int, int, int, str]:
        """The cut that adds the new parameters."""
        args, new = self.node.args, ", ".join(self._params)
        plain = args.args[: len(args.args) - len(args.defaults)]
        if len(plain) < len(args.args):
            after = args.args[len(plain)]
            at, new = starts[after.lineno - 1] + after.col_offset, f"{new}, "
        elif plain:
            at, new = starts[(plain[-1].end_lineno or 0) - 1] + (plain[-1].end_col_offset or 0), f", {new}"
        else:
            at = self.source.index("(", starts[self.node.lineno - 1]) + 1
        return at, 0, at, new

    def _fit(self, begin: int, end: int, text: str) -> str:
        """A text for an expression that has parentheses already, without parentheses of its own."""
        around = self.source[begin - 1 : begin] + self.source[end : end + 1]
        inside = begin < end and around == "()" and text[:1] == "(" and expression(text).col_offset > 0
        return text[1:-1] if inside else text


@lru_cache(maxsize=1024)
def normalise(text: str) -> str:
    """The text, unparsed again if a line holds several statements or the text is not ASCII."""
    module = parse_python(text)
    starts = [n.lineno for n in ast.walk(module) if isinstance(n, ast.stmt)]
    plain = len(starts) == len(set(starts)) and text.isascii() and text.endswith("\n")
    return text if plain else ast.unparse(module) + "\n"


def _span(node: ast.expr) -> Span:
    return (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
