"""The kinds of a kernel's names at every statement, read from its text and from what its launches pass.

Follows the statements in order. A name that a loop's body or one branch binds first is not in scope after it; a name
whose kind is not known, or differs between two ways, is in scope for nobody.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from kernelsearch.core.types import TaskFacts
from kernelsearch.kernel.launch import TRITON_DTYPES
from kernelsearch.kernel.source import Function, Kernel
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.shapes import ELEMENTWISE, REDUCTIONS, axis_of, extent, static_shape
from kernelsearch.propose.grammar.kinds import BOOL, FLOAT, INT, Kind, broadcast, joined, promoted, world_dtype
from kernelsearch.propose.grammar.launches import parameter_kinds

Scope = Mapping[str, Kind]

_DTYPES = {**TRITON_DTYPES, "int1": BOOL}
_MATH = frozenset("exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt erf sigmoid floor ceil".split())
_WIDENING = frozenset({"maximum", "minimum", "max", "min"})
"""Functions that give float32 for bfloat16."""


@dataclass(frozen=True, eq=False)
class Place:
    """A statement of a function: its lines in the function's text (from 1), its indentation, and what it sees.

    end is the last line of the statement, or of its header when it has a body. scope is what is known before it, after
    what is known behind it (inside the body for a header). block identifies the list of statements it stands in, as the
    path of headers' lines; last says that it is the last there.
    """

    function: str
    line: int
    end: int
    indent: int
    node: ast.stmt
    scope: Scope
    after: Scope
    block: tuple[int, ...]
    last: bool


def places(kernel: Kernel, function: Function, node: ast.FunctionDef, task: TaskFacts) -> list[Place]:
    """Every statement of one function of a kernel, in source order."""
    reader = Reader(parameter_kinds(kernel, function, task))
    reader.block(tree.docless(node.body), function.name, (node.lineno,))
    return sorted(reader.places.values(), key=lambda p: p.line)


class Reader:
    """Kinds of expressions under a scope; `block` walks statements and records their places."""

    def __init__(self, scope: Scope) -> None:
        self.scope: dict[str, Kind | None] = dict(scope)
        self.places: dict[int, Place] = {}

    # ------------------------------------------------------------ statements

    def block(self, body: list[ast.stmt], function: str, path: tuple[int, ...]) -> None:
        for statement in body:
            before = self._known()
            self._statement(statement, function, path)
            inner = getattr(statement, "body", None)
            end = inner[0].lineno - 1 if inner else statement.end_lineno or statement.lineno
            if inner:
                end = max(statement.lineno, _header_end(statement))
            self.places[statement.lineno] = Place(
                function,
                statement.lineno,
                end,
                statement.col_offset,
                statement,
                before,
                self._known(),
                path,
                statement is body[-1],
            )

    def _known(self) -> dict[str, Kind]:
        return {name: kind for name, kind in self.scope.items() if kind is not None}

    def _statement(self, statement: ast.stmt, function: str, path: tuple[int, ...]) -> None:
        at = (*path, statement.lineno)
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                swizzled = tree.is_tl(value, "swizzle2d")
                parts = [self.kind(e) for e in value.elts] if isinstance(value, ast.Tuple) else [None] * len(targets)
                for target, kind in zip(targets, parts, strict=False):
                    if isinstance(target, ast.Name):
                        self.scope[target.id] = Kind(INT) if swizzled else kind
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if (pair := tree.assignment(statement)) is not None:
                self.scope[pair[0]] = self.kind(pair[1])
            case ast.For(target=ast.Name(id=name), iter=iterator, body=body):
                ends = [self.kind(e) for e in tree.range_of(statement) or ()]
                kind = Kind(INT) if ends and all(e is not None and e.is_int for e in ends) else None
                if any(e is not None and "i64" in e.dtype for e in ends):
                    kind = Kind("i64")
                if tree.called(iterator) == "tl.static_range":
                    kind = Kind(INT, const=True)
                self._loop(body, function, at, {name: kind})
            case ast.While(body=body):
                self._loop(body, function, at, {})
            case ast.If(body=body, orelse=orelse):
                self._branches(body, orelse, function, at)
            case _:
                for name in tree.writes(statement):
                    self.scope[name] = None

    def _loop(self, body: list[ast.stmt], function: str, at: tuple[int, ...], bound: Mapping[str, Kind | None]) -> None:
        before = dict(self.scope)
        for _ in range(2):
            entering = {name: joined(kind, self.scope.get(name)) for name, kind in before.items()}
            self.scope = {**entering, **bound}
            self.block(body, function, at)
        self.scope = {name: joined(kind, self.scope.get(name)) for name, kind in before.items()}

    def _branches(self, body: list[ast.stmt], orelse: list[ast.stmt], function: str, at: tuple[int, ...]) -> None:
        before = dict(self.scope)
        self.block(body, function, at)
        first, self.scope = self.scope, dict(before)
        self.block(orelse, function, (*at, -1))
        self.scope = {name: joined(kind, self.scope[name]) for name, kind in first.items() if name in self.scope}

    # ------------------------------------------------------------ expressions

    def kind(self, node: ast.expr) -> Kind | None:
        """The kind of an expression under the scope as it is now; None when it is not known."""
        match node:
            case ast.Constant(value=bool()):
                return Kind(BOOL, const=True)
            case ast.Constant(value=int()):
                return Kind(INT, const=True)
            case ast.Constant(value=float()):
                return Kind(FLOAT, const=True)
            case ast.Name(id=name):
                return self.scope.get(name)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(self.kind(left), op, self.kind(right))
            case ast.UnaryOp(op=op, operand=operand):
                kind = self.kind(operand)
                return Kind(BOOL, kind.shape, const=kind.const) if isinstance(op, ast.Not) and kind else kind
            case ast.Compare(left=left, comparators=[right]):
                return self._compared(self.kind(left), self.kind(right))
            case ast.BoolOp(values=values):
                kinds = [self.kind(v) for v in values]
                if any(k is None for k in kinds):
                    return None
                return Kind(BOOL, kinds[0].shape, const=all(k.const for k in kinds))  # type: ignore[union-attr]
            case ast.Subscript(value=value, slice=index):
                return _indexed(self.kind(value), index)
            case ast.Attribute(value=value, attr="T"):
                kind = self.kind(value)
                return kind.shaped(kind.shape[::-1]) if kind else None
            case ast.Call():
                return self._call(node)
        return None

    def _binary(self, a: Kind | None, op: ast.operator, b: Kind | None) -> Kind | None:
        if a is None or b is None:
            return None
        return promoted(a, b, divided=isinstance(op, ast.Div))

    @staticmethod
    def _compared(a: Kind | None, b: Kind | None) -> Kind | None:
        shape = broadcast(a.shape, b.shape) if a and b else None
        return None if shape is None else Kind(BOOL, shape, const=a.const and b.const)  # type: ignore[union-attr]

    def _call(self, node: ast.Call) -> Kind | None:
        head, _, tail = tree.called(node).rpartition(".")
        if head in ("tl", "tl.math", "triton"):
            return self._tl(node, tail)
        if head == "libdevice":
            kind = self.kind(node.args[0]) if node.args else None
            return kind if kind and kind.is_float else None
        if tree.called(node) == "float":
            return Kind(FLOAT, const=True)
        if not isinstance(node.func, ast.Attribute):
            return None
        receiver, method = self.kind(node.func.value), node.func.attr
        if receiver is None:
            return None
        if method in ("to", "cast"):
            return self._cast(receiver, tree.argument(node, 0, "dtype"))
        if method in REDUCTIONS:
            return _reduced(receiver, method, tree.argument(node, 0, "axis"), node)
        return receiver if method in ELEMENTWISE else None

    def _cast(self, kind: Kind, dtype: ast.expr | None) -> Kind | None:
        name = self.dtype(dtype) if dtype is not None else None
        return Kind(name, kind.shape) if name and not kind.pointer else None

    def dtype(self, node: ast.expr) -> str | None:
        """What a dtype expression says: `tl.float32`, `x_ptr.dtype.element_ty` or `x.dtype`."""
        match node:
            case ast.Attribute(value=ast.Name(id="tl"), attr=name):
                return _DTYPES.get(name)
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id=name), attr="dtype"), attr="element_ty"):
                kind = self.scope.get(name)
                return kind.dtype if kind and kind.pointer else None
            case ast.Attribute(value=ast.Name(id=name), attr="dtype"):
                kind = self.scope.get(name)
                return kind.dtype if kind and not kind.pointer else None
        return None

    def _tl(self, node: ast.Call, tail: str) -> Kind | None:
        first = self.kind(node.args[0]) if node.args else None
        if tail in ("program_id", "num_programs"):
            return Kind(INT)
        if tail in ("cdiv", "next_power_of_2"):
            kinds = [self.kind(a) for a in node.args]
            return Kind(INT, const=all(k.const for k in kinds)) if all(k and k.dtype == INT for k in kinds) else None
        if tail == "arange" and len(node.args) == 2:
            return Kind(INT, (extent(node.args[0], node.args[1]),))
        if tail in ("zeros", "full"):
            shape, dtype = tree.argument(node, 0, "shape"), tree.argument(node, 1 if tail == "zeros" else 2, "dtype")
            dims, name = static_shape(shape) if shape else None, self.dtype(dtype) if dtype is not None else None
            return Kind(name, dims) if dims is not None and name else None
        if tail == "load" and first is not None:
            return Kind(first.dtype, first.shape) if first.pointer else None
        if tail in REDUCTIONS and first is not None:
            return _reduced(first, tail, tree.argument(node, 1, "axis"), node)
        if tail == "dot" and len(node.args) >= 2:
            a, b = first, self.kind(node.args[1])
            known = a and b and len(a.shape) == len(b.shape) == 2 and a.is_float and b.is_float
            return Kind(FLOAT, (a.shape[0], b.shape[1])) if known else None  # type: ignore[union-attr]
        if tail == "trans" and len(node.args) == 1 and first is not None:
            return first.shaped(first.shape[::-1])
        if tail == "where" and len(node.args) == 3:
            return self._where(*(self.kind(a) for a in node.args))
        if tail in ("broadcast_to", "reshape", "view") and first is not None and len(node.args) == 2:
            dims = static_shape(node.args[1])
            return first.shaped(dims) if dims is not None else None
        return self._elementwise(node, tail)

    @staticmethod
    def _where(condition: Kind | None, x: Kind | None, y: Kind | None) -> Kind | None:
        value = promoted(x, y) if x and y else None
        shape = broadcast(condition.shape, value.shape) if condition and value else None
        return None if shape is None else Kind(value.dtype, shape)  # type: ignore[union-attr]

    def _elementwise(self, node: ast.Call, tail: str) -> Kind | None:
        kinds = [self.kind(a) for a in node.args if not isinstance(a, (ast.List, ast.Tuple))]
        if tail not in ELEMENTWISE or not kinds or any(k is None for k in kinds):
            return None
        if tail in ("multiple_of", "max_contiguous", "max_constancy", "zeros_like", "abs", *_MATH):
            return kinds[0]
        value = kinds[0]
        for other in kinds[1:]:
            value = promoted(value, other) if value else None  # type: ignore[arg-type]
        if value is None:
            return None
        return _widened(value) if tail in _WIDENING else Kind(value.dtype, value.shape)


def _widened(kind: Kind) -> Kind:
    return Kind(world_dtype(FLOAT if d == "bf16" else d for d in kind.dtype.split("/")), kind.shape)


def _reduced(kind: Kind, name: str, axis: ast.expr | None, node: ast.Call) -> Kind | None:
    if tree.argument(node, None, "keep_dims") is not None or tree.argument(node, None, "return_indices") is not None:
        return None
    if name in ("argmax", "argmin"):
        kind = Kind(INT, kind.shape)
    elif name in ("max", "min"):
        kind = _widened(kind)
    elif name == "sum" and kind.is_bool:
        kind = Kind(INT, kind.shape)
    if axis is None or (isinstance(axis, ast.Constant) and axis.value is None):
        return Kind(kind.dtype)
    at = axis_of(axis, len(kind.shape))
    return None if at is None else Kind(kind.dtype, tuple(d for i, d in enumerate(kind.shape) if i != at))


def _indexed(kind: Kind | None, index: ast.expr) -> Kind | None:
    if kind is None:
        return None
    dims, out = list(kind.shape), []
    for part in index.elts if isinstance(index, ast.Tuple) else [index]:
        if isinstance(part, ast.Constant) and part.value is None:
            out.append("1")
        elif isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None and dims:
            out.append(dims.pop(0))
        else:
            return None
    return kind.shaped((*out, *dims))


def _header_end(statement: ast.stmt) -> int:
    """The last line of a compound statement's header."""
    match statement:
        case ast.For(iter=last) | ast.While(test=last) | ast.If(test=last):
            return last.end_lineno or statement.lineno
    return statement.lineno
