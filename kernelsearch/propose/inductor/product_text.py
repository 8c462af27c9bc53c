"""Makes Inductor's product kernels plain tiled products: tiles of two axes, one `tl.dot` that adds to its accumulator.

Inductor writes them as reductions over tiles of three axes, and its reshapes and masks send each operand through
registers; what follows the loop, the epilogue, stays as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernelsearch.core.parsing import parse_python
from kernelsearch.propose.analysis import tree

STEP = ("r0_index", "r0_mask")
"""Names along the summed axis: each operand has its own direction of them."""


class _Other(Exception):
    """The kernel is not of the known form."""


def flatten_product(kernel: ast.FunctionDef) -> ast.FunctionDef:
    """The kernel with tiles of two axes, if it is one product with an epilogue; else the same kernel."""
    if "tl.dot(" not in (text := ast.unparse(kernel)):
        return kernel
    copy = parse_python(text).body[0]
    assert isinstance(copy, ast.FunctionDef)
    try:
        _flatten(copy)
    except _Other:
        return kernel
    return copy


def _flatten(kernel: ast.FunctionDef) -> None:
    loops = [n for n in kernel.body if isinstance(n, ast.For)]
    if len(loops) != 1:
        raise _Other
    (loop,) = loops
    steps, others = _split(loop)
    *loads, product = others
    dot, old = _read_sum(product, loads)
    left, right = (_follow(operand, loads) for operand in dot.args[:2])
    names = [{n.id for s in slice_ for n in ast.walk(s) if isinstance(n, ast.Name)} for slice_ in (left, right)]
    if {id(s) for s in left} & {id(s) for s in right} or "xindex" in names[0] or "yindex" in names[1]:
        raise _Other
    for part, axes in ((left, "None, :"), (right, ":, None")):
        turned = {n: tree.expression(f"{n}[{axes}]") for n in STEP}
        for statement in part:
            statement.value = tree.substitute(statement.value, turned)  # type: ignore[attr-defined]
    dot.args = [_strip_shape(dot.args[0], loads), _strip_shape(dot.args[1], loads), ast.Name(old, ast.Load())]
    kept = [s for s in loads if s in left or s in right]
    total = ast.Assign([ast.Name(old, ast.Store())], dot)
    loop.body = [*steps, *kept, total]
    for statement in kernel.body:
        _Flat().visit(statement)
    _drop_masked_again(loop)
    after = kernel.body[kernel.body.index(loop) + 1 :]
    if any(isinstance(n, ast.Name) and n.id in (*STEP, "r0_base") for s in after for n in ast.walk(s)):
        raise _Other


def _split(loop: ast.For) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """(What sets the names along the summed axis, the other statements of the loop), all of them assignments."""
    if not all(isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) for s in loop.body):
        raise _Other
    steps = [s for s in loop.body if _target(s) in STEP]
    return steps, [s for s in loop.body if s not in steps]


def _target(statement: ast.stmt) -> str:
    return statement.targets[0].id  # type: ignore[attr-defined]


def _read_sum(last: ast.stmt, loads: list[ast.stmt]) -> tuple[ast.Call, str]:
    """(The only call of `tl.dot`, the accumulator) of `acc = acc + broadcast(dot)`; takes these from the loads."""
    values = {_target(s): s for s in loads}
    total = _target(last)
    added: ast.AST = last.value  # type: ignore[attr-defined]
    found: list[ast.Call] = []
    while True:
        match added:
            case ast.Name(id=name) if name in values:
                loads.remove(values[name])
                added = values.pop(name).value  # type: ignore[attr-defined]
            case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=right) if name == total:
                added = right
            case ast.Call(func=ast.Attribute(attr="broadcast_to"), args=[inner, _]):
                added = inner
            case ast.Call(func=ast.Attribute(attr="dot"), args=[_, _]):
                found.append(added)
                break
            case _:
                raise _Other
    if any(tree.calls(s, "dot") for s in loads):
        raise _Other
    return found[0], total


def _follow(value: ast.AST, loads: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of the loop on which an expression depends."""
    wanted = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
    part: list[ast.stmt] = []
    for statement in reversed(loads):
        if _target(statement) in wanted:
            part.append(statement)
            wanted |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
    return part


def _strip_shape(operand: ast.expr, loads: list[ast.stmt]) -> ast.expr:
    """An operand of the product without what made a matrix of a tile of three axes."""
    values = {_target(s): s for s in loads}
    while True:
        match operand:
            case ast.Name(id=name) if tree.is_tl(values[name].value, "reshape", "trans"):  # type: ignore[attr-defined]
                operand = values[name].value  # type: ignore[attr-defined]
                loads.remove(values[name])
            case ast.Call(args=[inner, *_]) if tree.is_tl(operand, "reshape", "trans"):
                operand = inner
            case _:
                return operand


class _Flat(ast.NodeTransformer):
    """Takes the summed axis, and that of the batch, out of shapes and of subscripts that add axes."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        axes = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        marks = "".join("N" if ast.unparse(axis) == "None" else ":" for axis in axes)
        if len(marks) < 3:
            return node
        if len(marks) == 4 and marks[0] == ":":
            raise _Other
        rows, columns, last = tuple(marks[-3:])
        if last == ":" or (rows, columns) == (":", ":"):
            return node.value
        if (rows, columns) == ("N", "N"):
            raise _Other
        laid = f"{rows}, {columns}".replace("N", "None")
        return tree.expression(f"{ast.unparse(node.value)}[{laid}]")

    def visit_List(self, node: ast.List) -> ast.AST:
        sizes = [ast.unparse(e) for e in node.elts]
        if len(sizes) < 3:
            return node
        if sizes[-1] != "1" or (len(sizes) == 4 and sizes[0] not in ("1", "ZBLOCK")):
            raise _Other
        return ast.List(node.elts[-3:-1], ast.Load())


def _drop_masked_again(loop: ast.For) -> None:
    """Drops `tl.where(mask, x, 0)` of an x whose load gave zeros there already."""
    values = {_target(s): s.value for s in loop.body}  # type: ignore[attr-defined]
    for statement in loop.body:
        match statement:
            case ast.Assign(
                value=ast.Call(
                    func=ast.Attribute(attr="where"), args=[mask, ast.Name() as given, ast.Constant(value=0)]
                )
            ) if _is_zero_there(given, ast.unparse(mask), values):
                statement.value = given


def _is_zero_there(value: ast.AST, mask: str, values: Mapping[str, ast.AST]) -> bool:
    match value:
        case ast.Name(id=name) if name in values:
            return _is_zero_there(values[name], mask, values)
        case ast.Call(func=ast.Attribute(value=inner, attr="to")):
            return _is_zero_there(inner, mask, values)
        case ast.Call(
            func=ast.Attribute(attr="load"), args=[_, given], keywords=[ast.keyword("other", ast.Constant(value=0.0))]
        ):
            return mask in map(ast.unparse, tree.conjuncts(given))
    return False
