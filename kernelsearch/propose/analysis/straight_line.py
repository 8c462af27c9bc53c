"""Straight-line bodies as single assignments: each name is assigned once, each reduction has its own statement."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import NotApplicable, View


@dataclass(frozen=True)
class StraightStep:
    """One statement: `name = value`, or a store if name is None."""

    name: str | None
    value: ast.expr

    @property
    def reads(self) -> set[str]:
        return tree.reads(self.value)


def straighten(view: View) -> list[StraightStep]:
    """The body as steps. Raises NotApplicable if it has branches, loops, returns or effects other than stores."""
    steps: list[StraightStep] = []
    current: dict[str, str] = {}
    used = set(view.taken)
    for stmt in view.body:
        pair = tree.assignment(stmt)
        if pair is not None:
            name, target = pair[0], pair[0]
            value = _extract_reductions(tree.rename(pair[1], current), name, steps, used)
            if name in current or name in view.function.params:
                target = _unused(f"{name}_new" if name in view.function.params else name, used)
            current[name] = target
            steps.append(StraightStep(target, value))
        elif isinstance(stmt, ast.Expr) and tree.is_tl(stmt.value, "store"):
            value = _extract_reductions(tree.rename(stmt.value, current), "total", steps, used)
            steps.append(StraightStep(None, value))
        elif not isinstance(stmt, ast.Pass):
            raise NotApplicable(f"the body is not straight-line: it has a {type(stmt).__name__} statement")
    return steps


def _unused(base: str, used: set[str]) -> str:
    name, i = base, 1
    while name in used:
        i += 1
        name = f"{base.removesuffix('_new')}_{i}"
    used.add(name)
    return name


def _extract_reductions(value: ast.AST, near: str, steps: list[StraightStep], used: set[str]) -> ast.expr:
    """The value, with every reduction inside it moved to a step of its own, innermost first. Changes value."""

    def rule(node: ast.AST) -> ast.AST | None:
        if node is value or not tree.is_tl(node, "sum", "max", "min"):
            return None
        kind = tree.callee(node).rpartition(".")[2]
        name = _unused(f"{near}_{kind}", used)
        steps.append(StraightStep(name, node))  # type: ignore[arg-type]
        return ast.Name(name, ast.Load())

    return tree.transform(value, rule)  # type: ignore[return-value]
