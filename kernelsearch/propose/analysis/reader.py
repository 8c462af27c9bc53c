"""Follows the statements of a jit function and infers the kind or the shape of every expression from its text.

A loop's body is read twice, the second time with what its first pass makes of the names.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import reduce

from kernelsearch.kernel.language import DTYPES
from kernelsearch.kernel.launch import TRITON_DTYPES
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.kinds import (
    BOOL,
    FLOAT,
    INT,
    SCALAR,
    UNKNOWN,
    Shape,
    ValueKind,
    broadcast_shapes,
    join_dtypes,
    join_kinds,
    promote_kinds,
)

Scope = Mapping[str, ValueKind]

REDUCTIONS = frozenset("sum max min argmax argmin xor_sum reduce_or reduce".split())
KEEPING = frozenset(
    "multiple_of max_contiguous max_constancy zeros_like abs exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt erf sigmoid "
    "floor ceil".split()
)
"""Elementwise functions whose result has the kind of their first argument."""
ELEMENTWISE = KEEPING | frozenset(
    "add sub mul maximum minimum clamp fdiv div_rn fma umulhi cumsum cumprod sort flip associative_scan tanh "
    "pow".split()
)
ACCESSES = frozenset("load atomic_add atomic_max atomic_min".split())
_DTYPES = {**TRITON_DTYPES, "int1": BOOL}
_SCALARS = frozenset("static_range range constexpr assume store static_assert".split()) | frozenset(DTYPES)
_META = frozenset("dtype element_ty type shape scalar numel value".split())


class KindReader:
    """Kinds of expressions under a scope, and of names behind statements.

    scope has every name that was assigned on some way; bound are those that every way has assigned. by_node has the
    kinds of the expressions of the statements, by the nodes' ids. other is the kind of a name that is not in scope.
    """

    def __init__(self, scope: Scope, other: ValueKind = UNKNOWN) -> None:
        self.scope: dict[str, ValueKind] = dict(scope)
        self.bound = set(scope)
        self.other = other
        self.by_node: dict[int, ValueKind] = {}
        self._tiles: dict[str, Shape | None] = {}  # what a tensor descriptor's load gives, by the descriptor's name

    # ------------------------------------------------------------ statements

    def read(self, body: list[ast.stmt], path: tuple[int, ...] = ()) -> None:
        """Reads statements in order. path has the lines of the headers that they stand under."""
        for statement in body:
            self.read_statement(statement, path)

    def read_statement(self, statement: ast.stmt, path: tuple[int, ...]) -> None:
        """Reads one statement with its body."""
        at = (*path, getattr(statement, "lineno", 0))
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                self._assign_each(targets, value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._assign(name, self.kind(value))
                if tree.is_tl(value, "make_tensor_descriptor"):
                    self._tiles[name] = static_shape_of(tree.argument(value, 3, "block_shape"))  # type: ignore[arg-type]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self._assign(name, self.kind(value))
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                self._assign(name, promote_kinds(self.kind(target), self.kind(value), isinstance(op, ast.Div)))
                self.by_node[id(target)] = self.scope[name]
            case ast.For(target=ast.Name(id=name), iter=iterator, body=body):
                self.kind(iterator)
                self._loop(body, at, {name: self._counter(statement)})
            case ast.While(test=test, body=body):
                self._loop(body, at, {})
                self.kind(test)
            case ast.If(test=test, body=body, orelse=orelse):
                self.kind(test)
                self._branches(body, orelse, at)
            case _:
                for child in ast.iter_child_nodes(statement):
                    if isinstance(child, ast.expr):
                        self.kind(child)
                for name in tree.writes(statement):
                    self._assign(name, UNKNOWN)

    def _assign(self, name: str, kind: ValueKind) -> None:
        self.scope[name] = kind
        self.bound.add(name)

    def _assign_each(self, targets: list[ast.expr], value: ast.expr) -> None:
        self.kind(value)
        kinds = [ValueKind(INT) if tree.is_tl(value, "swizzle2d") else UNKNOWN] * len(targets)
        if isinstance(value, ast.Tuple) and len(value.elts) == len(targets):
            kinds = [self.kind(e) for e in value.elts]
        for target, kind in zip(targets, kinds, strict=True):
            if isinstance(target, ast.Name):
                self._assign(target.id, kind)

    def _counter(self, loop: ast.For) -> ValueKind:
        """The kind of a loop's variable."""
        if tree.callee(loop.iter) == "tl.static_range":
            return ValueKind(INT, const=True)
        # a bound that the text leaves out is a number
        ends = [self.by_node.get(id(e), ValueKind(INT, const=True)) for e in tree.range_of(loop) or ()]
        if not ends or not all(e.is_int for e in ends):
            return SCALAR
        return ValueKind("i64" if any("i64" in e.dtypes for e in ends) else INT)

    def _loop(self, body: list[ast.stmt], at: tuple[int, ...], variable: Scope) -> None:
        before, bound = dict(self.scope), set(self.bound)
        for _ in range(2):
            self.scope, self.bound = {**_join_scopes(before, self.scope), **variable}, bound | set(variable)
            self.read(body, at)
        self.scope, self.bound = _join_scopes(before, self.scope), bound

    def _branches(self, body: list[ast.stmt], orelse: list[ast.stmt], at: tuple[int, ...]) -> None:
        before, bound = dict(self.scope), set(self.bound)
        self.read(body, at)
        first, bound_first = self.scope, self.bound
        self.scope, self.bound = before, bound
        self.read(orelse, (*at, -1))
        self.scope, self.bound = _join_scopes(first, self.scope), bound_first & self.bound

    # ------------------------------------------------------------ expressions

    def kind(self, node: ast.expr) -> ValueKind:
        """The kind of an expression under the scope as it is now."""
        found = self.by_node[id(node)] = self._infer(node)
        return found

    def known_kind(self, node: ast.expr | None) -> ValueKind | None:
        """The kind of an expression whose dtype and shape are both known, else None."""
        kind = self.kind(node) if node is not None else UNKNOWN
        return kind if kind.is_known else None

    def _infer(self, node: ast.expr) -> ValueKind:
        match node:
            case ast.Constant(value=value):
                dtype = {bool: BOOL, int: INT, float: FLOAT}.get(type(value))
                return ValueKind(dtype, const=True)
            case ast.Name(id=name):
                return self.scope.get(name, self.other)
            case ast.BinOp(left=left, op=op, right=right):
                return promote_kinds(self.kind(left), self.kind(right), isinstance(op, ast.Div))
            case ast.UnaryOp(op=op, operand=operand):
                kind = self.kind(operand)
                return ValueKind(BOOL, kind.shape, const=kind.const) if isinstance(op, ast.Not) else kind
            case ast.Compare(left=left, comparators=others):
                return self._truth([left, *others])
            case ast.BoolOp(values=values):
                return self._truth(values)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.kind(test)
                return join_kinds(self.kind(body), self.kind(orelse))
            case ast.Subscript(value=value, slice=index):
                kind = self.kind(value)
                return kind.with_shape(_index_shape(kind.shape, index))
            case ast.Attribute(value=value, attr=attr):
                kind = self.kind(value)
                if attr == "T":
                    return kind.with_shape(kind.shape and kind.shape[::-1])
                module = isinstance(value, ast.Name) and value.id in tree.MODULES
                return SCALAR if attr in _META or module else UNKNOWN
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for element in elts:
                    self.kind(element)
            case ast.Call():
                return self._call(node)
        return UNKNOWN

    def _truth(self, values: list[ast.expr]) -> ValueKind:
        kinds = [self.kind(v) for v in values]
        return ValueKind(BOOL, broadcast_shapes(*(k.shape for k in kinds)), const=all(k.const for k in kinds))

    def _call(self, node: ast.Call) -> ValueKind:
        given = [self.kind(a) for a in node.args]
        named = [self.kind(k.value) for k in node.keywords]
        name = tree.callee(node)
        head, _, tail = name.rpartition(".")
        if head in ("tl", "tl.math", "triton"):
            return self._tl(node, tail, given, named)
        if head == "libdevice":
            dtype = given[0].dtype if given and given[0].is_float else None
            return ValueKind(dtype, broadcast_shapes(*(k.shape for k in given)))
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        plain = name in ("float", "int", "bool", "min", "max") and all(g.shape == () for g in given)
        return ValueKind(FLOAT if name == "float" else None, const=name == "float") if plain else UNKNOWN

    def _method(self, node: ast.Call, func: ast.Attribute) -> ValueKind:
        receiver = self.kind(func.value)
        if func.attr == "load" and isinstance(func.value, ast.Name) and func.value.id in self._tiles:
            return ValueKind(None, self._tiles[func.value.id])
        if func.attr in ("to", "cast"):
            return self._cast(receiver, tree.argument(node, 0, "dtype"))
        if func.attr in REDUCTIONS:
            return _reduce_kind(receiver, func.attr, tree.argument(node, 0, "axis"), node)
        return receiver if func.attr in ELEMENTWISE or func.attr == "where" else UNKNOWN

    def _tl(self, node: ast.Call, tail: str, given: list[ValueKind], named: list[ValueKind]) -> ValueKind:
        first = next(iter([*given, *named]), UNKNOWN)
        if tail in ("program_id", "num_programs"):
            return ValueKind(INT)
        if tail in ("cdiv", "next_power_of_2"):
            integers = all(k.dtype == INT for k in given)
            return ValueKind(INT if integers else None, const=integers and all(k.const for k in given))
        if tail == "arange" and len(node.args) == 2:
            return ValueKind(INT, (extent_of(node.args[0], node.args[1]),))
        if tail in ("zeros", "full"):
            dtype = tree.argument(node, 1 if tail == "zeros" else 2, "dtype")
            return ValueKind(self._dtype(dtype), static_shape_of(tree.argument(node, 0, "shape")))
        if tail in ("broadcast_to", "reshape", "view") and len(node.args) == 2:
            return first.with_shape(static_shape_of(node.args[1]))
        if tail in REDUCTIONS:
            return _reduce_kind(first, tail, tree.argument(node, 1, "axis"), node)
        if tail in ACCESSES:
            return ValueKind(first.dtype if first.pointer else None, first.shape)
        if tail == "dot" and len(given) >= 2:
            return _dot(*given[:2])
        if tail == "trans" and len(given) == 1:
            return first.with_shape(first.shape and first.shape[::-1])
        if tail == "where" and len(given) == 3:
            value = promote_kinds(*given[1:])
            return ValueKind(value.dtype, broadcast_shapes(given[0].shape, value.shape))
        if tail == "cast":
            return self._cast(first, tree.argument(node, 1, "dtype"))
        if tail in _SCALARS:
            return SCALAR
        return self._elementwise(node, tail) if tail in ELEMENTWISE and given else UNKNOWN

    def _elementwise(self, node: ast.Call, tail: str) -> ValueKind:
        kinds = [self.kind(a) for a in node.args if not isinstance(a, (ast.List, ast.Tuple))]
        if tail in KEEPING or not kinds:
            return kinds[0] if kinds else UNKNOWN
        value = reduce(promote_kinds, kinds)
        return _widen(value) if tail in ("maximum", "minimum") else ValueKind(value.dtype, value.shape)

    def _cast(self, kind: ValueKind, dtype: ast.expr | None) -> ValueKind:
        return ValueKind(None if kind.pointer else self._dtype(dtype), kind.shape)

    def _dtype(self, node: ast.expr | None) -> str | None:
        """The dtype that an expression names: `tl.float32`, `x_ptr.dtype.element_ty` or `x.dtype`."""
        match node:
            case ast.Attribute(value=ast.Name(id="tl"), attr=name):
                return _DTYPES.get(name)
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id=name), attr="dtype"), attr="element_ty"):
                kind = self.scope.get(name, UNKNOWN)
                return kind.dtype if kind.pointer else None
            case ast.Attribute(value=ast.Name(id=name), attr="dtype"):
                kind = self.scope.get(name, UNKNOWN)
                return None if kind.pointer else kind.dtype
        return None


class Shapes:
    """The shapes of one function: `of(node)` of each expression, `names` behind the last statement; None is unknown."""

    def __init__(self, function: ast.FunctionDef, constexprs: tuple[str, ...]) -> None:
        arguments = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
        self._reader = KindReader(dict.fromkeys([*arguments, *constexprs], SCALAR), other=SCALAR)
        self._reader.read(function.body)
        self.names: dict[str, Shape | None] = {name: kind.shape for name, kind in self._reader.scope.items()}

    def of(self, node: ast.AST) -> Shape | None:
        return self._reader.by_node.get(id(node), UNKNOWN).shape


def extent_of(start: ast.expr, end: ast.expr) -> str:
    """The number of elements of `tl.arange(start, end)`, as text."""
    return tree.text_of(end) if tree.is_number(start, 0) else f"{tree.text_of(end)} - {tree.text_of(start)}"


def static_shape_of(node: ast.expr | None) -> Shape | None:
    """The shape that an argument such as `[M, N]` or `BLOCK` names."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(tree.text_of(e) for e in node.elts)
    return (tree.text_of(node),) if isinstance(node, (ast.Name, ast.Constant)) else None


def axis_of(axis: ast.expr, rank: int) -> int | None:
    """A literal axis as a number from 0, None when it is not literal or out of range."""
    try:
        value = ast.literal_eval(axis)
    except (ValueError, TypeError):
        return None
    return value % rank if type(value) is int and -rank <= value < rank else None


def _dot(a: ValueKind, b: ValueKind) -> ValueKind:
    known = a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape) == 2
    return ValueKind(FLOAT if a.is_float and b.is_float else None, (a.shape[0], b.shape[1]) if known else None)


def _widen(kind: ValueKind) -> ValueKind:
    """The kind of a maximum or minimum, which Triton computes in float32 for bfloat16."""
    return ValueKind(kind.dtype and join_dtypes(FLOAT if d == "bf16" else d for d in kind.dtypes), kind.shape)


def _reduce_kind(kind: ValueKind, name: str, axis: ast.expr | None, node: ast.Call) -> ValueKind:
    keep = tree.argument(node, None, "keep_dims")
    if tree.argument(node, None, "return_indices") is not None or not isinstance(keep, ast.Constant | None):
        return UNKNOWN
    keeps = keep is not None and keep.value is True
    if name in ("argmax", "argmin") or (name == "sum" and kind.is_bool):
        kind = ValueKind(INT, kind.shape)
    elif name in ("max", "min"):
        kind = _widen(kind)
    if kind.shape is None:
        return UNKNOWN
    whole = axis is None or (isinstance(axis, ast.Constant) and axis.value is None)
    at = None if whole else axis_of(axis, len(kind.shape))  # type: ignore[arg-type]
    if at is None and not whole:
        return UNKNOWN
    gone = range(len(kind.shape)) if at is None else (at,)
    shape = tuple("1" if i in gone else d for i, d in enumerate(kind.shape) if keeps or i not in gone)
    return ValueKind(kind.dtype, shape)


def _index_shape(shape: Shape | None, index: ast.expr) -> Shape | None:
    if shape is None:
        return None
    dims, out = list(shape), []
    for part in index.elts if isinstance(index, ast.Tuple) else [index]:
        if isinstance(part, ast.Constant) and part.value is None:
            out.append("1")
        elif isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None and dims:
            out.append(dims.pop(0))
        else:
            return None
    return (*out, *dims)


def _join_scopes(a: Scope, b: Scope) -> dict[str, ValueKind]:
    """The kinds of names to which two ways lead; a name of one way only keeps its own."""
    return {**a, **b, **{name: join_kinds(kind, b[name]) for name, kind in a.items() if name in b}}
