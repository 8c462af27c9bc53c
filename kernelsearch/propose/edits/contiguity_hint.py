"""Contiguity hints where they are provable: a tile's start is a multiple of the tile, and the compiler is told."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.bounds import is_multiple
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


class ContiguityHint(FunctionEdit):
    name = "contiguity_hint"
    summary = "tl.multiple_of on loop starts that are multiples of the tile"

    def change(self, view: View) -> list[Change]:
        patch = tree.Patch(view.text)
        found = 0
        for loop in tree.loops(view.body):
            bounds = tree.range_of(loop)
            if bounds is None or tree.called(loop.iter) == "tl.static_range" or not isinstance(loop.target, ast.Name):
                continue
            start, name = view.flow.expand(bounds[0], loop), loop.target.id
            step = view.flow.expand(bounds[2], loop)
            wide = tree.text_of(step)
            if wide not in view.function.constexprs or not is_multiple(start, wide) or name in tree.writes(loop.body):
                continue
            for node in ast.walk(ast.Module(loop.body, [])):
                if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)):
                    continue
                if tree.text_of(node) == f"{name} + tl.arange(0, {wide})":
                    patch.expr(node.left, f"tl.multiple_of({name}, {wide})")
                    found += 1
        if not found:
            raise CannotApply("no loop's start is a provable multiple of its tile without a hint")
        why = "The compiler is told that tiles start at multiples of their width."
        return [Change(replaced(view, patch.text()), why)]
