"""A jit function's syntax tree: small questions asked of `ast`, and patches applied with LibCST.

Analysis reads `ast`, which is small and has no layout. A `Patch` collects replacements by position and
applies them to the text with LibCST, so that comments and layout outside the changed nodes survive.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from kernelsearch.core.parsing import parsed

MODULES = frozenset({"tl", "triton", "libdevice"})
"""Names of the kernel file's imports: read everywhere, never a value."""

Span = tuple[int, int, int, int]


# ---------------------------------------------------------------- questions


def function_of(text: str) -> ast.FunctionDef:
    """The one function in a function's text."""
    node = parsed(text).body[-1]
    assert isinstance(node, ast.FunctionDef)
    return node


def expression(text: str) -> ast.expr:
    return parsed(text, "eval").body


def statements(text: str) -> list[ast.stmt]:
    return parsed(text).body


def text_of(node: ast.AST) -> str:
    return ast.unparse(node)


def same(a: ast.AST | None, b: ast.AST | None) -> bool:
    """Whether two expressions are written alike."""
    return (a is None and b is None) or (a is not None and b is not None and ast.unparse(a) == ast.unparse(b))


def parenthesised(text: str) -> str:
    """The expression with parentheses, unless it is a name, a number, a call or a subscript."""
    node = expression(text)
    plain = isinstance(node, (ast.Name, ast.Call, ast.Subscript, ast.Attribute)) or (
        isinstance(node, ast.Constant) and not str(text).startswith("-")
    )
    return text if plain else f"({text})"


def called(node: ast.AST) -> str:
    """The dotted name of a call's function (`tl.load`), the empty string for anything else."""
    if not isinstance(node, ast.Call):
        return ""
    parts: list[str] = []
    at = node.func
    while isinstance(at, ast.Attribute):
        parts.append(at.attr)
        at = at.value
    return ".".join([at.id, *reversed(parts)]) if isinstance(at, ast.Name) else ""


def is_tl(node: ast.AST, *names: str) -> bool:
    """Whether node is a call of one of these functions of `tl`."""
    head, _, tail = called(node).rpartition(".")
    return head in ("tl", "tl.math") and tail in names


def argument(call: ast.Call, position: int | None, name: str) -> ast.expr | None:
    """A call's argument by keyword or position, None when it is not given."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[position] if position is not None and position < len(call.args) else None


def calls(node: ast.AST, *names: str) -> list[ast.Call]:
    """All calls of these functions of `tl` inside node, in source order."""
    found = [n for n in ast.walk(node) if is_tl(n, *names)]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def reads(node: ast.AST | Iterable[ast.AST]) -> set[str]:
    """Names that are read inside node, modules apart."""
    nodes = [node] if isinstance(node, ast.AST) else list(node)
    names: set[str] = set()
    for top in nodes:
        for n in ast.walk(top):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
                names.add(n.id)
            elif isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
                names.add(n.target.id)
    return names - MODULES


def writes(body: ast.AST | Iterable[ast.AST]) -> set[str]:
    """Names that are assigned inside the statements, loop variables included."""
    nodes = [body] if isinstance(body, ast.AST) else list(body)
    return {n.id for top in nodes for n in ast.walk(top) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def blocks(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """The body and every nested list of statements, outermost first."""
    yield body
    for stmt in body:
        for name in ("body", "orelse"):
            inner = getattr(stmt, name, None)
            if isinstance(inner, list) and inner:
                yield from blocks(inner)


def all_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for block in blocks(body):
        yield from block


def loops(body: list[ast.stmt]) -> list[ast.For]:
    """All `for` loops, outermost first, in source order."""
    return [s for s in all_statements(body) if isinstance(s, ast.For)]


def range_of(loop: ast.For) -> tuple[ast.expr, ast.expr, ast.expr] | None:
    """(start, stop, step) of a loop over `range` or `tl.range` with a plain loop variable, else None."""
    if called(loop.iter) not in ("range", "tl.range", "tl.static_range") or not isinstance(loop.target, ast.Name):
        return None
    assert isinstance(loop.iter, ast.Call)
    zero, one = ast.Constant(0), ast.Constant(1)
    first = argument(loop.iter, 0, "arg1")
    second, step = argument(loop.iter, 1, "arg2"), argument(loop.iter, 2, "step")
    if first is None or loop.orelse:
        return None
    return (zero, first, step or one) if second is None else (first, second, step or one)


def loop_options(loop: ast.For) -> list[ast.keyword]:
    """What a loop over a range is told besides its bounds: `num_stages` and the like."""
    assert isinstance(loop.iter, ast.Call)
    return [k for k in loop.iter.keywords if k.arg not in ("arg1", "arg2", "step")]


def docless(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements without docstrings."""
    return [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]


def assignment(stmt: ast.stmt) -> tuple[str, ast.expr] | None:
    """(name, value) of `name = value` or `name: type = value`, and of `name op= value` written out; else None."""
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Name):
        return stmt.targets[0].id, stmt.value
    if isinstance(stmt, ast.AnnAssign) and isinstance(stmt.target, ast.Name) and stmt.value is not None:
        return stmt.target.id, stmt.value
    if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name):
        name = stmt.target.id
        return name, ast.BinOp(ast.Name(name, ast.Load()), stmt.op, stmt.value)
    return None


def is_infinity(node: ast.AST, sign: int) -> bool:
    """Whether node is plus (1) or minus (-1) infinity, as `float("-inf")` or `-float("inf")`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return is_infinity(node.operand, -sign)
    if called(node) == "float" and node.args and isinstance(node.args[0], ast.Constant):  # type: ignore[attr-defined]
        word = str(node.args[0].value).strip().lower()  # type: ignore[attr-defined]
        return word in (("inf", "+inf", "infinity", "+infinity") if sign > 0 else ("-inf", "-infinity"))
    return False


def is_number(node: ast.AST, value: float) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, (bool, str)) and node.value == value


# ---------------------------------------------------------------- rebuilding


class Substitute(ast.NodeTransformer):
    """Replaces names by expressions, and calls where `on_call` gives one."""

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id in self.names:
            return copy.deepcopy(self.names[node.id])
        return node


def substituted(node: ast.AST, names: Mapping[str, ast.expr]) -> ast.AST:
    """A copy of node with names replaced by expressions."""
    return Substitute(names).visit(copy.deepcopy(node))


def renamed(node: ast.AST, names: Mapping[str, str]) -> ast.AST:
    """A copy of node with names replaced by names, where they are read and where they are assigned."""
    fresh = copy.deepcopy(node)
    for n in ast.walk(fresh):
        if isinstance(n, ast.Name) and n.id in names:
            n.id = names[n.id]
    return fresh


def rebuilt(node: ast.FunctionDef, body: list[ast.stmt], params: Iterable[str] = (), drop: Iterable[str] = ()) -> str:
    """The function's text with another body; params are appended (`NAME: tl.constexpr`), drop are removed."""
    fresh = copy.deepcopy(node)
    gone = set(drop)
    kept = [a for a in fresh.args.args if a.arg not in gone]
    first_default = len(fresh.args.args) - len(fresh.args.defaults)
    defaulted = zip(fresh.args.args[first_default:], fresh.args.defaults, strict=True)
    defaults = [d for a, d in defaulted if a.arg not in gone]
    fresh.args.args, fresh.args.defaults = kept, defaults
    fresh.body = body or [ast.Pass()]
    text = ast.unparse(ast.fix_missing_locations(fresh)) + "\n"
    return with_params(text, params)


def with_params(text: str, params: Iterable[str]) -> str:
    """The function's text with parameters appended; a parameter goes before those that have defaults."""
    patch = Patch(text)
    for param in params:
        patch.param(param)
    return patch.text()


# ---------------------------------------------------------------- patches


class Patch:
    """Replacements collected by position of `ast` nodes, applied once with LibCST."""

    def __init__(self, text: str) -> None:
        self.source = normal(text)
        self.node = function_of(self.source)
        self._expressions: dict[Span, str] = {}
        self._before: dict[int, list[str]] = {}
        self._after: dict[int, list[str]] = {}
        self._instead: dict[int, str] = {}
        self._params: list[str] = []
        self._iters: dict[int, str] = {}

    def expr(self, node: ast.expr, text: str) -> None:
        """Replaces an expression; the text carries its own parentheses where it needs them."""
        self._expressions[_span(node)] = text

    def stmt(self, node: ast.stmt, text: str) -> None:
        """Replaces a whole statement by statements (an empty text removes it)."""
        self._instead[node.lineno] = text

    def before(self, node: ast.stmt, text: str) -> None:
        self._before.setdefault(node.lineno, []).append(text)

    def after(self, node: ast.stmt, text: str) -> None:
        self._after.setdefault(node.lineno, []).append(text)

    def param(self, text: str) -> None:
        """Appends a parameter, `NAME` or `NAME: tl.constexpr`."""
        self._params.append(text)

    def text(self) -> str:
        return _with_positions(self.source).visit(_Apply(self)).code


@lru_cache(maxsize=64)
def _with_positions(source: str) -> MetadataWrapper:
    """The module with the place of every node, which costs more than a patch: many edits patch one parent."""
    return MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)


def normal(text: str) -> str:
    """The text as it is, or written anew where a line holds several statements."""
    tree = parsed(text)
    starts = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.stmt)]
    return text if len(starts) == len(set(starts)) and text.isascii() else ast.unparse(tree) + "\n"


def _span(node: ast.expr) -> Span:
    return (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


class _Apply(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, patch: Patch) -> None:
        super().__init__()
        self.patch = patch

    def _at(self, node: cst.CSTNode) -> Span:
        where = self.get_metadata(PositionProvider, node)
        return (where.start.line, where.start.column, where.end.line, where.end.column)

    def on_leave(self, original_node, updated_node):  # noqa: ANN001, ANN201 (LibCST's own signature)
        updated = super().on_leave(original_node, updated_node)
        if isinstance(original_node, (cst.SimpleStatementLine, cst.For, cst.If, cst.While)):
            return self._statement(original_node, updated)
        if isinstance(original_node, cst.BaseExpression) and self.patch._expressions:
            text = self.patch._expressions.get(self._at(original_node))
            if text is not None:
                fresh = cst.parse_expression(text)
                if original_node.lpar and not getattr(fresh, "lpar", ()):
                    fresh = fresh.with_changes(lpar=original_node.lpar, rpar=original_node.rpar)
                return fresh
        return updated

    def _statement(self, original, updated):  # noqa: ANN001, ANN202
        line = self._at(original)[0]
        patch = self.patch
        if line not in patch._before and line not in patch._after and line not in patch._instead:
            return updated
        before = [s for text in patch._before.get(line, []) for s in cst.parse_module(text).body]
        after = [s for text in patch._after.get(line, []) for s in cst.parse_module(text).body]
        middle = [updated]
        if line in patch._instead:
            middle = list(cst.parse_module(patch._instead[line]).body)
        new = [*before, *middle, *after]
        if new and new[0] is not updated and original.leading_lines:
            if middle and middle[0] is updated:
                new[new.index(updated)] = updated.with_changes(leading_lines=())
            new[0] = new[0].with_changes(leading_lines=original.leading_lines)
        return cst.FlattenSentinel(new) if new else cst.RemoveFromParent()

    def leave_FunctionDef(self, original_node, updated_node):  # noqa: ANN001, ANN201
        if not self.patch._params:
            return updated_node
        head = cst.parse_module("def f(" + ", ".join(self.patch._params) + "):\n    pass\n").body[0]
        old = list(updated_node.params.params)
        place = next((i for i, p in enumerate(old) if p.default is not None), len(old))
        new = [p.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))) for p in head.params.params]
        if place == len(old) and old:
            had_comma = isinstance(old[-1].comma, cst.Comma)
            if had_comma:
                old[-1] = old[-1].with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
                new[-1] = new[-1].with_changes(comma=updated_node.params.params[-1].comma)
            else:
                old[-1] = old[-1].with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
                new[-1] = new[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        params = [*old[:place], *new, *old[place:]]
        return updated_node.with_changes(params=updated_node.params.with_changes(params=params))
