"""Judging inputs: several regimes of floating values, mixed along one axis of a tensor or filling all of it.

Only floating tensors change. Integers, scalars, 0-d tensors and masks (only zeros and ones, or with an infinity) stay
as the task made them. One-dimensional tensors next to larger ones (weights, biases) get zero-mean noise in every
regime, which shows a kernel that ignores them. One regime more, OWN, has the values that the task draws, where they are
not like noise: a kernel could be wrong on all of those and right on the others.

There is no NaN or infinity among the inputs, because `tl.maximum` and `torch.maximum` differ on them and an honest
kernel would pay for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch

from kernelsearch.verify.pieces import change_in_pieces, copy_tensor, empty_in_layout

MIXED, OWN = "mixed", "own"
ROTATION = (MIXED, "randn", "integers")
HUGE = 1e4
OFFSET = 10.0
LARGEST_INTEGER = 2
LONGEST_HALF_SUM = 2**14
"""Terms of the longest sum in 16 bits that is kept in range: beyond it values would be less than 2."""
SHRINK = 0.05
"""The largest share by which a sample's values are smaller: a dozen roundings of bfloat16."""
ZERO_MEAN = frozenset({"randn", "large", "huge", "outlier"})
"""Regimes on which precision is judged: their terms differ, and roundings do not add up with one sign."""
ONE_TERM = frozenset({"huge"})
"""Regimes in which one term decides, so that its own rounding to 16 bits is the error of a whole row."""


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
    domain: Mapping[str, str] | None = None,
    rows: int | None = None,
    precision: str = "ieee",
) -> list[Any]:
    """Inputs of the same shapes, dtypes, strides and devices with the values of a regime.

    names are the inputs' names, in order, for domain: `{"x": "positive"}` with `positive`, `nonnegative`,
    `unit` (0 to 1) or `fixed` (leave as it is). rows is the length of the output's first axis: regimes are mixed
    along the input's axis of that length, and each part of the output sees one regime. Where precision allows sums in
    16 bits, sums of products of two float16 inputs stay in range.
    """
    if regime not in ALL:
        raise ValueError(f"regime is one of {', '.join(ALL)}, not {regime!r}")
    domains = list_domains(inputs, names, domain)
    largest = max((x.dim() for x in inputs if is_data(x)), default=0)
    room = _find_room(inputs) if precision == "half-accumulate" else math.inf
    changed = []
    for position, (value, limit) in enumerate(zip(inputs, domains)):
        if not is_data(value) or limit == "fixed":
            changed.append(copy_tensor(value) if isinstance(value, torch.Tensor) else value)
            continue
        generator = torch.Generator(device=value.device).manual_seed(seed * 1009 + position)
        minor = value.dim() < min(2, largest)
        own = "randn" if minor and regime != "integers" else regime
        values = _draw(value, own, generator, seed, rows, room if value.dtype == torch.float16 else math.inf)
        changed.append(_lay_out(value, narrow(values, limit)))
    return changed


def list_domains(inputs: Sequence[Any], names: Sequence[str], domain: Mapping[str, str] | None) -> list[str | None]:
    """The domain of each input, None where there is none."""
    return [(domain or {}).get(name) for name, _ in zip_longest(names, inputs)]


def suggest_domain(inputs: Sequence[Any], names: Sequence[str]) -> dict[str, str]:
    """A DOMAIN that inputs are inside: those that are never negative, else all of them as they are."""
    ends = {name: tuple(map(float, value.aminmax())) for name, value in zip(names, inputs) if is_data(value)}
    narrower = {
        name: "unit" if most <= 1 else "positive" if least > 0 else "nonnegative"
        for name, (least, most) in ends.items()
        if least >= 0
    }
    return narrower or dict.fromkeys(ends, "fixed")


def move_inputs(inputs: Sequence[Any], seed: int, shrink: float) -> list[Any]:
    """Inputs that are as good a sample of the same errors: half of the values one rounding nearer to 0, all smaller.

    Values are smaller by one factor for all tensors, at most by the share `shrink`. Without it a sum that is rounded
    to 16 bits on the way would be rounded the same way in each sample, and its error look like none.
    """
    moved = list(inputs)
    factor = 1.0 - shrink * float(torch.rand((), generator=torch.Generator().manual_seed(seed * 113 + 5)))
    for position, value in enumerate(inputs):
        if is_data(value) and value.dtype.itemsize > 1:  # torch does no arithmetic with floats of 8 bits
            generator = torch.Generator(device=value.device).manual_seed(seed * 109 + position)

            def move(part: torch.Tensor, generator: torch.Generator = generator) -> None:
                chosen = torch.rand(part.shape, generator=generator, device=part.device) < 0.5
                part.copy_(torch.where(chosen, torch.nextafter(part, torch.zeros_like(part)), part) * factor)

            moved[position] = change_in_pieces(copy_tensor(value), move)
    return moved


def are_noise(inputs: Sequence[Any]) -> bool:
    """Whether the task's own values are much like those of `randn`, so that they would show nothing more."""
    data = [x.double() for x in inputs if is_data(x)]
    return all(abs(float(x.mean())) < 0.5 and 0.5 < float(x.std(correction=0)) < 2.0 for x in data)


def is_data(value: Any) -> bool:
    """True if a regime replaces this input's values."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dim() == 0 or not value.numel():
        return False
    wide = value.float() if value.dtype.itemsize < 2 else value
    ends = tuple(map(float, wide.aminmax()))
    if ends != (0.0, 1.0):
        return all(map(math.isfinite, ends))
    return not bool(((wide == 0) | (wide == 1)).all())


# ---------------------------------------------------------------- the regimes, each a function of zero-mean noise


def _spread(dtype: torch.dtype) -> float:
    """The least noise around OFFSET that the dtype still resolves."""
    return max(1e-3, 4 * torch.finfo(dtype).eps * OFFSET)


def _sparse(noise: torch.Tensor, value: torch.Tensor, generator: torch.Generator, seed: int) -> torch.Tensor:
    """One element in twenty, and none in the middle half of the rows: whole blocks are zero."""
    keep = torch.rand(noise.shape, generator=generator, device=noise.device) < 0.05
    if noise.dim() >= 2:
        rows = noise.shape[-2]
        keep[..., rows // 4 : rows - rows // 4, :] &= rows < 4
    return torch.where(keep, noise, 0.0)


def _outlier(noise: torch.Tensor, value: torch.Tensor, generator: torch.Generator, seed: int) -> torch.Tensor:
    """One large element a row, at the first, the last or a block's edge; one in three is beyond the range of exp."""
    width = noise.shape[-1]
    edges = sorted({0, width - 1, width // 2, *(e for p in range(4, 15) for e in (2**p - 1, 2**p) if e < width)})
    flat = noise.reshape(-1, width).clone()
    row = torch.arange(flat.shape[0], device=noise.device)
    column = torch.tensor(edges, device=noise.device)[(row + seed) % len(edges)]
    size = torch.where((row + seed) % 3 == 0, 300.0, 30.0)
    flat[row, column] = (size * torch.where((row + seed) % 4 < 3, 1.0, -1.0)).to(flat.dtype)
    return flat.reshape(noise.shape)


def _integers(noise: torch.Tensor, value: torch.Tensor, generator: torch.Generator, seed: int) -> torch.Tensor:
    ends = (-LARGEST_INTEGER, LARGEST_INTEGER + 1)
    return torch.randint(*ends, noise.shape, generator=generator, device=noise.device).to(noise.dtype)


_Regime = Callable[[torch.Tensor, torch.Tensor, torch.Generator, int], torch.Tensor]
_REGIMES: Mapping[str, _Regime] = {
    "randn": lambda noise, *_: noise,
    "large": lambda noise, *_: noise * 20,
    "offset": lambda noise, value, *_: noise * _spread(value.dtype) + OFFSET,
    "outlier": _outlier,
    "huge": lambda noise, *_: noise * HUGE,
    "tiny": lambda noise, value, *_: noise * max(1e-6, 16 * torch.finfo(value.dtype).tiny),
    "sparse": _sparse,
    "negative": lambda noise, *_: -noise.abs(),
}
ALL: tuple[str, ...] = (*ROTATION, *(name for name in _REGIMES if name != "randn"))
"""Every regime, the cheapest evidence first."""


def _find_room(inputs: Sequence[Any]) -> float:
    """The largest size at which products of two values, summed along the longest axis, are within float16's range."""
    terms = max((max(x.shape) for x in inputs if is_data(x)), default=1)
    return math.sqrt(torch.finfo(torch.float16).max / min(terms, LONGEST_HALF_SUM))


def _fit(values: torch.Tensor, room: float) -> torch.Tensor:
    """The values, scaled down as a whole where one exceeds the room."""
    return values * min(1.0, room / float(values.abs().amax().clamp_min(1e-30)))


def _draw(
    value: torch.Tensor, regime: str, generator: torch.Generator, seed: int, rows: int | None, room: float
) -> torch.Tensor:
    noise = torch.randn(value.shape, generator=generator, device=value.device, dtype=torch.float32).clamp(-6, 6)
    if value.dtype == torch.float64:
        noise = noise.double()
    if regime == "integers":
        return _integers(noise, value, generator, seed)
    if regime != MIXED:
        return _fit(_REGIMES[regime](noise, value, generator, seed), room)
    axis = _mixing_axis(value, rows)
    length = value.shape[axis]
    places = torch.arange(length, device=value.device)
    if value.dim() == 1:  # neighbours share a regime
        which = places * len(_REGIMES) // max(length, len(_REGIMES))
    else:
        which = (places + seed) % len(_REGIMES)
    which = which.reshape([-1 if a == axis else 1 for a in range(value.dim())])
    result = _fit(noise, room)
    for number, transform in enumerate(_REGIMES.values()):
        if number and bool((which == number).any()):
            result = torch.where(which == number, _fit(transform(noise, value, generator, seed), room), result)
    return result


def _mixing_axis(value: torch.Tensor, rows: int | None) -> int:
    if rows is None or value.shape[0] == rows:
        return 0
    return next((axis for axis in range(value.dim() - 1, -1, -1) if value.shape[axis] == rows), 0)


def narrow(values: torch.Tensor, limit: str | None) -> torch.Tensor:
    """The values brought into a domain."""
    match limit:
        case None:
            return values
        case "positive":
            return values.abs().clamp_min(1e-3)
        case "nonnegative":
            return values.abs()
        case "unit":
            return torch.sigmoid(values)
    raise ValueError(f"a domain is positive, nonnegative, unit or fixed, not {limit!r}")


def lie_outside(
    inputs: Sequence[Any], drawn: Sequence[Any], rows: Sequence[int], rows_in_all: int | None, regime: str
) -> bool:
    """Whether the values behind each of these rows of an output are others than the task's own inputs (drawn) have.

    Where regimes are mixed, a row of an input along which they are stands for that row of the output.
    """

    def parts(value: torch.Tensor, row: int | None) -> torch.Tensor:
        axis = _mixing_axis(value, rows_in_all)
        mixed = regime == MIXED and row is not None and value.shape[axis] == rows_in_all
        return value.select(axis, row) if mixed else value

    data = [(value, own) for value, own in zip(inputs, drawn) if is_data(own)]
    return not any(all(_is_among(parts(v, row), own) for v, own in data) for row in (rows or [None]))


def _is_among(values: torch.Tensor, drawn: torch.Tensor) -> bool:
    """Whether values lie in the range of drawn ones, which is half a range wider on both sides but keeps its sign."""
    low, high = (float(v) for v in drawn.float().aminmax())
    room = (high - low) / 2
    least = max(low - room, 0.0) if low >= 0 else low - room
    most = min(high + room, 0.0) if high <= 0 else high + room
    first, last = (float(v) for v in values.float().aminmax())
    return least <= first and last <= most


def _lay_out(value: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The values in the input's dtype and strides, at most its largest number divided by 1.05."""
    bound = torch.finfo(value.dtype).max / 1.05
    return empty_in_layout(value).copy_(values.clamp(-bound, bound))
