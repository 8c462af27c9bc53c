"""Contiguity hints where they are provable: `tl.multiple_of` for the start of a tile, a multiple of its width."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.bounds import is_multiple
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit


class ContiguityHint(Edit):
    summary = "tl.multiple_of on loop starts that are multiples of the tile"
    refusal = "no loop's start is a provable multiple of its tile without a hint"

    def change(self, view: View) -> Changes:
        patch = tree.Patch(view.text)
        for loop in tree.loops(view.body):
            bounds = tree.range_of(loop)
            if bounds is None or tree.callee(loop.iter) == "tl.static_range":
                continue
            start, step = (view.flow.expand(b, loop) for b in bounds[::2])
            name, wide = tree.text_of(loop.target), tree.text_of(step)
            if wide not in view.function.constexprs or not is_multiple(start, wide) or name in tree.writes(loop.body):
                continue
            for node in ast.walk(ast.Module(loop.body, [])):
                if isinstance(node, ast.BinOp) and tree.text_of(node) == f"{name} + tl.arange(0, {wide})":
                    patch.replace_expr(node.left, f"tl.multiple_of({name}, {wide})")
        if not patch.is_empty:
            yield view.rewrite(patch, "The compiler is told that tiles start at multiples of their width.")
