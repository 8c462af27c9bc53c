"""Reciprocal for division: a block divided by a scalar becomes a block times the scalar's reciprocal."""

from __future__ import annotations

import ast

from kernelsearch.core.types import TensorFact
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import Dependence
from kernelsearch.propose.analysis.shapes import Shape
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit

STEPS = frozenset("floor ceil rint round trunc nearbyint argmax argmin sort topk".split())
"""Functions whose result jumps where their argument moves by little."""


class Reciprocal(Edit):
    summary = "block / scalar becomes block * (1 / scalar)"
    refusal = "no block of floating point is divided by a scalar or by a smaller block, and then only scaled or stored"

    def change(self, view: View) -> Changes:
        divisions = [n for n in ast.walk(view.node) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
        divisions = [n for n in divisions if _wider(view.shapes.of(n.left), view.shapes.of(n.right))]
        divisions = [n for n in divisions if is_floating(view, n.left) and not _shows_rounding(view, n)]
        nested = {n for division in divisions for n in ast.walk(division) if n is not division}
        values = [s.value for s in tree.all_statements(view.body) if isinstance(s, ast.Assign)]
        patch = tree.Patch(view.text)
        for node in divisions:
            if node not in nested:  # a division inside another one waits for the next time
                left, right = (tree.parenthesise(tree.text_of(side)) for side in (node.left, node.right))
                product = f"{left} * (1.0 / {right})"
                patch.replace_expr(node, product if node in values else f"({product})")
        if divisions:
            yield view.rewrite(patch, "One division per row and a multiplication per element.")


def _shows_rounding(view: View, division: ast.BinOp) -> bool:
    """Whether a last bit of the quotient may decide more: it is made an integer, compared or subtracted."""
    text = tree.text_of(division)
    quotient = Dependence(view.body, lambda n: isinstance(n, ast.BinOp) and tree.text_of(n) == text)
    facts = [(name, getattr(fact, "dtype", "fp")) for at in view.own_launches for name, fact in at.args.items()]
    whole = {name for name, dtype in facts if dtype[:2] not in ("fp", "bf")}

    def shows(node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            to_whole = "int" in tree.text_of(node) or not whole.isdisjoint(tree.reads(node))
            return node.func.attr in STEPS or (node.func.attr in ("to", "cast", "store") and to_whole)
        return isinstance(node, ast.Compare) or isinstance(getattr(node, "op", None), (ast.Sub, ast.FloorDiv, ast.Mod))

    return any(shows(n) and quotient.reaches(n) for s in view.body for n in ast.walk(s))


def _wider(left: Shape | None, right: Shape | None) -> bool:
    """Whether the divisor has fewer elements than the block, whatever the sizes."""
    if left is None or right is None or not left:
        return False
    if right == ():
        return True
    fits = len(left) == len(right) and all(r in (d, "1") for d, r in zip(left, right, strict=True))
    return fits and left != right


# ------------------------------------------------------------ floating point for certain, whatever is passed

FLOATING = frozenset("exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt erf sigmoid softmax fdiv div_rn rand randn".split())
"""Functions of `tl` that give floating point only."""
_AS_GIVEN = frozenset("where sum max min cumsum abs dot trans reshape broadcast_to maximum minimum fma clamp".split())
"""Functions whose result is floating point where an argument is."""


def is_floating(view: View, node: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
    """Whether an expression of the view's function is floating point for certain; seen are names taken to be."""
    also = lambda n: is_floating(view, n, seen)  # noqa: E731
    match node:
        case ast.Constant(value=value):
            return isinstance(value, float)
        case ast.Name(id=name):
            return name in seen or _is_name(view, name, seen | {name})
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Mod(), right=right):
            return also(left) or also(right)
        case ast.BinOp(op=op):
            return isinstance(op, ast.Div)
        case ast.UnaryOp(op=ast.USub(), operand=inner) | ast.Subscript(value=inner):
            return also(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr="to"), args=[dtype, *_]):
            return _is_dtype(view, dtype)
        case ast.Call(args=[pointer, *_]) if tree.is_tl(node, "load"):
            return _points_to_floats(view, view.flow.expand(pointer, view.flow.at(node)))
        case ast.Call() if tree.is_tl(node, "zeros", "full", "cast"):
            made = tree.argument(node, 2 if tree.is_tl(node, "full") else 1, "dtype")
            return made is not None and _is_dtype(view, made)
        case ast.Call(args=args):
            given = tree.is_tl(node, *_AS_GIVEN) and any(map(also, args[tree.is_tl(node, "where") :]))
            return given or tree.is_tl(node, *FLOATING) or tree.callee(node) == "float"
    return False


def _is_name(view: View, name: str, seen: frozenset[str]) -> bool:
    """Whether all that a name is given is floating point, in the function and by its launches."""
    own = ((s, s.target if isinstance(s, ast.For) else s) for s in tree.all_statements(view.body))
    pairs = [tree.assignment(s) for s, n in own if not isinstance(s, (ast.If, ast.While)) and name in tree.writes(n)]
    passed = (
        [launch.args.get(name) for launch in view.own_launches] if name in view.function.params else [0.0] * len(pairs)
    )
    known = bool(passed) and all(isinstance(value, float) for value in passed)
    return known and all(pair and is_floating(view, pair[1], seen) for pair in pairs)


def _is_dtype(view: View, dtype: ast.expr) -> bool:
    match dtype:
        case ast.Attribute(value=ast.Attribute(value=pointer, attr="dtype"), attr="element_ty"):
            return _points_to_floats(view, pointer)
    return tree.text_of(dtype).startswith(("tl.float", "tl.bfloat"))


def _points_to_floats(view: View, address: ast.AST) -> bool:
    pointers = tree.reads(address) & view.pointers
    facts = [launch.args.get(name) for launch in view.own_launches for name in pointers]
    return bool(facts) and all(isinstance(f, TensorFact) and f.dtype.startswith(("fp", "bf")) for f in facts)
