"""Mean and variance in one pass: two loops over a row become one that merges the moments of each tile.

Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979),
equations 2.1: each tile's own mean is subtracted before squaring, so nothing cancels as in E[x²] - E[x]².
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import is_float32, reduction_of, starts_at_identity, update_of
from kernelsearch.propose.analysis.idle import Idle
from kernelsearch.propose.analysis.lanes import summed
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced
from kernelsearch.propose.edits.online import has_effects, inlined, same_axis


@dataclass(frozen=True)
class Moments:
    """Two loops: one folds sum(x), `mean = total / size` follows, the other folds sum of (x - mean)² where mask."""

    first: ast.For
    second: ast.For
    between: tuple[ast.stmt, ...]
    mean: ast.stmt
    reduction: ast.Call
    mask: ast.expr
    size: str
    starts: tuple[ast.Assign, ...]


class FusedPasses(FunctionEdit):
    name = "fused_passes"
    summary = "mean and variance in one pass, merged tile by tile"

    def change(self, view: View) -> list[Change]:
        text = summed(view.text)
        for form in (view, *([view.written(text)] if text else [])):
            if found := self._found(form):
                return [_merged(form, found)]
        raise CannotApply("no loop for a mean is followed by a loop for the squares of what is left")

    @staticmethod
    def _found(view: View) -> Moments | None:
        for block in tree.blocks(view.body):
            loops = [s for s in block if isinstance(s, ast.For)]
            for first, second in zip(loops, loops[1:], strict=False):
                found = _moments(view, block, first, second)
                if found is not None:
                    return found
        return None


def _moments(view: View, block: list[ast.stmt], first: ast.For, second: ast.For) -> Moments | None:
    bounds = tree.range_of(first)
    if bounds is None or not (tree.same(first.iter, second.iter) and tree.same(first.target, second.target)):
        return None
    total, squares = update_of(first.body[-1]), update_of(second.body[-1])
    if total is None or squares is None or (total.kind, squares.kind) != ("sum", "sum"):
        return None
    one, two = reduction_of(total.value, "sum"), reduction_of(squares.value, "sum")
    between = block[block.index(first) + 1 : block.index(second)]
    bodies = [*first.body, *second.body]
    if one is None or two is None or not same_axis(one, two) or has_effects([*bodies, *between]):
        return None
    size = tree.text_of(bounds[1])
    means = [s for s in between if (p := tree.assignment(s)) and tree.text_of(p[1]) == f"{total.name} / {size}"]
    if len(means) != 1 or tree.loops(first.body) or tree.loops(second.body) or not tree.is_number(bounds[0], 0):
        return None
    mean = tree.assignment(means[0])[0]  # type: ignore[index]
    mask = _centred_mask(second, two.args[0], mean, inlined(first.body, one.args[0]))
    # The tile holds `min(size - start, step)` columns: the mask must be `columns < size`, nothing less.
    if mask is None or not _plain_mask(mask, first, bounds, size) or size not in view.function.params:
        return None
    if not _idle_zero(view, first, one.args[0], mask):
        return None
    names = {total.name, squares.name, mean}
    if names & tree.writes([*first.body[:-1], *second.body[:-1]]) or names & tree.reads(first.body[:-1]):
        return None
    after = block[block.index(second) + 1 :]
    rest = [s for s in between if s is not means[0] and not tree.writes(s) & {squares.name}]
    outside = [*after, *rest, *second.body]
    if total.name in tree.reads(outside) or (tree.reads(rest) | tree.writes(rest)) & names:
        return None
    if tree.writes(rest) & tree.reads(first):
        return None
    if squares.name in tree.reads([*first.body, *second.body[:-1], *between]):
        return None
    starts = tuple(s for n in (total.name, squares.name) if (s := _start(block[: block.index(second)], n)) is not None)
    if len(starts) != 2:
        return None
    return Moments(first, second, tuple(between), means[0], one, mask, size, starts)


def _start(before: list[ast.stmt], name: str) -> ast.Assign | None:
    found = [s for s in before if isinstance(s, ast.Assign) and name in tree.writes(s)]
    good = len(found) == 1 and starts_at_identity(found[0].value, "sum") and is_float32(found[0].value)
    return found[0] if good else None


def _centred_mask(loop: ast.For, operand: ast.expr, mean: str, block: ast.expr) -> ast.expr | None:
    """The mask in `where(mask, block - mean, 0) ** 2` as the loop computes it, None for anything else."""
    square = inlined(loop.body, operand)
    if not (isinstance(square, ast.BinOp) and isinstance(square.op, ast.Mult) and tree.same(square.left, square.right)):
        return None
    centred = square.left
    if not (tree.is_tl(centred, "where") and isinstance(centred, ast.Call) and len(centred.args) == 3):
        return None
    if not tree.is_number(centred.args[2], 0):
        return None
    difference = centred.args[1]
    wanted = ast.BinOp(block, ast.Sub(), ast.Name(mean, ast.Load()))
    return centred.args[0] if tree.same(difference, wanted) else None


def _plain_mask(mask: ast.expr, loop: ast.For, bounds: tuple[ast.expr, ast.expr, ast.expr], size: str) -> bool:
    start, step = tree.text_of(loop.target), tree.text_of(bounds[2])
    columns = f"{start} + tl.arange(0, {step})"
    return tree.text_of(mask) in {f"{c} < {size}" for c in (columns, f"{columns}[None, :]", f"({columns})[None, :]")}


def _idle_zero(view: View, loop: ast.For, operand: ast.expr, mask: ast.expr) -> bool:
    idle = Idle(lambda c: tree.same(c, mask), lambda n: n == tree.text_of(loop.target))
    return idle.of(inlined(loop.body, operand)) == "zero"


def _merged(view: View, found: Moments) -> Change:
    fresh = {n: view.fresh(n) for n in ("seen", "here", "tile_mean", "centred_tile", "shift", "both")}
    seen, here, tile_mean, centred, shift, both = fresh.values()
    mean = tree.assignment(found.mean)[0]  # type: ignore[index]
    squares = next(iter(tree.writes(found.starts[1])))
    block = tree.text_of(found.reduction.args[0])
    axis = "".join(f", {tree.text_of(a)}" for a in found.reduction.args[1:])
    axis += "".join(f", {k.arg}={tree.text_of(k.value)}" for k in found.reduction.keywords)
    start, step = tree.text_of(found.first.target), tree.text_of(tree.range_of(found.first)[2])  # type: ignore[index]
    body = "".join(tree.text_of(s) + "\n" for s in found.first.body[:-1])
    body += (
        f"{here} = tl.minimum({found.size} - {start}, {step}).to(tl.float32)\n"
        f"{tile_mean} = tl.sum({block}{axis}) / {here}\n"
        f"{centred} = tl.where({tree.text_of(found.mask)}, {tree.parenthesised(block)} - {tile_mean}, 0.0)\n"
        f"{shift} = {tile_mean} - {mean}\n"
        f"{both} = {seen} + {here}\n"
        f"{squares} += tl.sum({centred} * {centred}{axis}) + {shift} * {shift} * ({seen} * {here} / {both})\n"
        f"{mean} += {shift} * ({here} / {both})\n"
        f"{seen} = {both}\n"
    )
    head = f"{seen} = 0.0\n{mean} = {tree.text_of(found.starts[0].value)}\n"
    rest = "".join(tree.text_of(s) + "\n" for s in found.between if s is not found.mean)
    loop = f"for {start} in {tree.text_of(found.first.iter)}:\n" + "".join(f"    {x}\n" for x in body.splitlines())
    patch = tree.Patch(view.text)
    patch.stmt(found.first, rest + head + loop)
    for stmt in found.between:
        patch.stmt(stmt, "")
    if found.starts[0] not in found.between:
        patch.stmt(found.starts[0], "")
    patch.stmt(found.second, "")
    why = "The row is read once for mean and variance, by merging the moments of its tiles."
    return Change(replaced(view, patch.text()), why)
