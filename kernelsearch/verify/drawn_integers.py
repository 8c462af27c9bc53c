"""Other integers, truth values and numbers that a task's inputs could have, so that branches that they decide run.

Values of floats are a regime's, whatever the task draws; those of flags, lengths and indices have a meaning. They are
those of other draws of the task, some of them chosen for what is rare (lengths that end with a block, a part that has
most of an axis), in part with flags of both kinds, in part any in the range of its draws, or all at one end of it,
where sums are largest, or all near one number, where spans are empty and neighbours equal. Whether a task takes such
values shows on its own reference and kernel: what these do not agree on is not judged.

Integers that describe other inputs keep what they mean, which shows in a task's own draws. The offsets at which parts
of an axis begin (`cu_seqlens`) stay a partition of it, with parts that are empty or hold all; the ids of a row that are
never twice in it (`topk_ids`) stay so, at `ends` the same ones in all rows; slots that no draw has twice stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import torch

from kernelsearch.verify.domains import is_whole
from kernelsearch.verify.pieces import holds_flags
from kernelsearch.verify.planted import plant_between
from kernelsearch.verify.regime_words import LONE, REACHING

FROM_ZERO = 0.0625, 1.0
"""Values of a number that is 0 in all of a task, which often means that something is off."""


def draw_integers(
    draws: Sequence[Sequence[Any]],
    fixed: Sequence[bool],
    regime: str,
    seed: int,
    numbers: Sequence[float] = (),
    elsewhere: Sequence[Sequence[Any]] = (),
) -> list[Any]:
    """The last of these draws of a task's inputs with the integers of a regime; fixed marks inputs that stay, numbers
    are the reference's own, which may mean something, as the token that ends a text. elsewhere has draws at other
    shapes, whose range is that of REACHING.

    At `ends` four successive seeds have all tensors at one end or the other, then by turns at both. Numbers that differ
    in all draws though chance would repeat some, as slots that are written, stay as they are drawn.
    """
    generator, changed = torch.Generator().manual_seed(seed * 1021 + sum(map(ord, regime))), list(draws[-1])
    regime = "spread" if regime == REACHING else regime  # over another range
    ranges: dict[int, tuple[int, int]] = {}  # flags have none
    places = [p for p, (value, stays) in enumerate(zip(draws[-1], fixed, strict=True)) if is_drawn(value) and not stays]
    own = {p: [draw[p] for draw in draws] for p in places}
    offsets = {p for p in places if all(_is_partition(draw[p], draw) for draw in draws)}
    ids = {p for p in places if own[p][0].dim() > 1 and _must_differ(own[p], in_rows=True)}
    places = [p for p in places if p in offsets or not _must_differ(own[p])]
    for position in places:
        others = [v for draw in elsewhere for v in draw[position : position + 1] if is_whole(v) and not v.is_meta]
        ends = [end for v in (*own[position], *others) for end in map(int, v.long().aminmax())]
        if not {*ends} <= {0, 1}:
            ranges[position] = _find_range(ends, draws[-1][position].dtype)
    shared = (max(r[0] for r in ranges.values()), min(r[1] for r in ranges.values())) if ranges else (0, 0)
    near = int(torch.randint(shared[0], shared[1] + 1, (), generator=generator)) if shared[0] <= shared[1] else None
    for number, position in enumerate(places):
        value, flags = draws[-1][position], position not in ranges
        shape = value.shape or torch.Size((1,))
        if (flags and regime != "reseeded") or regime in ("spread", "ends", "near", LONE):
            least, most = ranges.get(position, (0, 1))
            last = seed % 2 ^ (seed // 2 & number) % 2
            if position in offsets:
                drawn = _draw_partition(int(value[-1]), value.numel(), regime, last, generator)
            elif position in ids:
                drawn = _draw_ids(shape, least, most, regime, last, generator)
            elif regime == "ends":
                drawn = torch.full(shape, most if last else least)
            elif regime == LONE:
                drawn = plant_between(shape, least, most, seed, generator)
            elif flags:
                drawn = _draw_flags(shape, generator)
            elif regime == "spread":
                marks = [int(number) for number in numbers if least <= number <= most and number % 1 == 0]
                drawn = torch.randint(least, most + 1, shape, generator=generator)
                drawn = _make_rare(_move_near(drawn, generator).clamp(least, most), marks, generator)
            else:
                base = int(torch.randint(least, most + 1, (), generator=generator)) if near is None else near
                drawn = torch.randint(-1, 2, shape, generator=generator) + base
                if most - least >= 2**32:  # 32 bits do not tell these apart
                    drawn += torch.randint(-1, 2, shape, generator=generator) * 2**32
                drawn = drawn.clamp(least, most)
            changed[position] = torch.empty_like(value).copy_(drawn.reshape(value.shape))
    return changed


def choose_draws(draws: Sequence[Sequence[Any]], most: int) -> list[int]:
    """The numbers of those draws of a task's inputs, `most` at most, whose integers are rare in what kernels get wrong.

    Of each tensor, small ones first as lengths and offsets are: that with the most positive multiples of 128, else of
    64, 32, 16; with the longest step between neighbours; with the largest sum, and the least.
    """
    places = [p for p, v in enumerate(draws[0]) if is_whole(v) and not v.is_meta] if draws else []
    places = [p for p in places if any(not torch.equal(draws[0][p], draw[p]) for draw in draws[1:])]
    ranks = (
        lambda v: [int(((v > 0) & (v % block == 0)).sum()) for block in (128, 64, 32, 16)],
        lambda v: [int(v.diff().abs().max())] if v.shape[-1:] > (1,) else [0],
        lambda v: [int(v.sum())],
        lambda v: [-int(v.sum())],
    )
    chosen: dict[int, None] = {}
    for rank in ranks:
        for place in sorted(places, key=lambda p: draws[0][p].numel()):
            chosen[max(range(len(draws)), key=lambda n: rank(draws[n][place].long()))] = None
    return [*chosen][:most]


def _is_partition(value: torch.Tensor, inputs: Sequence[Any]) -> bool:
    """Whether integers rise from 0 to the length of an axis of other inputs, and are more than each next one."""
    if value.dim() != 1 or value.numel() < 3 or int(value[0]) != 0:
        return False
    lengths, steps = (
        {n for x in inputs if isinstance(x, torch.Tensor) and x is not value for n in x.shape},
        value.diff(),
    )
    return int(value[-1]) in lengths and bool((steps >= 0).all()) and not bool((steps == 1).all())


def _draw_partition(total: int, count: int, regime: str, last: int, generator: torch.Generator) -> torch.Tensor:
    """Offsets of other parts: of any sizes, all but the first or the last one empty, or nearly all of one size."""
    cuts = torch.randint(0, total + 1, (count - 2,), generator=generator)
    if regime == "ends":
        cuts = torch.full_like(cuts, 0 if last else total)
    elif regime == "near":
        cuts = (cuts[:1] + torch.randint(-1, 2, cuts.shape, generator=generator)).clamp(0, total)
    return torch.cat([cuts.new_zeros(1), cuts.sort().values, cuts.new_full((1,), total)])


def _draw_ids(
    shape: torch.Size, least: int, most: int, regime: str, last: int, generator: torch.Generator
) -> torch.Tensor:
    """Ids that no row has twice: any, or in all rows the least, the largest, or neighbours."""
    span, width = most - least + 1, shape[-1]
    if regime == "spread" and span <= 2**12:
        return torch.rand((*shape[:-1], span), generator=generator).argsort(-1)[..., :width] + least
    first = {"ends": (span - width) * last, "near": int(torch.randint(0, span - width + 1, (), generator=generator))}
    order = torch.rand(shape, generator=generator).argsort(-1)
    return order + least + first.get(regime, 0)


def _draw_flags(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Zeros and ones, of which one is rare in each row, by a secret share; both are there."""
    share = _draw_shares(shape, generator)
    rare = torch.randint(0, 2, share.shape, generator=generator)
    flags = torch.where(torch.rand(shape, generator=generator) < share, rare, 1 - rare)
    if flags.numel() > 1 and bool((flags == flags.view(-1)[0]).all()):
        flags.view(-1)[torch.randint(0, flags.numel(), (), generator=generator)] ^= 1
    return flags


def _draw_shares(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """A share for each row, log-uniform from 1/2 to that of half an element."""
    octaves = math.log2(max(2, shape[-1]))
    return 2.0 ** -(1 + octaves * torch.rand((*shape[:-1], 1), generator=generator))


def _move_near(drawn: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """These numbers, half of those from 16 on at a multiple of a power of 2 or beside it, where blocks end."""
    octaves = torch.log2(drawn.clamp(min=16).double()).long()
    power = 2 ** (4 + (torch.rand(drawn.shape, generator=generator) * (octaves - 3)).long())
    beside = drawn // power * power + torch.randint(-1, 2, drawn.shape, generator=generator)
    return torch.where((drawn >= 16) & (torch.rand(drawn.shape, generator=generator) < 0.5), beside, drawn)


def _make_rare(drawn: torch.Tensor, marks: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """These numbers, in three of four rows rare among equal ones, by a secret share.

    In three of four of these rows the rare ones are one of the marks, if there are any.
    """
    draw, rows = dict[str, Any](generator=generator), (*drawn.shape[:-1], 1)
    share, common = _draw_shares(drawn.shape, generator), torch.randint(0, drawn.shape[-1], rows, **draw)
    equal, many = drawn.gather(-1, common), torch.rand(rows, **draw) < 0.25
    if marks:
        marked = torch.tensor(marks)[torch.randint(0, len(marks), rows, **draw)]
        drawn = torch.where(many | (torch.rand(rows, **draw) < 0.25), drawn, marked)
    return torch.where((torch.rand(drawn.shape, **draw) < share) | many, drawn, equal)


def _must_differ(draws: Sequence[torch.Tensor], in_rows: bool = False) -> bool:
    """Whether no draw, or no row of one, has a number twice, where independent ones in their range would on the average
    have 5 twice.

    Negative numbers, which often mean that there is none, may repeat.
    """
    places = [
        value.long().reshape(-1, value.shape[-1] if in_rows and value.dim() else max(1, value.numel()))
        for value in draws
    ]
    known = [value[value >= 0] for value in places]
    ends = [end for value in known if value.numel() for end in map(int, value.aminmax())]
    twice = sum(len(value) * value.shape[1] * (value.shape[1] - 1) / 2 for value in places)
    likely = bool(ends) and twice / (max(ends) - min(ends) + 1) >= 5
    ordered = (value.sort(-1).values for value in places)
    return likely and not any(bool(((v.diff() == 0) & (v[:, 1:] >= 0)).any()) for v in ordered)


def _find_range(ends: Sequence[int], dtype: torch.dtype) -> tuple[int, int]:
    """The range of these draws, to the end of a wide type's range where a draw came near it."""
    least, most, info = min(ends), max(ends), torch.iinfo(dtype)
    if dtype.itemsize >= 4:
        least = info.min if least < 0.99 * info.min else least
        most = info.max if most > 0.99 * info.max else most
    return max(least, -(2**62)), min(most, 2**62)


def draw_scalars(own: Sequence[Any], seed: int, wide: float = 4.0) -> list[Any]:
    """Other values of an input that is a number, given its own at all of a task's shapes.

    A truth value, 0 or 1 has both, another integer those of other shapes, if they are few, and if it is the same at
    all, secret ones near it. A float has a quarter and four times of what the task gives, or `wide` times (of what is
    near 1 its square and root; of 0 alone FROM_ZERO), the ends of a range, and secret ones.
    """
    kinds = {type(value) for value in own}
    if kinds <= {bool} or (kinds == {int} and {*own} <= {0, 1}):
        return [kind(value) for kind in kinds for value in (0, 1)]
    if kinds == {int}:
        return sorted({*own}) if 1 < len({*own}) < 5 else _draw_near(own[0], seed) if len({*own}) == 1 else []
    if kinds != {float}:
        return []
    sized = [value for value in own if value]
    if not all(1e-30 < abs(v) < 1e30 for v in sized) or min(own) < 0.0 < max(own):
        return []
    low, high = FROM_ZERO
    if sized:
        ends = (min(sized, key=abs), 1 / wide, 2.0), (max(sized, key=abs), wide, 0.5)
        low, high = sorted(v**power if 0.125 < v < 1.0 and wide <= 4 else v * by for v, by, power in ends)
    rng = Random(f"{seed}/scalars")
    return [low, *(low * (high / low) ** ((half + rng.random()) / 2) for half in (0, 1)), high]


def _draw_near(value: int, seed: int) -> list[int]:
    """A smaller and a larger number: a count stays one, and what is negative, as labels of -100 are, is not as well."""
    rng, most = Random(f"{seed}/near"), min(3, value - 1) if value > 0 else 3
    less = [value - rng.randint(1, most)] if most else []
    return [*less, rng.randint(0, 3) if value < 0 else value + rng.randint(1, 3)]


def is_drawn(value: Any) -> bool:
    """True for a tensor of integers or truth values, and for one of floats that are 0 and 1."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return is_whole(value)
    return value.dtype.itemsize > 1 and value.numel() > 1 and holds_flags(value)
