"""Straight-line bodies as single assignments: each name once, each reduction in a statement of its own."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import CannotApply, View

EFFECTS = ("store",)


@dataclass(frozen=True)
class Step:
    """One statement: `name = value`, or an effect (a store) when name is None."""

    name: str | None
    value: ast.expr

    @property
    def reads(self) -> set[str]:
        return tree.reads(self.value)


def straightened(view: View) -> list[Step]:
    """The body as steps. Raises CannotApply when it has branches, loops, returns or other effects than stores."""
    steps: list[Step] = []
    current: dict[str, str] = {}
    used = set(view.taken)
    for stmt in view.body:
        pair = tree.assignment(stmt)
        if pair is not None:
            name, value = pair
            value = tree.renamed(value, current)
            value = _reductions_out(value, name, steps, used)
            target = name
            if name in current or name in view.function.params:
                target = _unused(f"{name}_new" if name in view.function.params else name, used)
            current[name] = target
            steps.append(Step(target, value))
        elif isinstance(stmt, ast.Expr) and tree.is_tl(stmt.value, *EFFECTS):
            value = _reductions_out(tree.renamed(stmt.value, current), "total", steps, used)
            steps.append(Step(None, value))
        elif isinstance(stmt, ast.Pass):
            continue
        else:
            raise CannotApply(f"the body is not straight-line: it has a {type(stmt).__name__} statement")
    return steps


def _unused(base: str, used: set[str]) -> str:
    name, i = base, 1
    while name in used:
        i += 1
        name = f"{base.removesuffix('_new')}_{i}"
    used.add(name)
    return name


class _Outward(ast.NodeTransformer):
    """Moves every reduction inside an expression into a step of its own, innermost first."""

    def __init__(self, near: str, steps: list[Step], used: set[str]) -> None:
        self.near, self.steps, self.used = near, steps, used

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if tree.is_tl(node, "sum", "max", "min"):
            kind = tree.called(node).rpartition(".")[2]
            name = _unused(f"{self.near}_{kind}", self.used)
            self.steps.append(Step(name, node))
            return ast.Name(name, ast.Load())
        return node


def _reductions_out(value: ast.AST, near: str, steps: list[Step], used: set[str]) -> ast.expr:
    if tree.is_tl(value, "sum", "max", "min"):
        inner = _Outward(near, steps, used)
        copied = copy.deepcopy(value)
        copied.args = [inner.visit(a) for a in copied.args]  # type: ignore[attr-defined]
        return copied  # type: ignore[return-value]
    return _Outward(near, steps, used).visit(copy.deepcopy(value))
