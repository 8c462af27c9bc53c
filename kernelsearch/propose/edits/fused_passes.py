"""Mean and variance in one pass: two loops over a row become one that merges the moments of each tile.

Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979),
equations 2.1: each tile's own mean is subtracted before squaring, so nothing cancels as in E[x²] - E[x]².
"""

from __future__ import annotations

import ast
from textwrap import indent

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import format_reduction, is_identity, update_of
from kernelsearch.propose.analysis.idle import ZERO, Idle
from kernelsearch.propose.analysis.passes import Fold, TwoPasses, find_two_passes, inline_names
from kernelsearch.propose.analysis.view import Change, Changes, View
from kernelsearch.propose.edits.base import Edit


class FusedPasses(Edit):
    summary = "mean and variance in one pass, merged tile by tile"
    refusal = "no loop for a mean is followed by a loop for the squares of what is left"

    def change(self, view: View) -> Changes:
        text = sum_lanes(view.text)
        for form in (view, *([view.with_text(text)] if text else [])):
            for passes in find_two_passes(form, "sum", "sum"):
                if (moments := _moments(form, passes)) is not None:
                    yield _merged(form, passes, *moments)
                    return


def _moments(view: View, passes: TwoPasses) -> tuple[ast.stmt, ast.expr] | None:
    """The statement `mean = total / size` and the mask, if the second loop sums (x - mean)² of the first loop's x.

    The mask must be `columns < size`, nothing less: a tile has `min(size - start, step)` columns.
    """
    first, second, between = passes.first, passes.second, passes.between
    start, stop, step = tree.range_of(first.loop)  # type: ignore[misc]
    size = tree.text_of(stop)
    means = [s for s in between if (p := tree.assignment(s)) and tree.text_of(p[1]) == f"{first.name} / {size}"]
    if not tree.is_same(first.loop.iter, second.loop.iter) or len(means) != 1 or not tree.is_number(start, 0):
        return None
    mean = tree.assignment(means[0])[0]  # type: ignore[index]
    block = inline_names(first.loop.body, first.reduction.args[0])
    mask = _centred_mask(second, mean, block)
    columns = f"{tree.text_of(first.loop.target)} + tl.arange(0, {tree.text_of(step)})"
    whole = [f"{c} < {size}" for c in (columns, f"{columns}[None, :]", f"({columns})[None, :]")]
    if mask is None or tree.text_of(mask) not in whole or size not in view.function.params:
        return None
    if Idle(lambda c: tree.is_same(c, mask), lambda n: n == tree.text_of(first.loop.target)).of(block) != ZERO:
        return None
    names = {first.name, second.name, mean}
    if mean in tree.writes([*first.body, *second.body]) | tree.reads(first.body):
        return None
    rest = [s for s in between if s is not means[0] and second.name not in tree.writes(s)]
    if first.name in tree.reads([*passes.after, *rest, *second.loop.body]) or second.name in tree.reads(between):
        return None
    if (tree.reads(rest) | tree.writes(rest)) & names or tree.writes(rest) & tree.reads(first.loop):
        return None
    return means[0], mask


def _centred_mask(fold: Fold, mean: str, block: ast.expr) -> ast.expr | None:
    """The mask in `where(mask, block - mean, 0) ** 2` as the loop computes it; None for anything else."""
    match inline_names(fold.loop.body, fold.reduction.args[0]):
        case ast.BinOp(left=ast.Call(args=[mask, centred, other]) as left, op=ast.Mult(), right=right):
            wanted = ast.BinOp(block, ast.Sub(), ast.Name(mean, ast.Load()))
            square = tree.is_tl(left, "where") and tree.is_number(other, 0) and tree.is_same(left, right)
            return mask if square and tree.is_same(centred, wanted) else None
    return None


def _merged(view: View, passes: TwoPasses, mean_stmt: ast.stmt, mask: ast.expr) -> Change:
    names = ("seen", "here", "tile_mean", "centred_tile", "shift", "both")
    seen, here, tile_mean, centred, shift, both = map(view.fresh_name, names)
    first, squares = passes.first, passes.second.name
    mean = tree.assignment(mean_stmt)[0]  # type: ignore[index]
    _, size, step = map(tree.text_of, tree.range_of(first.loop))  # type: ignore[arg-type]
    start, block = tree.text_of(first.loop.target), tree.text_of(first.reduction.args[0])
    body = "".join(tree.text_of(s) + "\n" for s in first.body)
    body += (
        f"{here} = tl.minimum({size} - {start}, {step}).to(tl.float32)\n"
        f"{tile_mean} = {tree.text_of(first.reduction)} / {here}\n"
        f"{centred} = tl.where({tree.text_of(mask)}, {tree.parenthesise(block)} - {tile_mean}, 0.0)\n"
        f"{shift} = {tile_mean} - {mean}\n"
        f"{both} = {seen} + {here}\n"
        f"{squares} += {format_reduction(first.reduction, f'{centred} * {centred}')}"
        f" + {shift} * {shift} * ({seen} * {here} / {both})\n"
        f"{mean} += {shift} * ({here} / {both})\n"
        f"{seen} = {both}\n"
    )
    text = "".join(tree.text_of(s) + "\n" for s in passes.between if s is not mean_stmt)
    text += f"{seen} = 0.0\n{mean} = {tree.text_of(first.start.value)}\n"
    text += f"for {start} in {tree.text_of(first.loop.iter)}:\n{indent(body, '    ')}"
    why = "The row is read once for mean and variance, by merging the moments of its tiles."
    return view.rewrite(passes.merge(view, text, gone=(first.start,)), why)


def sum_lanes(text: str) -> str | None:
    """The function with accumulators that have one element per lane as sums of every tile; None if it has none.

    The inverse of `lane_accumulator`. An accumulator starts as float32 zeros, is added to once in a loop, and is read
    once: by `tl.sum(name, axis=0)` after it.
    """
    patch = tree.Patch(text)
    for block in tree.blocks(tree.strip_docstrings(patch.node.body)):
        for place, loop in enumerate(block):
            for stmt in loop.body if isinstance(loop, ast.For) else ():
                update = update_of(stmt)
                if update is None or update.kind != "sum" or tree.calls(update.value, "dot", "sum"):
                    continue
                name, behind = update.name, ast.Module(block[place + 1 :], [])
                start = _start(block[:place], name)
                total = next((c for c in tree.calls(behind, "sum") if _reduces(c, name)), None)
                if start is None or total is None or _reads(patch.node, name) != _reads(stmt, name) + 1:
                    continue
                patch.replace_stmt(start, f"{name} = 0.0")
                patch.replace_stmt(stmt, f"{name} += tl.sum({tree.text_of(update.value)}, axis=0)")
                patch.replace_expr(total, name)
    return None if patch.is_empty else patch.text()


def _reads(node: ast.AST, name: str) -> int:
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name)
    return sum(isinstance(n.ctx, ast.Load) for n in names)


def _start(before: list[ast.stmt], name: str) -> ast.Assign | None:
    """The statement that makes the lanes, float32 zeros along one axis."""
    writers = [s for s in before if name in tree.writes(s)]
    if len(writers) != 1 or not isinstance(writers[0], ast.Assign) or not tree.is_tl(writers[0].value, "zeros"):
        return None
    shape = tree.argument(writers[0].value, 0, "shape")  # type: ignore[arg-type]
    one_axis = isinstance(shape, (ast.List, ast.Tuple)) and len(shape.elts) == 1
    return writers[0] if one_axis and is_identity(writers[0].value, "sum") else None


def _reduces(call: ast.Call, name: str) -> bool:
    """Whether a `tl.sum` is of this name, along its only axis."""
    first, axis = tree.argument(call, 0, "input"), tree.argument(call, 1, "axis")
    return isinstance(first, ast.Name) and first.id == name and (axis is None or tree.is_number(axis, 0))
