"""Running maxima with sums of exponentials that are rescaled when they grow: online softmax, however it is written.

A loop's step is `new = max(m, max(block))`, `s = s * g(m - new) + sum(g(block - new))`, `m = new`, where g is `tl.exp`
or `tl.exp2`, of the difference or of a constant times it; a maximum of minus infinity may be replaced by 0 in g.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import format_reduction, reduction_of, update_of
from kernelsearch.propose.analysis.flow import are_alike
from kernelsearch.propose.analysis.passes import inline_names


@dataclass(frozen=True)
class Exponential:
    """`function((a - b) * factor)`; an empty factor is 1."""

    function: str
    factor: str

    def format(self, a: str, b: str) -> str:
        return f"{self.function}(({a} - {b}) * {self.factor})" if self.factor else f"{self.function}({a} - {b})"


@dataclass(frozen=True)
class RescaledSum:
    """One loop's step of the accumulators `maximum` and `total`.

    highest and summed are its calls of `tl.max` and `tl.sum`; own are the statements that do nothing else.
    """

    loop: ast.For
    maximum: str
    total: str
    highest: ast.Call
    summed: ast.Call
    exponential: Exponential
    own: tuple[ast.stmt, ...]

    def expand(self, rank: int) -> str | None:
        """The subscript that gives a reduced block the block's rank again; None where it is not known."""
        axis = tree.argument(self.highest, 1, "axis")
        if rank == 1 or tree.argument(self.highest, None, "keep_dims") is not None:
            return ""
        return {"1": "[:, None]", "0": "[None, :]"}.get(tree.text_of(axis)) if rank == 2 and axis is not None else None


def find_rescaled_sum(loop: ast.For) -> RescaledSum | None:
    """The step of a loop that rescales one sum."""
    body = loop.body
    if tree.loops(body) or not all(isinstance(s, ast.Assign | ast.AugAssign | ast.Expr) for s in body):
        return None
    written = sorted(tree.writes(body))
    after = {name: inline_names(body, ast.Name(name, ast.Load())) for name in written}
    for maximum in written:
        fold = update_of(ast.Assign([ast.Name(maximum, ast.Store())], after[maximum]))
        if fold is None or fold.kind != "max" or (highest := reduction_of(fold.value, "max")) is None:
            continue
        for total in written:
            exponential = _exponential_of(after[total], total, maximum, after[maximum], highest)
            own = _find_own(body, {maximum, total})
            if exponential is None or own is None:
                continue
            calls = [tree.calls(s, kind)[0] for kind in ("max", "sum") for s in own if tree.calls(s, kind)]
            if len(calls) == 2:
                return RescaledSum(loop, maximum, total, calls[0], calls[1], exponential, own)
    return None


def _exponential_of(value: ast.expr, total: str, maximum: str, new: ast.expr, highest: ast.Call) -> Exponential | None:
    """g, if value is `total * g(maximum - new) + sum(g(block - new))` for the block whose highest is in new."""
    finite = lambda n: ast.BinOp(n.left, n.op, _finite(n.right)) if isinstance(n, ast.BinOp) else None  # noqa: E731
    plain, new_text = tree.transform(copy.deepcopy(value), finite), tree.parenthesise(tree.text_of(new))
    for fresh in tree.calls(plain, "sum"):
        if not reduction_of(fresh, "sum") or not tree.is_tl(fresh.args[0], "exp", "exp2"):
            continue
        for factor in ("", *(tree.text_of(n) for n in ast.walk(fresh.args[0]) if isinstance(n, ast.Constant))):
            g = Exponential(tree.callee(fresh.args[0]), factor)
            summed = format_reduction(fresh, g.format(tree.parenthesise(tree.text_of(highest.args[0])), new_text))
            if are_alike(plain, f"{total} * {g.format(maximum, new_text)} + {summed}"):
                return g
    return None


def _finite(shift: ast.expr) -> ast.expr:
    """The maximum in `maximum[:, None]` and in `tl.where(maximum == -inf, 0.0, maximum)`."""
    if isinstance(shift, ast.Subscript) and any(
        isinstance(n, ast.Constant) and n.value is None for n in ast.walk(shift.slice)
    ):
        return _finite(shift.value)
    if tree.is_tl(shift, "where") and len(shift.args) == 3:
        test, zero, value = shift.args
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            infinite = tree.is_infinity(test.comparators[0], -1) and tree.is_same(test.left, value)
            return value if infinite and tree.is_number(zero, 0.0) else shift
    return shift


def _find_own(body: list[ast.stmt], names: set[str]) -> tuple[ast.stmt, ...] | None:
    """The statements that depend on these accumulators or reduce for them.

    None where others read what they make, or the next turn of the loop does: attention's output is rescaled too.
    """
    made, own, early = set(names), list[ast.stmt](), set[str]()
    for stmt in body:
        if tree.writes(stmt) & names or tree.reads(stmt) & made or tree.calls(stmt, "max", "sum"):
            own.append(stmt)
            early |= tree.reads(stmt) - made
            made |= tree.writes(stmt)
    others = [s for s in body if s not in own]
    used = tree.reads(others) | tree.writes(others) | early
    return tuple(own) if all(isinstance(s, ast.Assign) for s in own) and not made & used else None
