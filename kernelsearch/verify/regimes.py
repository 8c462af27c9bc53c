"""Judging inputs: several regimes of floating values, mixed along one axis of a tensor or filling all of it.

Only floating tensors change. Integers, scalars, 0-d tensors and masks (only zeros and ones, or with an infinity) stay
as the task made them. One-dimensional tensors next to larger ones (weights, biases) get zero-mean noise in every
regime but `whole`, which shows a kernel that ignores them. One regime more, OWN, has the values that the task draws,
where they are not like noise: a kernel could be wrong on all of those and right on the others.

**Scales are secret.** A kernel can be right at any fixed scales and wrong between them. So each tensor (`whole`), row
(`scaled`, `shifted`) and block of columns (`blocks`) has its own, log-uniform between 1e-4 and 1e4: 26.6 octaves. The
scales of one verdict are a secret start and steps of the golden ratio: n of them leave no gap that is wider than
1.894/n of the whole (the three-gap theorem), so that 54 (`WANTED`) always hit a band of one octave, but for what noise
adds at its edges; n independent ones would miss it with (1 - 1/26.6)**n, 1 % at 122. Beyond, `far` and `extreme`
scale the rows of one tensor; twenty full verdicts miss an octave of their 40 and 186 with (1 - 1/40)**200 = 0.6 % and
(1 - 1/186)**880 = 0.9 % at most.
`extreme` has no large values where the reference has exponentials: beyond 2**FAR_HIGH the rounding of an exponent in
float32 can be larger than all that exp takes, and an honest kernel may give NaN.

There is no NaN among the inputs, and infinity only in `masked`, because `tl.maximum` and `torch.maximum` differ on NaN
and an honest kernel would pay for it. The regimes of OPTIONAL count where the task's own kernel is right on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelsearch.verify.domains import is_data, is_whole, list_domains, narrow
from kernelsearch.verify.pieces import copy_tensor, lay_out
from kernelsearch.verify.planted import fill_range, plant
from kernelsearch.verify.regime_words import OPTIONAL, PLANTED, REDRAWN
from kernelsearch.verify.scales import (
    MIDDLE,
    SINGLE,
    Draw,
    cancel_pairs,
    count_runs,
    draw_octaves,
    find_mixing_axis,
    grid_scales,
    step_rarely,
)

MIXED, OWN, COPIED = "mixed", "own", "copied"
ROTATION = (MIXED, "randn", "integers")
OFFSET = 10.0
OPPOSED = "opposed"
"""The regime in which inputs are of one sign each, in turn, so that sums of products are far below zero."""
LARGEST_INTEGER = 2
LONGEST_HALF_SUM = 2**14
"""Terms of the longest sum in 16 bits that is kept in range: beyond it values would be less than 2."""
SHRINK = 0.05
"""The largest share by which a sample's values are smaller: a dozen roundings of bfloat16."""
FAR_HIGH, FAR_LOW = 26.0, -40.0
"""The octaves between which `far` lies, and beyond which `extreme` does."""
WANTED = {"scaled": 54, "whole": 54, "far": 10, "extreme": 44}
"""Scales that a full verdict has of a regime at least: of rows, and of the whole tensor."""
ZERO_MEAN = frozenset({"randn", "scaled", "whole", "outlier", "large", "huge"})
"""Regimes on which precision is judged: their terms differ, and roundings do not add up with one sign."""
ONE_TERM = frozenset({"scaled", "blocks", "whole", "far", "extreme", "huge"})
"""Regimes in which one term may decide, so that its own rounding to 16 bits is the error of a whole row."""
UNEVEN = frozenset({MIXED, "scaled", "blocks", "shifted", "far", "extreme"})
"""Regimes in which neighbours may differ in scale."""
WHOLE = frozenset({"integers", "multiples"})
"""Regimes of small whole numbers, and of multiples of a number of the reference, at which it may have an edge."""
SMALL = frozenset({"randn", OWN, *WHOLE, COPIED, "negative", "sparse", *REDRAWN})
"""Regimes in which no value is so large that an exponential of it overflows."""
BY_ROW = UNEVEN - {"blocks"}
EXPONENTIALS = ("exp", "softmax", "logsumexp", "attention", "log_sum_exp", "cross_entropy", "nll")
"""Parts of the names of operations after which large values are no judge (`extreme`), and -inf is one (`masked`)."""


def plan_regimes(depth: str, n_shapes: int) -> tuple[tuple[str, ...], ...]:
    """The regimes of each test shape: one a shape, in rotation, for `screen`; all of them for `full`."""
    if depth == "full":
        return (ALL,) * n_shapes
    if depth != "screen":
        raise ValueError(f"depth is 'screen' or 'full', not {depth!r}")
    return tuple((ROTATION[i % len(ROTATION)],) for i in range(n_shapes))


def make_inputs(
    inputs: Sequence[Any],
    regime: str,
    seed: int,
    *,
    names: Sequence[str] = (),
    domain: Mapping[str, Any] | None = None,
    rows: int | None = None,
    precision: str = "ieee",
    exponentials: bool = True,
    number: float = 1.0,
) -> list[Any]:
    """Inputs of the same shapes, dtypes, strides and devices with the values of a regime.

    names are the inputs' names, in order, for domain: `{"x": "positive"}` with `positive`, `nonnegative`, `unit`
    (0 to 1), a range `(low, high)`, `finite` (no infinity) or `fixed` (leave as it is). rows is the length of the
    output's first axis: values differ along the input's axis of that length, and each part of the output sees one
    scale. Where precision allows sums in 16 bits, sums of products of two float16 inputs stay in range. exponentials
    says that the reference has some, or that it is not known. number is that of `multiples` and `copied`.
    """
    known = (*ALL, *OPTIONAL, *_REGIMES, *WHOLE, COPIED, OPPOSED, PLANTED)
    if regime not in known:
        raise ValueError(f"regime is one of {', '.join(known)}, not {regime!r}")
    domains = list_domains(inputs, names, domain)
    free = [p for p, (x, limit) in enumerate(zip(inputs, domains)) if is_data(x) and limit != "fixed"]
    largest = max((inputs[p].dim() for p in free), default=0)
    major = [p for p in free if inputs[p].dim() >= min(2, largest)]
    chosen = major[seed % len(major)] if major else -1
    alone = major[seed // 2 % len(major)] if major and seed % 2 else -1  # its zeros meet any values of others
    room = _find_room(inputs) if precision == "half-accumulate" else math.inf
    changed, widths = list(inputs), set[int]()
    for position, (value, limit) in enumerate(zip(inputs, domains)):
        if position not in free:
            changed[position] = copy_tensor(value) if isinstance(value, torch.Tensor) else value
            continue
        generator = torch.Generator(device=value.device).manual_seed(seed * 1009 + position)
        other = position not in major and regime not in (*WHOLE, "whole")
        unfit = position != chosen or isinstance(limit, (tuple, list)) or (regime == "masked" and limit is not None)
        other = other or (regime in OPTIONAL and unfit) or (regime == "sparse" and alone not in (-1, position))
        other = other or (regime == PLANTED and position != chosen)
        own = "randn" if other or regime == COPIED else regime
        fits = room if value.dtype == torch.float16 else math.inf
        grid = grid_scales(value, rows, [inputs[p].shape for p in free].count(value.shape) == 1)
        turn = seed // max(1, len(major)) if own == PLANTED else seed
        values = _draw(value, own, Draw(generator, turn, position, rows, grid, fits, exponentials, number))
        if own == PLANTED and isinstance(limit, (tuple, list)):
            values = fill_range(values, *limit)
        if own == "blocks":
            values = _fit(_scale_blocks(values, seed, widths), fits)
        changed[position] = lay_out(value, narrow(values, limit))
    for position in free if regime == COPIED else ():
        others = [v for p, v in enumerate(changed) if p != position and is_data(v)] or [changed[position]]
        generator = torch.Generator(device=inputs[position].device).manual_seed(seed * 1019 + position)
        copied = _copy(changed[position], others[seed % len(others)], generator, number)
        copied = _raise_indexed(copied, [x for x in inputs if is_whole(x)], generator)
        limit = (0.0, 1.0) if domains[position] == "unit" else domains[position]  # what lies in it stays
        changed[position] = lay_out(inputs[position], narrow(copied, limit))
    return changed


def are_noise(inputs: Sequence[Any]) -> bool:
    """Whether the task's own values are much like those of `randn`, so that they would show nothing more."""
    data = [x.double() for x in inputs if is_data(x)]
    return all(abs(float(x.mean())) < 0.5 and 0.5 < float(x.std(correction=0)) < 2.0 for x in data)


# ---------------------------------------------------------------- the regimes, each a function of zero-mean noise


def _lie_near(noise: torch.Tensor, value: torch.Tensor, how: Draw) -> torch.Tensor:
    """OFFSET with the least noise that the dtype still resolves, or by odd seeds with rarer steps, if it is coarse."""
    rare = step_rarely(noise, value.dtype, replace(how, grid=(1,) * noise.dim())) if how.seed % 2 else None
    spread = max(1e-3, 4 * torch.finfo(value.dtype).eps * OFFSET)
    return noise * spread + OFFSET if rare is None else (1.0 + rare) * OFFSET


def _sparse(noise: torch.Tensor, _: torch.Tensor, how: Draw) -> torch.Tensor:
    """One element in twenty, none in the middle half of the rows: whole blocks are zero, with the signs of noise.

    Two in three rows also lose half of their blocks of 64 to 512 columns, which empties groups where rows are few.
    """
    draw: dict[str, Any] = {"generator": how.generator, "device": noise.device}
    keep = torch.rand(noise.shape, **draw) < 0.05
    if noise.dim() >= 2:
        rows = noise.shape[-2]
        keep[..., rows // 4 : rows - rows // 4, :] &= rows < 4
    block = 1 << int(torch.randint(6, 10, (), **draw))
    blocks = torch.rand((*noise.shape[:-1], -(-noise.shape[-1] // block)), **draw) < 0.5
    spared = torch.rand((*noise.shape[:-1], 1), **draw) < 1 / 3
    keep &= (blocks | spared).repeat_interleave(block, -1)[..., : noise.shape[-1]]
    return noise * keep


def _outlier(noise: torch.Tensor, _: torch.Tensor, how: Draw) -> torch.Tensor:
    """One large element a row, at the first, the last or a block's edge; one in three is beyond the range of exp."""
    width = noise.shape[-1]
    edges = sorted({0, width - 1, width // 2, *(e for p in range(4, 15) for e in (2**p - 1, 2**p) if e < width)})
    flat = noise.reshape(-1, width).clone()
    row = torch.arange(flat.shape[0], device=noise.device)
    column = torch.tensor(edges, device=noise.device)[(row + how.seed) % len(edges)]
    size = torch.where((row + how.seed) % 3 == 0, 300.0, 30.0)
    flat[row, column] = (size * torch.where((row + how.seed) % 4 < 3, 1.0, -1.0)).to(flat.dtype)
    return flat.reshape(noise.shape)


def count_scales(inputs: Sequence[Any], rows: int | None) -> int:
    """How many rows have a scale of their own in `scaled`, at least; of one tensor."""
    shapes = [x.shape for x in inputs if is_data(x)]
    counts = [math.prod(grid_scales(x, rows, shapes.count(x.shape) == 1)) for x in inputs if is_data(x) and x.dim() > 1]
    return max((count if count <= SINGLE else 32 for count in counts), default=1)


def _scale_blocks(noise: torch.Tensor, seed: int, widths: set[int]) -> torch.Tensor:
    """The noise with scales for blocks of columns.

    Along an axis as long as an earlier tensor's columns they are inverse, so that each block has a part in a sum of
    products. widths has the lengths so far.
    """
    last = noise.dim() - 1
    inverse = next((a for a, n in enumerate(noise.shape[:-1]) if n in widths), None)
    for axis in {last} if inverse is None else {inverse, last}:
        length = noise.shape[axis]
        generator = torch.Generator(device=noise.device).manual_seed(seed * 1013 + length)
        runs = count_runs(length, max(1, length // 4), generator)
        octaves = draw_octaves(int(runs[-1]) + 1, [(-MIDDLE, MIDDLE)], generator)[runs]
        scales = torch.exp2(-octaves if length in widths else octaves).to(noise.dtype)
        noise = noise * scales.reshape([-1 if a == axis else 1 for a in range(noise.dim())])
    widths.add(noise.shape[last])
    return noise


def _shift(noise: torch.Tensor, value: torch.Tensor, how: Draw) -> torch.Tensor:
    """Rows far from zero: each has its own offset, and noise that is up to 1e4 times smaller.

    In half of the rows of a coarse dtype all values are equal but for some that are one step larger.
    """
    draw: dict[str, Any] = {"generator": how.generator, "device": noise.device}
    offsets = how.scale((-MIDDLE, MIDDLE - 1))
    noise = noise / how.scale((0.0, min(MIDDLE, -math.log2(4 * torch.finfo(value.dtype).eps))))
    signs = torch.randint(0, 2, how.grid, **draw) * 2 - 1
    if (rare := step_rarely(noise, value.dtype, how)) is not None:
        noise = torch.where(torch.rand(how.grid, **draw) < 0.5, noise, rare * signs)
    return (noise + signs) * offsets


def _mask(noise: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rows that begin with a stretch of -inf, as masked logits do; each ends in a finite value.

    Of half of the rows any length is as likely, so that whole blocks of a loop are masked; of the others any octave;
    in one of sixteen all but the last value is.
    """
    width = noise.shape[-1]
    places, coins = torch.rand((2, *noise.shape[:-1], 1), generator=generator, device=noise.device)
    lengths = torch.where(coins < 0.5, width * places, width**places - 1)
    lengths = torch.where(coins > 1 - 1 / 16, width - 1, lengths)
    columns = torch.arange(width, device=noise.device)
    return torch.where(columns < lengths.clamp(max=width - 1), -math.inf, noise)


def _step(noise: torch.Tensor, how: Draw) -> torch.Tensor:
    """Rows in 2 to 32 runs of columns, each around an offset of its own: what holds of one block does not of another.

    In half of the tensors a run is every 2nd to 64th column: what holds of one lane does not of another.
    Each offset is another rung of a ladder from 0 to a secret number between 2 and 64, in half of the rows between 1
    and 256, in any order: so blocks lie at all distances below the largest.
    """
    width, draw = noise.shape[-1], dict[str, Any](generator=how.generator, device=noise.device)
    runs = (torch.rand(width, **draw) < 2 ** (1 + 4 * torch.rand((), **draw)) / width).cumsum(0)
    if bool(torch.rand((), **draw) < 0.5):
        runs = torch.arange(width, device=noise.device) % 2 ** int(torch.randint(1, 7, (), **draw))
    last = int(runs.max())
    place, coin = torch.rand((2, *noise.shape[:-1], 1), **draw)
    largest = 2 ** torch.where(coin < 0.5, 1 + 5 * place, 8 * place)
    rungs = torch.rand((*noise.shape[:-1], last + 1), **draw).argsort(dim=-1, stable=True)
    offsets = (rungs / max(1, last) - torch.rand(largest.shape, **draw)) * largest
    return noise + offsets[..., runs].to(noise.dtype)


def _copy(value: torch.Tensor, other: torch.Tensor, generator: torch.Generator, number: float) -> torch.Tensor:
    """The value with one element in ten from another tensor, two in three of these moved by 2**-20 to 2**-3 of them.

    Of a tensor of the same shape half come from the same place. A number of the reference below 1 may be a tolerance:
    where there is one, half of what is moved is moved by it, times 1 + 2**-13 to 2**-3. In half of the rows the largest
    element is there twice, a power of two apart, as the same lane of two blocks is.
    """
    draw: dict[str, Any] = {"generator": generator, "device": value.device}
    wide = value.double() if value.dtype == torch.float64 else value.float()
    flat, count = wide.flatten(), value.numel()
    of = torch.randint(0, other.numel(), (count,), **draw)
    if other.shape == value.shape:
        of = torch.where(torch.rand(count, **draw) < 0.5, torch.arange(count, device=value.device), of)
    signs, sizes = torch.randint(-1, 2, (count,), **draw), 2.0 ** -(3 + 17 * torch.rand(count, **draw))
    if 0 < abs(number) < 1:
        nearly = 1 + 2.0 ** -(3 + 10 * torch.rand(count, **draw)) * (torch.randint(0, 2, (count,), **draw) * 2 - 1)
        sizes = torch.where(torch.rand(count, **draw) < 0.5, abs(number) * nearly, sizes)
    copied = other.flatten()[of].to(flat.dtype) * (1 + signs * sizes)
    flat = torch.where(torch.rand(count, **draw) < 0.1, copied, flat)  # no place twice: a GPU would keep any of two
    rows = flat.reshape(-1, value.shape[-1])
    octaves = max(1, rows.shape[1] - 1).bit_length()
    apart = 2 ** torch.randint(min(4, octaves - 1), octaves, (len(rows), 1), **draw)
    place = (rows.argmax(1, keepdim=True) + apart) % rows.shape[1]
    twice = torch.rand(place.shape, **draw) < 0.5
    rows.scatter_(1, place, torch.where(twice, rows.amax(1, keepdim=True), rows.gather(1, place)))
    return rows.reshape(value.shape)


def _raise_indexed(value: torch.Tensor, integers: Sequence[torch.Tensor], generator: torch.Generator) -> torch.Tensor:
    """The value where in half of the rows the element that an integer points to has become the row's largest, as a
    label's may be: these two change places.
    """
    for index in integers if value.dim() > 1 else ():
        if index.shape[: value.dim() - 1] == value.shape[:-1]:
            first = index.reshape(*value.shape[:-1], -1)[..., :1].long().to(value.device)
            place, largest = first.clamp(0, value.shape[-1] - 1), value.argmax(-1, keepdim=True)
            coins = torch.rand(place.shape, generator=generator, device=value.device)
            one = torch.where((place == first) & (coins < 0.5), place, largest)
            pair = value.gather(-1, one), value.gather(-1, largest)
            value = value.scatter(-1, one, pair[1]).scatter(-1, largest, pair[0])
    return value


def _list_octaves(regime: str, dtype: torch.dtype, exponentials: bool) -> list[tuple[float, float]]:
    """The intervals of log2 of a scale; values of six times it are still in the dtype's range."""
    info = torch.finfo(dtype)
    most, least = math.log2(info.max) - 3, math.log2(info.tiny)
    ends = [(FAR_LOW, -MIDDLE), (MIDDLE, FAR_HIGH)]
    if regime == "extreme":
        ends = [(least, FAR_LOW), (FAR_HIGH, most)][: 1 if exponentials else 2]
    clamped = [(max(low, least), min(high, most)) for low, high in ends]
    return [(low, high) for low, high in clamped if low < high] or [(max(-MIDDLE, least), min(MIDDLE, most))]


_Regime = Callable[[torch.Tensor, torch.Tensor, Draw], torch.Tensor]
_REGIMES: Mapping[str, _Regime] = {
    "randn": lambda noise, *_: noise,
    "large": lambda noise, _, how: noise * how.scale((0.0, MIDDLE / 2)),
    "offset": _lie_near,
    "outlier": _outlier,
    "huge": lambda noise, _, how: noise * how.scale((MIDDLE / 2, MIDDLE)),
    "tiny": lambda noise, value, how: (
        noise * how.scale((max(-20.0, math.log2(torch.finfo(value.dtype).tiny) + 4), -4.0))
    ),
    "sparse": _sparse,
    "negative": lambda noise, *_: -noise.abs(),
}
"""What `mixed` mixes."""
ALL: tuple[str, ...] = (*ROTATION, "scaled", "blocks", "whole", "shifted", "outlier", "sparse", "negative")
"""Every regime of each test shape, the cheapest evidence first."""


def _find_room(inputs: Sequence[Any]) -> float:
    """The largest size at which products of two values, summed along the longest axis, are within float16's range."""
    terms = max((max(x.shape) for x in inputs if is_data(x)), default=1)
    return math.sqrt(torch.finfo(torch.float16).max / min(terms, LONGEST_HALF_SUM))


def _fit(values: torch.Tensor, room: float) -> torch.Tensor:
    """The values, scaled down as a whole where one exceeds the room."""
    largest = max(map(abs, map(float, values.aminmax())), default=0.0)
    return values * (room / largest) if largest > room else values


def _draw(value: torch.Tensor, regime: str, how: Draw) -> torch.Tensor:
    noise = torch.randn(value.shape, generator=how.generator, device=value.device, dtype=torch.float32).clamp(-6, 6)
    if value.dtype == torch.float64:
        noise = noise.double()
    axis = -1 if value.dim() < 3 or how.seed // 2 % 2 else how.seed // 4 % value.dim()  # of what rises or has steps
    match regime:
        case "integers" | "multiples":
            ends = (-LARGEST_INTEGER, LARGEST_INTEGER + 1)
            drawn = torch.randint(*ends, noise.shape, generator=how.generator, device=noise.device)
            drawn = cancel_pairs(drawn, how.seed, how.generator)
            return drawn.to(noise.dtype) * (how.number if regime == "multiples" else 1)
        case "opposed":
            return _fit((2 + noise.abs()) * (4 if (how.seed + how.position) % 2 else -4), how.room)
        case "blocks":
            return noise
        case "planted":
            most = 1.0 if how.exponentials else max(1.0, abs(how.number))  # beyond a threshold of the reference
            return _fit(plant(noise, how.seed, how.generator) * (32.0 * most), how.room)
        case "scaled":
            return _fit(noise * how.scale((-MIDDLE, MIDDLE), from_seed=True), how.room)
        case "far" | "extreme":
            octaves = _list_octaves(regime, value.dtype, how.exponentials)
            below = torch.randint(0, 2, how.grid, generator=how.generator, device=noise.device) > 0
            return _fit(torch.where(below, -1 - noise.abs(), noise) * how.scale(*octaves, from_seed=True), how.room)
        case "sorted":
            scaled = noise * how.scale((0.0, MIDDLE / 2))
            return _fit(scaled.sort(axis, descending=how.seed % 2 > 0).values, how.room)
        case "stepped":
            return _fit(_step(noise.movedim(axis, -1), how).movedim(-1, axis), how.room)
        case "whole":
            one = replace(how, grid=(1,) * 2)
            return _fit(noise * one.scale((-MIDDLE, MIDDLE), from_seed=True).squeeze(), how.room)
        case "shifted":
            return _fit(_shift(noise, value, how), how.room)
        case "masked":
            return _mask(_fit(noise, how.room), how.generator) if noise.shape[-1] > 1 else _fit(noise, how.room)
    if regime != MIXED:
        return _fit(_REGIMES[regime](noise, value, how), how.room)
    axis = find_mixing_axis(value, how.rows)
    length = value.shape[axis]
    places = torch.arange(length, device=value.device)
    if value.dim() == 1:  # neighbours share a regime
        which = places * len(_REGIMES) // max(length, len(_REGIMES))
    else:
        which = (places + how.seed) % len(_REGIMES)
    which = which.reshape([-1 if a == axis else 1 for a in range(value.dim())])
    result = _fit(noise, how.room)
    for number, transform in enumerate(_REGIMES.values()):
        if number and bool((which == number).any()):
            result = torch.where(which == number, _fit(transform(noise, value, how), how.room), result)
    return result
