"""Infers the shape of every expression of a jit function from its text, by Triton's own rules.

A shape is the text of the constexprs that a kernel gives (`("BLOCK_M", "1")`), `()` for a scalar, None where it is not
known.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernelsearch.propose.analysis import tree

Shape = tuple[str, ...]
Scope = Mapping[str, Shape | None]

REDUCTIONS = frozenset("sum max min argmax argmin xor_sum reduce_or reduce".split())
ELEMENTWISE = frozenset(
    "multiple_of max_contiguous max_constancy zeros_like abs exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt erf sigmoid "
    "floor ceil add sub mul maximum minimum clamp fdiv div_rn fma umulhi cumsum cumprod sort flip associative_scan "
    "tanh pow where".split()
)
"""Functions whose result has the shape that their arguments have together."""
ACROSS = frozenset("cumsum cumprod sort flip associative_scan".split())
OF_PARTS = (ELEMENTWISE - ACROSS) | frozenset("load store arange cast atomic_add program_id num_programs cdiv".split())
"""Functions of `tl` that do the same for part of a tile as for the whole."""
ANY_SHAPE = frozenset(
    "load store where sum max min exp exp2 log log2 sqrt rsqrt sqrt_rn sin cos abs erf sigmoid floor ceil maximum "
    "minimum fma fdiv div_rn arange program_id num_programs cdiv range static_range cast clamp zeros full assume "
    "multiple_of max_contiguous".split()
)
"""Functions of `tl` that treat the elements of a block alike, or reduce them: they work on blocks of any shape."""
_OF_FIRST = frozenset("load atomic_add atomic_max atomic_min cast".split())
_SCALARS = frozenset("program_id num_programs cdiv next_power_of_2 constexpr".split())
_META = frozenset("dtype element_ty type shape scalar numel value".split())


class Shapes:
    """The shapes of one function: `of(node)` of each expression, `names` behind the last statement.

    A loop's body is read twice, the second time with what its first pass makes of the names.
    """

    def __init__(self, function: ast.FunctionDef, constexprs: tuple[str, ...], blocks: Mapping[str, str] = {}) -> None:
        arguments = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
        self.names: dict[str, Shape | None] = dict.fromkeys([*arguments, *constexprs], ())
        self._by_node: dict[int, Shape | None] = {}
        # what a tensor descriptor's load gives, by the descriptor's name; blocks are those of the launch's
        self._tiles: dict[str, Shape | None] = {n: _static_shape(tree.expression(b)) for n, b in blocks.items()}
        self._read(function.body)

    def of(self, node: ast.AST) -> Shape | None:
        return self._by_node.get(id(node))

    # ------------------------------------------------------------ statements

    def _read(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._read_statement(statement)

    def _read_statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                self._assign_each(targets, value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.names[name] = self._shape(value)
                if tree.is_tl(value, "make_tensor_descriptor"):
                    self._tiles[name] = _static_shape(tree.argument(value, 3, "block_shape"))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self.names[name] = self._shape(value)
            case ast.AugAssign(target=ast.Name(id=name) as target, value=value):
                self.names[name] = broadcast_shapes(self._shape(target), self._shape(value))
                self._by_node[id(target)] = self.names[name]
            case ast.For(target=ast.Name(id=name), iter=iterator, body=body):
                self._shape(iterator)
                self._loop(body, {name: ()})
            case ast.While(test=test, body=body):
                self._loop(body, {})
                self._shape(test)
            case ast.If(test=test, body=body, orelse=orelse):
                self._shape(test)
                before = dict(self.names)
                self._read(body)
                first, self.names = self.names, before
                self._read(orelse)
                self.names = _join_scopes(first, self.names)
            case _:
                for child in ast.iter_child_nodes(statement):
                    if isinstance(child, ast.expr):
                        self._shape(child)
                self.names |= dict.fromkeys(tree.writes(statement))

    def _assign_each(self, targets: list[ast.expr], value: ast.expr) -> None:
        self._shape(value)
        shapes: list[Shape | None] = [() if tree.is_tl(value, "swizzle2d") else None] * len(targets)
        if isinstance(value, ast.Tuple) and len(value.elts) == len(targets):
            shapes = [self.of(e) for e in value.elts]
        for target, shape in zip(targets, shapes, strict=True):
            if isinstance(target, ast.Name):
                self.names[target.id] = shape

    def _loop(self, body: list[ast.stmt], variable: Scope) -> None:
        before = dict(self.names)
        for _ in range(2):
            self.names = {**_join_scopes(before, self.names), **variable}
            self._read(body)
        self.names = _join_scopes(before, self.names)

    # ------------------------------------------------------------ expressions

    def _shape(self, node: ast.expr) -> Shape | None:
        """The shape of an expression under the names as they are now."""
        found = self._by_node[id(node)] = self._infer(node)
        return found

    def _infer(self, node: ast.expr) -> Shape | None:
        match node:
            case ast.Constant():
                return ()
            case ast.Name(id=name):
                return self.names.get(name, ())
            case ast.BinOp(left=left, right=right):
                return self._broadcast(left, right)
            case ast.UnaryOp(operand=operand):
                return self._shape(operand)
            case ast.Compare(left=left, comparators=others):
                return self._broadcast(left, *others)
            case ast.BoolOp(values=values):
                return self._broadcast(*values)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._shape(test)
                return _join_shapes(self._shape(body), self._shape(orelse))
            case ast.Subscript(value=value, slice=index):
                return _index_shape(self._shape(value), index)
            case ast.Attribute(value=value, attr=attr):
                shape = self._shape(value)
                if attr == "T":
                    return shape and shape[::-1]
                module = isinstance(value, ast.Name) and value.id in tree.MODULES
                return () if attr in _META or module else None
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for element in elts:
                    self._shape(element)
            case ast.Call():
                return self._call(node)
        return None

    def _broadcast(self, *nodes: ast.expr) -> Shape | None:
        return broadcast_shapes(*[self._shape(n) for n in nodes])

    def _call(self, node: ast.Call) -> Shape | None:
        given = [self._shape(a) for a in node.args]
        named = [self._shape(k.value) for k in node.keywords]
        name = tree.callee(node)
        head, _, tail = name.rpartition(".")
        if head in ("tl", "tl.math", "triton"):
            return self._tl(node, tail, next(iter([*given, *named]), None))
        if head == "libdevice":
            return broadcast_shapes(*given)
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        return () if name in ("float", "int", "bool", "min", "max") and all(g == () for g in given) else None

    def _method(self, node: ast.Call, func: ast.Attribute) -> Shape | None:
        receiver = self._shape(func.value)
        if func.attr == "load" and isinstance(func.value, ast.Name) and func.value.id in self._tiles:
            return self._tiles[func.value.id]
        return receiver if func.attr == "to" else None

    def _tl(self, node: ast.Call, tail: str, first: Shape | None) -> Shape | None:
        args = node.args
        if tail in _SCALARS:
            return ()
        if tail == "arange" and len(args) == 2:
            start, end = map(tree.text_of, args)
            return (end if tree.is_number(args[0], 0) else f"{end} - {start}",)
        if tail in ("zeros", "full"):
            return _static_shape(tree.argument(node, 0, "shape"))
        if tail in ("broadcast_to", "reshape", "view") and len(args) == 2:
            return _static_shape(args[1])
        if tail in REDUCTIONS:
            return _reduce_shape(first, tree.argument(node, 1, "axis"), node)
        if tail == "dot" and len(args) >= 2:
            a, b = self.of(args[0]), self.of(args[1])
            return (a[0], b[1]) if a and b and len(a) == len(b) == 2 else None
        if tail == "trans" and len(args) == 1:
            return first and first[::-1]
        if tail in _OF_FIRST:
            return first
        values = [a for a in args if not isinstance(a, (ast.List, ast.Tuple))]
        return broadcast_shapes(*map(self.of, values)) if tail in ELEMENTWISE and values else None


def broadcast_shapes(*shapes: Shape | None) -> Shape | None:
    """Triton's broadcast: a scalar fits everything, missing axes are added in front. None: an error, or unknown."""
    if None in shapes:
        return None
    rank = max((len(s) for s in shapes), default=0)  # type: ignore[arg-type]
    padded = [("1",) * (rank - len(s)) + s for s in shapes if s]
    axes = [set(dims) - {"1"} or {"1"} for dims in zip(*padded, strict=True)]
    return tuple(axis.pop() for axis in axes) if all(len(axis) == 1 for axis in axes) else None


def axis_of(axis: ast.expr, rank: int) -> int | None:
    """A literal axis as a number from 0, None when it is not literal or out of range."""
    try:
        value = ast.literal_eval(axis)
    except (ValueError, TypeError):
        return None
    return value % rank if type(value) is int and -rank <= value < rank else None


def _static_shape(node: ast.expr | None) -> Shape | None:
    """The shape that an argument such as `[M, N]` or `BLOCK` names."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(tree.text_of(e) for e in node.elts)
    return (tree.text_of(node),) if isinstance(node, (ast.Name, ast.Constant)) else None


def _reduce_shape(shape: Shape | None, axis: ast.expr | None, node: ast.Call) -> Shape | None:
    keep = tree.argument(node, None, "keep_dims")
    if tree.argument(node, None, "return_indices") is not None or not isinstance(keep, ast.Constant | None):
        return None
    if shape is None:
        return None
    whole = axis is None or (isinstance(axis, ast.Constant) and axis.value is None)
    at = None if whole else axis_of(axis, len(shape))  # type: ignore[arg-type]
    if at is None and not whole:
        return None
    keeps = keep is not None and keep.value is True
    gone = range(len(shape)) if at is None else (at,)
    return tuple("1" if i in gone else d for i, d in enumerate(shape) if keeps or i not in gone)


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


def _join_shapes(a: Shape | None, b: Shape | None) -> Shape | None:
    """The shape of a value to which two ways lead: a scalar that becomes a block is not one value in Triton."""
    return a if a == b else None


def _join_scopes(a: Scope, b: Scope) -> dict[str, Shape | None]:
    """The shapes of names to which two ways lead; a name of one way only keeps its own."""
    return {**a, **b, **{name: _join_shapes(shape, b[name]) for name, shape in a.items() if name in b}}
