"""Which values are floating point for certain, whatever is passed: by Triton's rules and by what launches were seen."""

from __future__ import annotations

import ast

from kernelsearch.core.types import TensorFact
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import View

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
