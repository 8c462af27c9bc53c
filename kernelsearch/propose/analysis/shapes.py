"""Shapes of the values of a jit function, scalars or blocks, as far as its text shows them.

A shape is a tuple of dimensions as text (`("BLOCK_M", "BLOCK_N")`, `()` for a scalar); None means that the text
does not show it. Inference follows the statements in order and joins the branches that lead to a statement.
"""

from __future__ import annotations

import ast

from kernelsearch.kernel.language import DTYPES
from kernelsearch.propose.analysis import tree

Shape = tuple[str, ...] | None

REDUCTIONS = frozenset({"sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce_or", "reduce"})
SCALARS = frozenset({"program_id", "num_programs", "cdiv", "static_range", "range"})
ELEMENTWISE = frozenset(
    "where add sub mul maximum minimum clamp abs ceil floor exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt erf sigmoid "
    "fdiv div_rn fma umulhi multiple_of max_contiguous max_constancy cumsum cumprod sort flip associative_scan "
    "zeros_like cast tanh pow".split()
)
META = frozenset({"dtype", "element_ty", "type", "shape", "scalar", "numel", "value"})


class Shapes:
    """The shapes of one function: `of(node)` for every expression, `names` for names after the last statement."""

    def __init__(self, function: ast.FunctionDef, constexprs: tuple[str, ...]) -> None:
        self.constexprs = frozenset(constexprs)
        self.by_node: dict[int, Shape] = {}
        self.tiles: dict[str, Shape] = {}  # of the loads of tensor descriptors, by descriptor
        self.names: dict[str, Shape] = {a.arg: () for a in [*function.args.args, *function.args.kwonlyargs]}
        self._block(function.body)

    def of(self, node: ast.AST) -> Shape:
        return self.by_node.get(id(node))

    def _block(self, body: list[ast.stmt]) -> None:
        for stmt in body:
            self._statement(stmt)

    def _statement(self, stmt: ast.stmt) -> None:
        match stmt:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.names[name] = self._expr(value)
                if tree.is_tl(value, "make_tensor_descriptor"):
                    self.tiles[name] = static_shape(tree.argument(value, 3, "block_shape"))  # type: ignore[arg-type]
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                self._tuple(targets, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                self.names[name] = self._expr(value)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                self.names[name] = broadcast([self.names.get(name), self._expr(value)])
                self.by_node[id(stmt.target)] = self.names[name]
            case ast.For(target=ast.Name(id=name), iter=iterator, body=body):
                self._expr(iterator)
                self.names[name] = ()
                self._joined(body, [])
            case ast.While(test=test, body=body):
                self._joined(body, [])
                self._expr(test)
            case ast.If(test=test, body=body, orelse=orelse):
                self._expr(test)
                self._joined(body, orelse, twice=False)
            case _:
                for child in ast.iter_child_nodes(stmt):
                    if isinstance(child, ast.expr):
                        self._expr(child)
                for name in tree.writes(stmt):
                    self.names[name] = None

    def _tuple(self, targets: list[ast.expr], value: ast.expr) -> None:
        self._expr(value)
        parts: list[Shape] = [() if tree.is_tl(value, "swizzle2d") else None] * len(targets)
        if isinstance(value, ast.Tuple) and len(value.elts) == len(targets):
            parts = [self.of(e) for e in value.elts]
        self.names.update((t.id, part) for t, part in zip(targets, parts, strict=True) if isinstance(t, ast.Name))

    def _joined(self, body: list[ast.stmt], orelse: list[ast.stmt], twice: bool = True) -> None:
        before = dict(self.names)
        for _ in range(2 if twice else 1):
            self._block(body)
            self.names = _join(before, self.names)
        if orelse:
            first, self.names = self.names, before
            self._block(orelse)
            self.names = _join(first, self.names)

    def _expr(self, node: ast.expr) -> Shape:
        shape = self._infer(node)
        self.by_node[id(node)] = shape
        return shape

    def _infer(self, node: ast.expr) -> Shape:
        match node:
            case ast.Constant():
                return ()
            case ast.Name(id=name):
                return self.names.get(name, ())
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.BoolOp():
                return broadcast([self._expr(n) for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._expr(test)
                a, b = self._expr(body), self._expr(orelse)
                return a if a == b else None
            case ast.Subscript(value=value, slice=index):
                return _indexed(self._expr(value), index)
            case ast.Attribute(value=value, attr=attr):
                base = self._expr(value)
                if attr == "T":
                    return None if base is None else base[::-1]
                return () if attr in META or isinstance(value, ast.Name) and value.id in tree.MODULES else None
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for e in elts:
                    self._expr(e)
            case ast.Call():
                return self._call(node)
        return None

    def _call(self, node: ast.Call) -> Shape:
        given = [self._expr(a) for a in node.args]
        named = [self._expr(k.value) for k in node.keywords]
        name = tree.called(node)
        head, _, tail = name.rpartition(".")
        if head in ("tl", "tl.math", "libdevice", "triton"):
            return _tl(node, tail, given, next(iter([*given, *named]), None))
        if isinstance(node.func, ast.Attribute):
            base = self._expr(node.func.value)
            if node.func.attr == "load" and isinstance(node.func.value, ast.Name) and node.func.value.id in self.tiles:
                return self.tiles[node.func.value.id]
            if node.func.attr in ("to", "cast", *ELEMENTWISE):
                return base
            if node.func.attr in REDUCTIONS:
                return _reduced(base, tree.argument(node, 0, "axis"), tree.argument(node, None, "keep_dims"))
            return None
        return () if name in ("float", "int", "bool", "min", "max") and all(g == () for g in given) else None


def _tl(node: ast.Call, tail: str, given: list[Shape], first: Shape) -> Shape:
    """The shape of a call of tl's or libdevice's function tail; given are the shapes of its positional arguments."""
    if tail in SCALARS or tail in DTYPES:
        return ()
    if tail == "arange" and len(node.args) == 2:
        return (extent(node.args[0], node.args[1]),)
    if tail in ("zeros", "full") and (shape := tree.argument(node, 0, "shape")) is not None:
        return static_shape(shape)
    if tail in ("broadcast_to", "reshape", "view") and len(node.args) == 2:
        return static_shape(node.args[1])
    if tail in REDUCTIONS:
        return _reduced(first, tree.argument(node, 1, "axis"), tree.argument(node, None, "keep_dims"))
    if tail in ("load", "atomic_add", "atomic_max", "atomic_min"):
        return first
    if tail == "dot" and len(given) >= 2:
        a, b = given[:2]
        return (a[0], b[1]) if a is not None and b is not None and len(a) == len(b) == 2 else None
    if tail == "trans" and len(given) == 1:
        return None if first is None else first[::-1]
    if tail in ELEMENTWISE:
        values = zip(node.args, given, strict=True)
        return broadcast([shape for a, shape in values if not isinstance(a, (ast.List, ast.Tuple))])
    if tail in ("next_power_of_2", "constexpr", "assume", "store", "static_assert"):
        return ()
    return broadcast(given) if tree.called(node).startswith("libdevice.") else None


def extent(start: ast.expr, end: ast.expr) -> str:
    return tree.text_of(end) if tree.is_number(start, 0) else f"{tree.text_of(end)} - {tree.text_of(start)}"


def static_shape(node: ast.expr | None) -> Shape:
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(tree.text_of(e) for e in node.elts)
    return (tree.text_of(node),) if isinstance(node, (ast.Name, ast.Constant)) else None


def broadcast(shapes: list[Shape]) -> Shape:
    """Triton's broadcast: a scalar fits everything, blocks of one rank match or are 1."""
    if any(s is None for s in shapes):
        return None
    ranked = [s for s in shapes if s]
    if not ranked:
        return ()
    rank = max(len(s) for s in ranked)
    padded = [("1",) * (rank - len(s)) + s for s in ranked]
    out = []
    for dims in zip(*padded, strict=True):
        wide = {d for d in dims if d != "1"}
        if len(wide) > 1:
            return None
        out.append(wide.pop() if wide else "1")
    return tuple(out)


def _reduced(shape: Shape, axis: ast.expr | None, keep: ast.expr | None) -> Shape:
    """The shape of a reduction along a literal axis (None: all axes); keep is the argument keep_dims."""
    if shape is None or (keep is not None and not isinstance(keep, ast.Constant)):
        return None
    keeps = keep is not None and keep.value is True
    if axis is None or (isinstance(axis, ast.Constant) and axis.value is None):
        return ("1",) * len(shape) if keeps else ()
    at = axis_of(axis, len(shape))
    if at is None:
        return None
    return (*shape[:at], *(["1"] if keeps else []), *shape[at + 1 :])


def axis_of(axis: ast.expr, rank: int) -> int | None:
    """A literal axis as a number from 0; None if it is not literal or out of range."""
    try:
        value = ast.literal_eval(axis)
    except ValueError:
        return None
    return value % rank if type(value) is int and -rank <= value < rank else None


def _indexed(shape: Shape, index: ast.expr) -> Shape:
    """The shape after `[:, None]` and the like; None for any other index."""
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


def _join(a: dict[str, Shape], b: dict[str, Shape]) -> dict[str, Shape]:
    """The shapes after either of two paths. A scalar that becomes a block by broadcasting is not known: None."""
    return {name: shape if a.get(name, shape) == shape else None for name, shape in b.items()}
