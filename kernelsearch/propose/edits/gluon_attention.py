"""Attention forward in Gluon (Hopper): a warp loads, two groups of warps hold 64 queries each in registers.

Each group issues the scores of the next keys and the product of the last weights with their values together; the
softmax runs under the second. Row sums stay apart by lane until the end. Head sizes of 64 and 128, sequences of whole
tiles and positive scales come this way, all others by a plain loop.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelsearch.core.errors import ExpressionError
from kernelsearch.kernel.expressions import validate
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import are_alike, factors, strip_hints, terms
from kernelsearch.propose.analysis.tiles import Tile, TileAxis, find_operand, tile_of
from kernelsearch.propose.analysis.view import Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.gluon_template import GluonTemplate, find_only_loop

LOG2_E = "1.4426950408889634"
ENDS = ("{0} / {1}[:, None]", "{0} * (1.0 / {1})[:, None]", "{0} * (1.0 / {1}[:, None])")
"""What is stored of a tile and its sum."""


class GluonAttention(GluonTemplate):
    summary = "attention in Gluon, with a warp that loads and two groups of warps that multiply (Hopper)"
    refusal = "no loop is an online softmax between two dots"

    def change(self, view: View) -> Changes:
        self.require_place(view)
        found = _find_attention(view)
        q, k, v, o = found.tiles
        (rows, dims), keys = q.axes, v.axes[0]
        heads, fits, stages = (view.fresh_name(n) for n in ("heads", "FITS", "STAGES"))
        descs = [view.fresh_name(f"{x}_desc") for x in "qkvo"]
        long, wide = (q.axes[0], k.axes[1], v.axes[0], o.axes[0]), (q.axes[1], k.axes[0], v.axes[1], o.axes[1])
        row_strides = [axis.stride for axis in long]
        strides = [(*h.strides, n.stride, d.stride) for h, n, d in zip(found.heads, long, wide)]
        batch = found.heads[0]
        conditions = [c for h, row in zip(found.heads, row_strides) for c in h.list_conditions(rows.size, row)]
        conditions += [f"{axis.stride} == 1" for axis in wide if axis.stride != "1"]
        whole = f"{rows.size} % 128 == 0 and ({dims.width} == 64 or {dims.width} == 128)"
        blocks = ("64", keys.width, keys.width, "64")
        names = dict(zip("qkvo", (tile.pointer for tile in found.tiles)))
        names |= dict(zip(("q_desc", "k_desc", "v_desc", "o_desc"), descs))
        names |= {"FITS": fits, "STAGES": stages, "D": dims.width, "BN": keys.width, "heads": heads}
        names |= {"seq_len": rows.size, "per_batch": batch.per_batch, "scale": found.scale}
        names |= {"strides": ", ".join(step for own in strides for step in own), "causal": str(found.is_causal)}
        yield self.write(
            view,
            "attention.gluon.txt",
            names,
            {
                name: (
                    tile.pointer,
                    f"({heads} * {rows.size} if {fits} else 1, {dims.width})",
                    f"({row}, 1)",
                    f"({block}, {dims.width})",
                    None,
                )
                for name, tile, row, block in zip(descs, found.tiles, row_strides, blocks)
            },
            f"(min(num_sms, {heads} * cdiv({rows.size}, 32)),)",
            {
                rows.width: ((64,), 64),
                keys.width: ((64, 128), 128),
                stages: ((2, 3, 4), 2),
                "num_warps": ((4,), 4),
                "maxnreg": ((168,), 168),
            },
            (f"4 * {dims.width} * (128 + {stages} * {keys.width}) <= 231000",),
            "A warp of its own loads, and the softmax of one group of warps runs under products.",
            {
                heads: view.grid[batch.axis],
                fits: " and ".join([*dict.fromkeys(conditions), whole, f"({found.scale}) > 0"]),
            },
        )


@dataclass(frozen=True)
class _Head:
    """The address of a head: of number n, the program's along an axis, n // per_batch and n % per_batch, by strides."""

    axis: int
    per_batch: str
    strides: tuple[str, str]

    def list_conditions(self, rows: str, stride: str) -> list[str]:
        """What makes all heads one matrix, one behind the other."""
        outer, inner = self.strides
        if inner == "0":
            return [f"{outer} == {rows} * {stride}"]
        return [f"{inner} == {rows} * {stride}", f"{outer} == {self.per_batch} * {inner}"]


@dataclass(frozen=True)
class _Attention:
    """softmax(q @ k.T * scale) @ v for each head; scale is that of powers of two, as text.

    tiles are those of q, k, v and the output, heads where each begins.
    """

    tiles: tuple[Tile, Tile, Tile, Tile]
    heads: tuple[_Head, ...]
    scale: str
    is_causal: bool


def _find_attention(view: View) -> _Attention:
    """The attention that a function is, and nothing else. Raises NotApplicable."""
    loop, dots, store = find_only_loop(view, 2, "two dots")
    at = [view.flow.at(dot) for dot in dots]
    q, k = (find_operand(view, operand, at[0]) for operand in dots[0].args[:2])
    v, o = find_operand(view, dots[1].args[1], at[1]), tile_of(view, store)
    heads = tuple(_read_head(view, tile, view.flow.at(tile.call)) for tile in (q, k, v, o))
    _check_axes(view, loop, q, k, v, o, heads)
    turn = _Turn(view, loop, q, v)
    scale, is_causal = turn.read()
    _check_stop(view, loop, q.axes[0], is_causal)
    turn.check_end(view.flow.at(store), tree.argument(store, 1, "value"))
    return _Attention((q, k, v, o), heads, scale, is_causal)


def _read_head(view: View, tile: Tile, stmt: ast.stmt) -> _Head:
    """Where the program's head begins in a tile's matrix. Raises NotApplicable."""
    offset = view.flow.expand(tree.expression(tile.offset or "0"), stmt)
    found: dict[type | None, tuple[int, str, str]] = {}
    for sign, term in terms(offset):
        parts = [strip_hints(part) for part in factors(term)]
        names = [p.id for p in parts if isinstance(p, ast.Name) and p.id in view.function.params]
        for part in parts if sign == 1 and len(parts) == 2 and len(names) == 1 else ():
            match part:
                case ast.BinOp(left=number, op=ast.FloorDiv() | ast.Mod() as op, right=ast.Name(per_batch)):
                    if (axis := tree.program_axis(number)) is not None and per_batch in view.function.params:
                        found[type(op)] = axis, per_batch, names[0]
                case ast.Call() if (axis := tree.program_axis(part)) is not None:
                    found[None] = axis, "1", names[0]
    match found:
        case {None: (axis, one, stride), **rest} if not rest and len(terms(offset)) == 1:
            return _Head(axis, one, (stride, "0"))
        case {ast.FloorDiv: (axis, per_batch, outer), ast.Mod: (other, same, inner)}:
            if len(terms(offset)) == len(found) == 2 and (axis, per_batch) == (other, same):
                return _Head(axis, per_batch, (outer, inner))
    raise NotApplicable("a head does not begin at the program's number times a stride")


def _check_axes(view: View, loop: ast.For, q: Tile, k: Tile, v: Tile, o: Tile, heads: tuple[_Head, ...]) -> None:
    (rows, dims), keys = q.axes, v.axes[0]
    sizes = [rows.size, *(name for name in (dims.width, keys.width))]
    if not {*sizes} <= {*view.function.params} or not {dims.width, keys.width} <= {*view.function.constexprs}:
        raise NotApplicable("its sizes are not arguments")
    others = (k.axes[0], v.axes[1], o.axes[1])
    if {(a.origin, a.width, a.size) for a in (dims, *others)} != {("0", dims.width, dims.width)}:
        raise NotApplicable("its tiles do not have whole heads")
    if (rows.origin, rows.width, rows.size) != (o.axes[0].origin, o.axes[0].width, o.axes[0].size):
        raise NotApplicable("the rows that it stores are not those of its queries")
    steps, variable = tree.range_of(loop), tree.text_of(loop.target)
    same = {(a.origin, a.width, a.size) for a in (keys, k.axes[1])} == {(variable, keys.width, rows.size)}
    if not same or not steps or not tree.is_number(steps[0], 0) or tree.text_of(steps[2]) != keys.width:
        raise NotApplicable("its loop does not run over the keys, a tile a turn")
    origin = factors(view.flow.expand(tree.expression(rows.origin), loop))
    place = [a for p in origin if (a := tree.program_axis(p)) is not None]
    rest = [p.id for p in origin if isinstance(p, ast.Name)]
    axes = {(head.axis, head.per_batch) for head in heads}
    if len(axes) != 1 or len(origin) != 2 or len(place) != 1 or place[0] == heads[0].axis or rest != [rows.width]:
        raise NotApplicable("its programs are not one a head and tile of rows")


def _check_stop(view: View, loop: ast.For, rows: TileAxis, is_causal: bool) -> None:
    """Raises NotApplicable unless the loop ends behind the last key, or behind the last that is not hidden."""
    steps = tree.range_of(loop)
    stop = view.flow.expand(steps[1], loop) if steps else None
    origin = view.flow.expand(tree.expression(rows.origin), loop)
    number = next(tree.text_of(p) for p in factors(origin) if tree.program_axis(p) is not None)
    ends = [rows.size, *([f"({number} + 1) * {rows.width}", f"{number} * {rows.width} + {rows.width}"] * is_causal)]
    match stop:
        case ast.Call(args=[one, other], keywords=[]) if tree.callee(stop) in ("min", "tl.minimum"):
            parts = [one, other]
        case _:
            parts = [stop] if stop else []
    if not parts or not all(any(are_alike(part, end) for end in ends) for part in parts):
        raise NotApplicable("its loop does not run over all keys")


@dataclass
class _Turn:
    """One turn of the loop as expressions of what the turn before left, held against an online softmax."""

    view: View
    loop: ast.For
    q: Tile
    v: Tile

    def __post_init__(self) -> None:
        self.after: dict[str, ast.expr] = {}
        for stmt in self.loop.body:
            pair = tree.assignment(stmt)
            if pair is None:
                raise NotApplicable("its loop has more than assignments")
            if not tree.calls(pair[1], "load"):
                self.after[pair[0]] = tree.substitute(pair[1], self.after)
        before = self.view.body[: self.view.body.index(self.loop)]
        starts = dict(filter(None, map(tree.assignment, before)))
        carried = {n: starts[n] for n in self.after if n in starts}
        rows, dims = self.q.axes[0].width, self.q.axes[1].width
        shapes = {n: self.view.shapes.names.get(n) for n in carried}
        sums = [n for n, start in carried.items() if tree.is_tl(start, "zeros") and shapes[n] == (rows,)]
        tops = [
            n
            for n, start in carried.items()
            if tree.is_tl(start, "full") and any(tree.is_infinity(x, -1) for x in ast.walk(start))
        ]
        tiles = [n for n, start in carried.items() if tree.is_tl(start, "zeros") and shapes[n] == (rows, dims)]
        if not len(sums) == len(tops) == len(tiles) == 1 or len(carried) != 3:
            raise NotApplicable("its loop does not carry a maximum, a sum and a tile")
        self.top, self.sum, self.tile = tops[0], sums[0], tiles[0]

    def read(self) -> tuple[str, bool]:
        """(The scale of the scores for powers of two, whether later keys are hidden). Raises NotApplicable."""
        match self.after[self.top]:
            case ast.Call(args=[ast.Name(name), ast.Call(args=[scores, *_]) as top]) as larger:
                fine = tree.is_tl(larger, "maximum") and name == self.top and tree.is_tl(top, "max")
            case _:
                fine = False
        axis = tree.argument(top, 1, "axis") if fine else None
        if axis is None or not tree.is_number(axis, 1):
            raise NotApplicable("its maximum is not that of the scores and of the turn before")
        new, row = tree.text_of(larger), "[:, None]"
        for function in ("tl.exp", "tl.exp2"):
            shrink = f"{function}({self.top} - {new})"
            weights = f"{function}({tree.text_of(scores)} - {new}{row})"
            if are_alike(self.after[self.sum], f"{self.sum} * {shrink} + tl.sum({weights}, 1)"):
                break
        else:
            raise NotApplicable("its sum is not that of the weights and of the turn before")
        products = tree.calls(self.after[self.tile], "dot")
        outer = next((c for c in products if are_alike(_uncast(c.args[0]), weights)), None)
        kept, added = f"{self.tile} * {shrink}{row}", outer and tree.argument(outer, 2, "acc")
        if outer is None or not (
            (added and self.after[self.tile] is outer and are_alike(added, kept))
            or (not added and are_alike(self.after[self.tile], f"{kept} + {tree.text_of(outer)}"))
        ):
            raise NotApplicable("its tile is not that of the weights times the values, and of the turn before")
        plain, is_causal = self._unmask(scores)
        return self._read_scale(plain) + f" * {LOG2_E}" * (function == "tl.exp"), is_causal

    def _unmask(self, scores: ast.expr) -> tuple[ast.expr, bool]:
        """The scores without masks, and whether one hides later keys."""
        is_causal = False
        keys, rows = (f"({a.index})[{at}]" for a, at in ((self.v.axes[0], "None, :"), (self.q.axes[0], ":, None")))
        while tree.is_tl(scores, "where"):
            test, scores, hidden = scores.args
            whole = self.view.flow.expand(test, self.loop)
            for part in tree.conjuncts(whole):
                if are_alike(part, self._expanded(f"{rows} >= {keys}")):
                    is_causal = True
                elif not are_alike(part, self._expanded(f"{keys} < {self.q.axes[0].size}")):
                    raise NotApplicable("it hides other keys than later ones")
            refuse_if(not tree.is_infinity(hidden, -1), "its hidden scores are not minus infinity")
        return scores, is_causal

    def _expanded(self, text: str) -> ast.expr:
        return self.view.flow.expand(tree.expression(text), self.loop)

    def _read_scale(self, scores: ast.expr) -> str:
        """What a score is multiplied with, of arguments only."""
        parts = factors(scores)
        rest = [self.view.flow.expand(p, self.loop) for p in parts if not tree.is_tl(p, "dot")]
        text = " * ".join(tree.parenthesise(tree.text_of(p)) for p in rest) or "1.0"
        try:
            validate(text)
        except ExpressionError:
            raise NotApplicable("its scale is no expression of arguments") from None
        if len(rest) != len(parts) - 1 or not tree.reads(tree.expression(text)) <= {*self.view.function.params}:
            raise NotApplicable("its scores are more than a scaled dot")
        return text

    def check_end(self, store: ast.stmt, value: ast.expr | None) -> None:
        """Raises NotApplicable unless the tile over the sum is stored."""
        behind: dict[str, ast.expr] = {}
        body = self.view.body
        for stmt in body[body.index(self.loop) + 1 : body.index(store)]:
            if pair := tree.assignment(stmt):
                behind[pair[0]] = tree.substitute(pair[1], behind)
        whole = _uncast(tree.substitute(value, behind)) if value else None
        if whole is None or not any(are_alike(whole, end.format(self.tile, self.sum)) for end in ENDS):
            raise NotApplicable("what it stores is not the tile over the sum")


def _uncast(node: ast.expr) -> ast.expr:
    """The expression without a last `.to(...)`."""
    match node:
        case ast.Call(ast.Attribute(inner, "to")):
            return inner
    return node
