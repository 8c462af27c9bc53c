"""Two neighbouring loops over the same tiles that fold one reduction each: candidates for one pass over the data."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import is_identity, reduction_of, update_of
from kernelsearch.propose.analysis.effects import ACCESSES, READS
from kernelsearch.propose.analysis.tile_order import find_read_later
from kernelsearch.propose.analysis.view import View


@dataclass(frozen=True)
class Fold:
    """A loop whose last statement folds a reduction into name; the statement start sets name before the loop."""

    loop: ast.For
    name: str
    reduction: ast.Call
    start: ast.stmt

    @property
    def body(self) -> list[ast.stmt]:
        """The statements before the fold."""
        return self.loop.body[:-1]


@dataclass(frozen=True)
class TwoPasses:
    """Two folds over the same tiles, with the statements between their loops and those after the second."""

    first: Fold
    second: Fold
    between: list[ast.stmt]
    after: list[ast.stmt]

    def merge(self, view: View, text: str, gone: tuple[ast.stmt, ...] = ()) -> tree.Patch:
        """The function with these statements in place of both loops, what is between them, and gone."""
        patch = tree.Patch(view.text)
        patch.replace_stmt(self.first.loop, text)
        for stmt in (*self.between, *gone, self.second.loop):
            patch.replace_stmt(stmt, "")
        return patch


def find_two_passes(view: View, first_kind: str, second_kind: str, stores: bool = False) -> Iterator[TwoPasses]:
    """All neighbouring loops over the same range that fold reductions of these kinds along the same axis.

    Neither accumulator is used in the loops except to fold, but the second loop may read the first accumulator.
    With stores there may be some between the loops.
    """
    for block in tree.blocks(view.body):
        for one, other in pairwise(s for s in block if isinstance(s, ast.For)):
            a, b = tree.range_of(one), tree.range_of(other)
            alike = a and b and all(map(tree.is_same, (*a, one.target), (*b, other.target)))
            if not alike or tree.loops(one.body) or tree.loops(other.body):
                continue
            before, between = block[: block.index(other)], block[block.index(one) + 1 : block.index(other)]
            first, second = _fold(one, first_kind, before), _fold(other, second_kind, before)
            if first is None or second is None:
                continue
            ways = (
                [tree.argument(f.reduction, *a) for a in ((1, "axis"), (None, "keep_dims"))] for f in (first, second)
            )
            if not all(map(tree.is_same, *ways)):
                continue
            names = {first.name, second.name}
            if names & (tree.writes([*first.body, *second.body]) | tree.reads(first.body)):
                continue
            if second.name in tree.reads([one, *second.body]):
                continue
            branches = any(isinstance(s, (ast.If, ast.While)) for s in tree.all_statements([*one.body, *other.body]))
            if branches or find_read_later(view, other) & tree.writes(other) - {second.name}:
                continue
            if view.does_only(READS, [one, other]) and view.does_only(ACCESSES if stores else READS, between):
                yield TwoPasses(first, second, between, block[block.index(other) + 1 :])


def _fold(loop: ast.For, kind: str, before: list[ast.stmt]) -> Fold | None:
    update = update_of(loop.body[-1])
    reduction = reduction_of(update.value, kind) if update is not None and update.kind == kind else None
    if update is None or reduction is None:
        return None
    start = tree.only_assignment((s for s in before if isinstance(s, ast.Assign)), update.name)
    return Fold(loop, update.name, reduction, start[0]) if start and is_identity(start[1], kind) else None


def inline_names(body: list[ast.stmt], node: ast.expr) -> ast.expr:
    """The expression after a straight-line body, in terms of the names before it, without caching hints on loads.

    A name that is assigned in any other way than by a plain assignment stays a name.
    """
    opaque: set[str] = set()
    for stmt in reversed(body):
        pair = tree.assignment(stmt)
        if pair and isinstance(stmt, ast.Assign):
            if pair[0] in tree.reads(node) and pair[0] not in opaque:
                node = tree.substitute(node, {pair[0]: pair[1]})
        else:
            opaque |= tree.writes(stmt)
    return tree.transform(copy.deepcopy(node), _without_hints)


def _without_hints(node: ast.AST) -> ast.AST | None:
    """A `tl.load` without caching hints, which change no value; None for any other node."""
    if not isinstance(node, ast.Call) or not tree.is_tl(node, "load"):
        return None
    plain = [k for k in node.keywords if k.arg not in ("eviction_policy", "cache_modifier")]
    return ast.Call(node.func, node.args, plain)
