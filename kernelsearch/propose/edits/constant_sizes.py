"""Sizes as constexprs: lengths that bound loops and masks are compiled in, with the value that the launcher passes."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator

from kernelsearch.core.types import TensorFact
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.inlining import bind_arguments
from kernelsearch.propose.analysis.view import Changes, NotApplicable, View
from kernelsearch.propose.edits.base import Edit

NARROW = re.compile(r"tl\.u?int(8|16)\b")


class ConstantSizes(Edit):
    summary = "lengths as constexprs, so that masks and loops are compiled for them"
    refusal = "no length is an argument"

    def change(self, view: View) -> Changes:
        facts = [fact for launch in view.launches for fact in launch.args.values()]
        narrow = {fact.dtype for fact in facts if isinstance(fact, TensorFact)}
        if NARROW.search(view.text) or narrow & {"i8", "i16", "u8", "u16", "i1"}:
            raise NotApplicable("a length would be cut to the integers of 8 or 16 bits that it may meet")
        sizes = find_sizes(view)
        for node, known in _find_numbers(view, sizes):
            if isinstance(node, ast.Attribute) and (names := tree.reads(node.value)) and names <= known:
                raise NotApplicable(f"{tree.text_of(node)} is asked of a number")
            divides = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.FloorDiv, ast.Mod))
            if (
                divides
                and tree.reads(node) <= known
                and any(isinstance(n, (ast.Sub, ast.USub)) for n in ast.walk(node))
            ):
                raise NotApplicable(f"{tree.text_of(node)} may be rounded otherwise")
        if not sizes:
            return
        spans = [(a.end_lineno or 0, a.end_col_offset or 0) for a in view.node.args.args if a.arg in sizes]
        lines = view.text.splitlines(keepends=True)
        for line, column in sorted(spans, reverse=True):
            lines[line - 1] = f"{lines[line - 1][:column]}: tl.constexpr{lines[line - 1][column:]}"
        for decorator in view.node.decorator_list:
            kept = tree.text_of(_specialize(decorator, sizes, [a.arg for a in view.node.args.args]))
            lines[decorator.lineno - 1 : decorator.end_lineno] = [f"@{kept}\n"]
        words = ", ".join(sorted(sizes))
        yield view.rewrite(
            tree.Patch("".join(lines)), f"The kernel is compiled for each {words} that the launcher passes."
        )


def _find_numbers(view: View, sizes: set[str]) -> Iterator[tuple[ast.AST, set[str]]]:
    """Each node of the function and its helpers, with the names there that would be numbers when it is compiled."""
    functions = {view.function.name: view.node, **{n: tree.function_of(f.text) for n, f in view.helpers.items()}}
    known = {name: tree.find_constexprs(node) for name, node in functions.items()}
    known[view.function.name] |= sizes
    for _ in functions:  # calls are nested no deeper
        for name, node in functions.items():
            for call in (n for n in ast.walk(node) if tree.callee(n) in view.helpers):
                given = bind_arguments(functions[tree.callee(call)], call) or {}  # type: ignore[arg-type]
                passed = {param for param, value in given.items() if set() < tree.reads(value) <= known[name]}
                known[tree.callee(call)] |= passed
    return ((n, known[name]) for name, node in functions.items() for n in ast.walk(node))


def _specialize(decorator: ast.expr, sizes: set[str], names: list[str]) -> ast.expr:
    """A copy of `@triton.jit(do_not_specialize=[...])` without these names; Triton takes no constexpr there."""
    decorator = copy.deepcopy(decorator)
    for node in ast.walk(decorator):
        if isinstance(node, (ast.List, ast.Tuple)):
            node.elts = [
                e for e in node.elts if (names[v] if type(v := getattr(e, "value", None)) is int else v) not in sizes
            ]
    return decorator


def find_sizes(view: View) -> set[str]:
    """Integer arguments that bound a loop, a mask or an index, and that the kernel never assigns."""
    used: set[str] = set()
    for node in ast.walk(view.node):
        match node:
            case ast.For(iter=ast.Call(args=bounds)):
                used |= tree.reads(bounds)
            case ast.Compare(comparators=[bound], ops=[ast.Lt() | ast.LtE() | ast.GtE()]):
                used |= tree.reads(bound)
            case ast.BinOp(op=ast.FloorDiv() | ast.Mod(), right=divisor):
                used |= tree.reads(divisor)
            case ast.Call() if tree.callee(node) in ("tl.cdiv", "triton.cdiv"):
                used |= tree.reads(node.args)
    free = {a.arg for a in view.node.args.args if a.annotation is None and a.arg in used}
    free -= {*tree.writes(view.node), *view.function.defaults}
    return {name for name in free if all(type(launch.args.get(name, 0)) is int for launch in view.own_launches)}
