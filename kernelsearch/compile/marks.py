"""Marks in a kernel's TTIR that say which of its blocks run: a `tl.device_print` before and at the start of each.

An optimiser must keep what prints where it is, so an evaluator that meets a mark knows that the block ran. The blocks
are found in the tree that Triton itself reads, whose lines stay as they are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernelsearch.kernel.blocks import Block, list_sides

PRINT = "_print_mark"
"""The name of `tl.device_print` in the namespaces of marked kernels."""
_MARK = re.compile(r"kernelsearch (reaches|runs) (\w+) (\d+) (\d+) (\d+)")


@contextmanager
def mark_blocks(namespace: dict[str, Any]) -> Iterator[None]:
    """Within the context Triton reads the functions of this namespace with marks."""
    import triton.language as tl
    from triton.runtime import jit

    owner = next(c for c in jit.JITFunction.__mro__ if "parse" in vars(c))
    plain = owner.parse

    def parse(function: Any) -> ast.Module:
        tree = plain(function)
        if function.fn.__globals__ is namespace:
            _add_marks(tree.body[0])
        return tree

    namespace[PRINT] = tl.device_print
    owner.parse = parse
    try:
        yield
    finally:
        owner.parse = plain


def read_mark(text: str) -> tuple[bool, Block] | None:
    """Whether a block runs, or its condition is reached, by the text of a `tt.print`; None for others."""
    found = _MARK.search(text)
    if found is None:
        return None
    return found[1] == "runs", (found[2], int(found[3]), int(found[4]), int(found[5]))


def list_choices(tree: ast.Module) -> dict[int, list[tuple[Block, bool]]]:
    """By line, the sides of conditional expressions, and whether each is that of a condition that holds."""
    found: dict[int, list[tuple[Block, bool]]] = {}
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        for side in list_sides(function):
            if isinstance(side.owner, ast.IfExp):
                found.setdefault(side.owner.lineno, []).append((side.block, side.name == "body"))
    return found


def _add_marks(function: ast.FunctionDef) -> None:
    sides = [s for s in list_sides(function) if not isinstance(s.owner, ast.IfExp)]
    lists = [n for node in ast.walk(function) for _, n in ast.iter_fields(node) if isinstance(n, list)]
    for side in sorted(sides, key=lambda side: -side.start):
        side.nodes.insert(side.start, _mark("runs", side.block, side.nodes[side.start]))
    for side in sides:
        around = next(n for n in lists if any(each is side.owner for each in n))
        place = next(i for i, each in enumerate(around) if each is side.owner)
        around.insert(place, _mark("reaches", side.block, side.owner))


def _mark(what: str, block: Block, where: ast.AST) -> ast.stmt:
    text = ast.Constant(f"kernelsearch {what} {' '.join(map(str, block))}")
    call = ast.Expr(ast.Call(ast.Name(PRINT, ast.Load()), [text], []))
    return ast.fix_missing_locations(ast.copy_location(call, where))
