"""Short forms of erf, tanh and GELU where the output has 16 bits: a polynomial or an exponential for many instructions.

Each form's error is at most a quarter of an ulp of bfloat16 and of float16, half of what rounding to them costs: the
judge, who allows about twice the error of eager PyTorch, sees it in the error ratio and accepts it. A test measures it
over all inputs of both types, and `scripts/fit_functions.py` derives the coefficients. GELU and `1 + tanh` are
replaced as a whole, because `1 + erf(x)` cancels for negative x.

The kernel asks for the output's type, and keeps the exact function for wider ones.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import READS, find_effects
from kernelsearch.propose.analysis.flow import factors, find_dependent
from kernelsearch.propose.analysis.tile_order import find_pointers
from kernelsearch.propose.analysis.view import Changes, View, refuse_if
from kernelsearch.propose.edits.base import Edit

BOUND = 0.25
"""The largest error of a form, in ulps of a 16-bit output."""
LOG2_OF_PHI = (
    -1.0000410079956055,
    -1.1503472328186035,
    -0.46142277121543884,
    -0.05037219077348709,
    0.006506122648715973,
    -0.0003950789396185428,
)
"""log2 of the normal distribution's tail Phi(-t), for t from 0 to 5; beyond, it falls faster than the tail."""
ERF_OVER_X = (
    1.1283304691314697,
    -0.3753731846809387,
    0.11079234629869461,
    -0.02463075891137123,
    0.003948671277612448,
    -0.0004235415253788233,
    2.6728337616077624e-05,
    -7.408877991110785e-07,
)
"""erf(x) / x in powers of x * x, for x up to 2.75."""


def _polynomial(coefficients: tuple[float, ...], x: str) -> str:
    """Horner's rule: one multiplication and addition a coefficient."""
    text = repr(coefficients[-1])
    for c in coefficients[-2::-1]:
        text = f"({c!r} + {x} * {text})"
    return text


FORMS = {
    # relu without its NaN: |x| / 2 + x / 2
    "gelu": f"0.5 * x + tl.abs(x) * (0.5 - tl.exp2({_polynomial(LOG2_OF_PHI, 'tl.abs(x)')}))",
    "erf": f"tl.where(tl.abs(x) >= 2.75, tl.where(x > 0, 1.0, -1.0), x * {_polynomial(ERF_OVER_X, '(x * x)')})",
    "tanh": "tl.where(tl.abs(x) < 0.25, x + x * (x * x) * (x * x * 0.13333333333333333 - 0.3333333333333333), "
    "1.0 - 2.0 / (1.0 + tl.exp2(x * 2.8853900817779268)))",
    "one plus tanh": "2.0 / (1.0 + tl.exp2(x * -2.8853900817779268))",
}
"""Each form as an expression of the float32 value x, which stands for a name."""


@dataclass(frozen=True)
class _Use:
    """A function's use in an expression: the form for it, and its argument."""

    node: ast.expr
    form: str
    argument: ast.expr


class ShortFunctions(Edit):
    summary = "erf, tanh and GELU by short forms where the output has 16 bits (errors below a quarter of an ulp)"
    refusal = "no 16-bit output may be a product with erf, tanh or GELU in it"

    def change(self, view: View) -> Changes:
        refuse_if("primitive_bitwidth" in view.text, "it asks for a type's width already")
        patch = tree.Patch(view.text)
        for stmt in tree.all_statements(view.body):
            if new := _shorten(view, stmt):
                patch.replace_stmt(stmt, new)
        if not patch.is_empty:
            yield view.rewrite(patch, "A 16-bit output hides the error of a short form, which costs few instructions.")


def _shorten(view: View, stmt: ast.stmt) -> str:
    """A branch on the output's width around the statement with a short form; empty if it has none."""
    if not isinstance(stmt, (ast.Assign, ast.AnnAssign, ast.Expr)) or not (value := _value_of(stmt)):
        return ""
    use = next(_uses(value), None)
    if use is None:
        value, inner = _unfold(view, value, stmt)
        use = next((u for u in _uses(value) if u.form == "gelu" and tree.text_of(u.node) not in inner), None)
    if use is None or not view.does_only(READS, use.node):
        return ""
    outputs = _outputs(view, stmt, value, use.node)
    if not outputs:
        return ""
    name = use.argument.id if isinstance(use.argument, ast.Name) else view.fresh_name("argument")
    ahead = "" if isinstance(use.argument, ast.Name) else f"    {name} = {tree.text_of(use.argument)}\n"
    form = tree.substitute(tree.expression(FORMS[use.form]), {"x": ast.Name(name, ast.Load())})
    new = copy.deepcopy(stmt)
    whole = _replaced(value, use.node, form)
    if isinstance(new, ast.Expr):
        assert isinstance(new.value, ast.Call)
        new.value.args[1] = whole
    else:
        new.value = whole
    test = " and ".join(f"{pointer}.dtype.element_ty.primitive_bitwidth == 16" for pointer in outputs)
    return f"if {test}:\n{ahead}    {tree.text_of(new)}\nelse:\n    {tree.text_of(stmt)}\n"


def _replaced(value: ast.expr, node: ast.expr, new: ast.AST) -> ast.expr:
    return tree.transform(copy.deepcopy(value), lambda n: new if tree.is_same(n, node) else None)


def _value_of(stmt: ast.stmt) -> ast.expr | None:
    """What a statement assigns, or stores at a pointer."""
    if isinstance(stmt, ast.Expr):
        return stmt.value.args[1] if tree.is_tl(stmt.value, "store") and len(stmt.value.args) > 1 else None
    pair = tree.assignment(stmt)
    return pair[1] if pair else None


def _unfold(view: View, value: ast.expr, stmt: ast.stmt) -> tuple[ast.expr, str]:
    """The expression with the values of names that are made of erf, so that GELU is one product, and those values."""
    known = {}
    for name in tree.reads(value):
        definition = view.flow.steady_value(name, stmt)
        if definition and any(map(_is_erf, ast.walk(definition[0]))) and not find_effects(definition[0]):
            known[name] = definition[0]
    return tree.substitute(value, known), "; ".join(map(tree.text_of, known.values()))


def _is_erf(node: ast.AST) -> bool:
    return tree.is_tl(node, "erf") or tree.callee(node) == "libdevice.erf"


def _is_tanh(node: ast.AST) -> bool:
    return tree.callee(node).endswith(".tanh")  # a helper of that name may be another function


def _uses(value: ast.expr) -> Iterator[_Use]:
    """Uses that have a short form, GELU first, then those of a function alone."""
    nodes = [n for n in ast.walk(value) if isinstance(n, ast.expr)]
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and (argument := _gelu_argument(node)):
            yield _Use(node, "gelu", argument)
    for node in nodes:
        if (inner := _one_plus(node)) is not None and _is_tanh(inner):
            yield _Use(node, "one plus tanh", inner.args[0])
    for node in nodes:
        if _is_erf(node) or _is_tanh(node):
            yield _Use(node, "erf" if _is_erf(node) else "tanh", node.args[0])  # type: ignore[attr-defined]


def _one_plus(node: ast.AST) -> ast.Call | None:
    """The call in `1 + f(x)` or `f(x) + 1`."""
    match node:
        case ast.BinOp(op=ast.Add()):
            for one, call in ((node.left, node.right), (node.right, node.left)):
                if tree.is_number(one, 1) and isinstance(call, ast.Call):
                    return call
    return None


def _gelu_argument(node: ast.expr) -> ast.expr | None:
    """x of a product of exactly 0.5, x and `1 + erf(x / sqrt(2))`, in any order."""
    parts = factors(node)
    halves = [p for p in parts if tree.is_number(p, 0.5)]
    sums = [call for p in parts if (call := _one_plus(p)) is not None and _is_erf(call)]
    rest = [p for p in parts if not tree.is_number(p, 0.5) and _one_plus(p) is None]
    if len(parts) == 3 and len(halves) == len(sums) == len(rest) == 1 and _is_scaled(sums[0].args[0], rest[0]):
        return rest[0]
    return None


def _is_scaled(node: ast.expr, x: ast.expr) -> bool:
    """Whether node is x / sqrt(2)."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            pairs = ((left, right), (right, left))
            return any(tree.is_same(a, x) and _is_near(b, 0.5**0.5) for a, b in pairs)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return tree.is_same(left, x) and _is_near(right, 2.0**0.5)
    return False


def _is_near(node: ast.expr, value: float) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float) and abs(node.value / value - 1.0) < 1e-7


# ---------------------------------------------------------------- where the value goes


def _outputs(view: View, stmt: ast.stmt, value: ast.expr, node: ast.expr) -> list[str]:
    """The pointers behind which the value ends; empty if it is more than a factor of what is stored there."""
    mark = "*"  # no kernel has this name
    if not _is_product(_replaced(value, node, ast.Name(mark, ast.Load())), {mark}):
        return []
    pair = tree.assignment(stmt)
    if pair is None:
        return _pointers_of(view, [stmt])
    carried, loops, ends = find_dependent(view.body, {pair[0]}, control=False), view.flow.loops_of(stmt), []
    for other in tree.all_statements(view.body):
        if other is stmt or isinstance(other, (ast.For, ast.While, ast.If)) or not tree.reads(other) & carried:
            continue
        made = tree.assignment(other)
        if view.flow.loops_of(other)[: len(loops)] != loops:
            return []
        if made and made[0] not in tree.reads(made[1]) and _is_product(made[1], carried):
            continue
        stored = _stored(other)
        if (
            stored is None
            or not _is_product(stored, carried)
            or tree.reads(other) & carried != tree.reads(stored) & carried
        ):
            return []
        ends.append(other)
    heads = [s.test for s in tree.all_statements(view.body) if isinstance(s, (ast.If, ast.While))]
    heads += [s.iter for s in tree.loops(view.body)]
    return _pointers_of(view, ends) if ends and not tree.reads(heads) & carried else []


def _is_product(node: ast.expr, carried: set[str]) -> bool:
    """Whether an expression is a carried name times or over other things, cast, chosen or moved, or has none."""
    if not tree.reads(node) & carried:
        return True
    match node:
        case ast.Name():
            return True
        case ast.UnaryOp(op=ast.USub(), operand=inner) | ast.Subscript(value=inner):
            return _is_product(inner, carried)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            both = tree.reads(left) & carried and tree.reads(right) & carried
            return not both and _is_product(left, carried) and _is_product(right, carried)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return not tree.reads(right) & carried and _is_product(left, carried)
        case ast.Call(func=ast.Attribute(value=inner, attr="to")):
            return _is_product(inner, carried)
        case ast.Call(args=[test, *sides]) if tree.is_tl(node, "where"):
            return not tree.reads(test) & carried and all(_is_product(side, carried) for side in sides)
        case ast.Call(args=[inner, *_]) if tree.is_tl(node, "trans", "reshape", "cast", "broadcast_to"):
            return _is_product(inner, carried)
    return False


def _stored(stmt: ast.stmt) -> ast.expr | None:
    """What a store writes, at a pointer or through a descriptor."""
    match stmt:
        case ast.Expr(ast.Call(args=[_, value, *_]) as call) if tree.is_tl(call, "store"):
            return value
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(), "store"), [_, value])):
            return value
    return None


def _pointers_of(view: View, stores: list[ast.stmt]) -> list[str]:
    """The pointer arguments of stores; empty if one is not known."""
    pointers: list[str] = []
    for stmt in stores:
        assert isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call)
        call, known = stmt.value, None
        if not tree.is_tl(call, "store"):
            known = view.descriptors.get(call.func.value.id)  # type: ignore[attr-defined]
        pointers += [tree.text_of(known[0])] if known else find_pointers(view, call)
    fine = all(p in view.function.params for p in pointers)
    return list(dict.fromkeys(pointers)) if fine else []
