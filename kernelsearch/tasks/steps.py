"""Whether a constexpr is nothing but a loop's step: then no grid can depend on it, whatever the launcher's says."""

from __future__ import annotations

import ast

from kernelsearch.core.parsing import parsed
from kernelsearch.kernel.source import Function

LOOPS = ("range", "tl.range", "tl.static_range")
DIVISIONS = ("tl.cdiv", "triton.cdiv")


def is_step(function: Function, name: str) -> bool:
    """Whether every use of the constexpr is the step of a loop, the length of a range, a block's shape or `loop variable * name`.

    At least one loop must have it as its step, or run over `cdiv(size, name)`.
    """
    (tree,) = parsed(function.text).body
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    counted = {n.target.id for n in ast.walk(tree) if isinstance(n, ast.For) and isinstance(n.target, ast.Name)}
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]
    kinds = [_kind(use, above, counted) for use in uses]
    return all(kinds) and "step" in kinds


def _kind(use: ast.Name, above: dict[ast.AST, ast.AST], counted: set[str]) -> str:
    """`step`, `shape`, or nothing for any other use."""
    parent = above[use]
    if isinstance(parent, ast.Call):
        called, place = ast.unparse(parent.func), parent.args.index(use) if use in parent.args else None
        if called in LOOPS and place == 2:
            return "step"
        if called in DIVISIONS and place == 1 and _in_a_loop_s_head(parent, above):
            return "step"
        return "shape" if called == "tl.arange" and place == 1 else ""
    if isinstance(parent, (ast.List, ast.Tuple)):
        return "shape" if isinstance(above[parent], (ast.Call, ast.keyword)) else ""
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult):
        other = parent.right if parent.left is use else parent.left
        return "shape" if isinstance(other, ast.Name) and other.id in counted else ""
    return ""


def _in_a_loop_s_head(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    parent = above[node]
    return isinstance(parent, ast.Call) and ast.unparse(parent.func) in LOOPS
