"""The limits of an error: a multiple of eager's own error, plus half an ulp, plus the operation's condition.

**Condition.** A backward stable float32 algorithm returns the exact answer of inputs that were moved by
relative amounts of the order of u = 2**-24 (Higham, *Accuracy and Stability of Numerical Algorithms*,
ch. 1 and 3). To first order the answer then moves by sum_j (df_i/dx_j) x_j u d_j with |d_j| <= 1. With
independent random signs d_j its standard deviation is

    c_i = u sqrt( sum_j ((df_i/dx_j) x_j)**2 ),

which `measure_condition` measures without derivatives: the float64 reference is evaluated on x (1 + r u d) and the
largest movement of element i over the draws, divided by r, is taken. The largest of 6 normal draws falls below a tenth
of c_i once in 10**6, so that no element is given an accidental zero. An honest error is several c_i, up to
`accumulation`, by which limits multiply the condition: r is that, at most 16. With r = 1 a sum of -5 c_i ahead of a
ReLU would stay 0 in each draw, where an honest kernel's rounding gives +2 c_i (one element of 10**7 of a large
convolution); with a larger r a step that a rounding takes would be divided by more than it is multiplied by. Of the 8
draws two are others with the sign turned, because half of all draws move away from such an edge.

The inputs alone do not show what cancels inside: in the gradient of a layer norm x_hat c1 and w dy are nearly equal
at a row's outlier, whatever the inputs, and the rounding of either is what is left. So each result of the
reference's own operations moves by u d too (`RoundingMode`), as in stochastic arithmetic (Parker, *Monte Carlo
Arithmetic*, 1997). Where PyTorch may round the operands of convolutions to tf32 their results move by as much as that,
of which eager's few samples know nothing at an edge: 7 of 3 * 10**7 honest elements were on the other side of a clamp.
That does not grow with `accumulation`, nor does what float32 may flush to zero on the way: each limit has it once.

**Eager's error** is a sample of a random variable, by accident 0 now and then. It is taken on the inputs and on 8
neighbours of them (`move_inputs`; 2 where an output has many elements, which are samples too): the rms of all for a
tile's rms, the largest for single elements. The neighbours are up to 5 % smaller, because a sum that is rounded to 16
bits on the way must be rounded differently in each (without it 3 of 200 draws of `s - s.mean()` in bfloat16 were
refused, at up to 1.83 times a limit). Where one rounding is shared by a whole tile (a row of a product whose columns
are alike) its elements are one sample and not 128: the tile's rms is raised by the scatter of the samples.

**Length.** A serial sum of N terms rounds every partial sum s_k: its error is u' sqrt(sum s_k**2) with u' about
u/sqrt(3). For zero-mean terms of size s, sum s_k**2 is about N**2 s**2/2 while c = u s sqrt(N): the error is
0.4 sqrt(N) c. For terms of one sign s_k = k s, and the error is sqrt(N)/3 times u times the sum; inside an
operation (a softmax's denominator, a variance) that reaches the answer as a relative error, which moving
the inputs does not show. Hence the condition that is used is c_i + u |y_i|, and an honest serial kernel may err by
`accumulation` = max(4, sqrt(N)/2) times that. N is an upper bound from the shapes, lowered to what the reference's
operations are seen to sum (`TermsMode`): behind an axis of 2**20 that nothing is summed along an exponential cut short
was accepted, at 0.42 of a limit (now 6.2 times). Where all terms are nearly equal (exp(0) in a row of zeros) the
roundings of one binade have one sign and the error grows with N. Half an ulp at each partial sum of N equal terms
makes at most 3/8 N u of the sum: hence max(4, 3/8 N) in the regimes that are not zero-mean noise. Precision is judged
on the others. The four are what `ex2.approx` (2 ulp, PTX ISA) and a reciprocal cost in a kernel without any sum.

**Three limits**, the first two as in DESIGN, absolute within one tile of a row:

1. rms over a tile  <= max(few * k_rms * scatter * eager's rms, (k_rms / sqrt(3) + 2 / sqrt(m)) * rms half ulp)
                       + few * accumulation * rms condition
2. each element     <= max(k_max * eager's largest error in the tile, max(k_max, 3.25) * half ulp)
                       + peak * accumulation * largest condition in the tile
3. each element     <= 8 * half ulp + max(peak * accumulation, 8 * coarse) * its own condition
                       + 4 * 2**-24 * largest value in the tile

`accumulation` bounds the rms of a long serial sum with a margin of 1.2. The largest of a few thousand such errors lies
near four times their rms: single elements get peak = 2.5 times it where it exceeds the four (on an H100 a serial sum
of 65536 rows erred by 1.12 times a limit without it, in 2 of 2048 columns). So may a tile whose rms is carried by few
elements: few = 1 + (peak - 1) / sqrt(m).

**Picked answers.** Integer inputs (labels, indices) pick one of several numbers that a kernel makes from the same row.
It may make them as the difference of larger ones: a loss as log(sum) + max - x[label], whose rounding is that of the
largest loss the row could have had, although the picked one is near 0. `reach` is the largest answer of an element
over other picks; 4 * 2**-24 of it is added to each limit. Tasks without integer inputs have none.

A correctly rounded answer errs by half an ulp / sqrt(3) in the rms; m is the number of elements that carry the tile's
rms, because few samples scatter. Outside zero-mean noise the factor is at least 3.25 and k_max doubles: equal operands
round to the same side. The factor is so too where values are huge: an attention that lets the compiler fuse `score *
scale - maximum` gets a largest weight that is not 1, and its rounding to 16 bits is that of every element of the row
(15 of 40 draws were 1.13 times a limit without it). coarse is how many times 16-bit operands are coarser than the
compute precision.

The third limit sees a wrong small element next to a large one (a probability set to zero), which the second does not.
It cannot be the only limit, because honest kernels round probabilities to 16 bits before a second matrix product, and
because 1 + erf(x) cancels. Where eager itself is worse, eager's error in units of the third limit widens it.

A tile is up to 128 neighbours of one row (the last axis). Outputs that are 1-D or have a last axis below 16 are cut
into tiles across rows. Where those rows have different regimes, errors are first divided by the element's own unit
(half ulp + condition): then a large row cannot hide a small one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelsearch.verify.pieces import PIECE

COPIES = frozenset(("clone", "_to_copy", "copy_", "cat", "stack", "where", "index", "gather", "_unsafe_view"))
"""Operations that move values without rounding any."""
PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}
"""The position of the operand whose last axis a product sums."""
EIGHT_BIT_SUM, EIGHT_BIT_STEP = 2.0**-14, 32
"""What a partial sum of products of 8-bit floats errs by on Hopper on the average, where 13 bits behind the point are
kept of it, and the terms of a step after which it is cut so: `torch._scaled_mm` keeps no more where it is fast.
"""
TILE = 128
TINY_AXIS = 16
DRAWS = 8
PICKS = 6
SAMPLES = {"few": 8, "many": 2}
"""Samples of eager's error besides that on the inputs themselves, for outputs of few elements and of many."""
MANY = 2**18
ELEMENT_FACTOR = 8.0
SHORT = 4.0
"""`estimate_accumulation` of an operation without a long sum."""
FEW = 16.0
"""The same, where nothing is summed but an axis is long: approximations of exponentials, of which few are needed."""
PEAK = 2.5
FARTHEST = 16.0
"""The r of a condition where honest errors are larger."""
TWO_ROUNDINGS = 3.25
"""The error in half ulps of a 16-bit product of an operand rounded to 16 bits: 1, and 2 where the operand lies at the
start of its binade and the product at the end of its own; the rest is for the float32 arithmetic between them."""
FLOAT32_FACTORS = (8.0, 12.0)
HALF_FACTORS = (2.0, 3.0)
COMPUTE_EPS = {"ieee": 2.0**-24, "tf32x3": 2.0**-22, "tf32": 2.0**-11, "half-accumulate": 2.0**-8}
"""Unit roundoff of the arithmetic that a precision contract allows."""


@dataclass(frozen=True)
class Tiles:
    """The grouping of an output's elements: `count` rows of `width` elements, each cut into tiles of `size`."""

    count: int
    width: int
    size: int

    def split(self, values: torch.Tensor) -> torch.Tensor:
        """The values as (tiles, size), to be read only; the last tile of a row is padded with zeros."""
        flat = _pad(values.reshape(-1), self.count * self.width - values.numel())
        return _pad(flat.reshape(self.count, self.width), -self.width % self.size).reshape(-1, self.size)

    def join(self, split: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """What `split` has made of values of this shape, in that shape again."""
        rows = split.reshape(self.count, -1)[:, : self.width]
        return rows.reshape(-1)[: math.prod(shape)].reshape(tuple(shape))

    @property
    def tile_count(self) -> int:
        return self.count * -(-self.width // self.size)

    def rms(self, values: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return _rms(self.split(values), counts)


@dataclass(frozen=True)
class ErrorLimits:
    """The largest errors that an output may have; all float64.

    element has the output's shape; rms has one value a tile; unit, if there is one, divides an error before the rms
    is taken; counts are the judged elements of each tile.
    """

    tiles: Tiles
    element: torch.Tensor
    rms: torch.Tensor
    unit: torch.Tensor | None
    counts: torch.Tensor


def _pad(values: torch.Tensor, zeros: int) -> torch.Tensor:
    """The values with so many zeros behind each row: themselves without any, which saves a copy."""
    return torch.nn.functional.pad(values, (0, zeros)) if zeros else values


def tiles_of(shape: Sequence[int]) -> Tiles:
    numel = math.prod(shape)
    if len(shape) >= 2 and shape[-1] >= TINY_AXIS:
        width = shape[-1]
        return Tiles(max(1, numel // width), width, -(-width // -(-width // TILE)))
    size = min(TILE, max(1, numel))
    return Tiles(max(1, -(-numel // TILE)), size, size)


def list_pieces(shape: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last element, flat, of each piece of an output: pieces end where a tile and its row end."""
    numel, width = math.prod(shape), tiles_of(shape).width
    step = max(1, PIECE // width) * width
    return [(start, min(start + step, numel)) for start in range(0, numel, step)]


def shape_of_piece(shape: Sequence[int], start: int, stop: int) -> tuple[int, ...]:
    """The shape of a piece: whole rows, or one axis where tiles do not follow rows."""
    rows = len(shape) >= 2 and shape[-1] >= TINY_AXIS
    return ((stop - start) // shape[-1], shape[-1]) if rows else (stop - start,)


def take(values: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """A piece of an output's values."""
    return values.reshape(-1)[start:stop].reshape(shape_of_piece(values.shape, start, stop))


def half_ulp_of(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Half the distance between neighbours of dtype around float64 values, plus the error of flushing to zero."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(values.abs().clamp(min=info.tiny, max=info.max))
    spacing = torch.ldexp(torch.full_like(values, info.eps), exponent - 1)
    # float32 arithmetic may flush what is below 2**-126 (`.ftz`); float16 keeps its subnormals.
    flushed = info.tiny if dtype in (torch.float32, torch.bfloat16) else 0.0
    return spacing / 2 + flushed


@dataclass(frozen=True)
class EagerErrors:
    """The errors of eager PyTorch in one output, of several samples: rms and largest of each element.

    scatter is, for each tile, how many times the worst sample's rms exceeds that of all samples.
    """

    rms: torch.Tensor
    largest: torch.Tensor
    scatter: torch.Tensor

    def take(self, shape: Sequence[int], start: int, stop: int) -> EagerErrors:
        """The errors of one piece of an output of this shape."""
        tiles = tiles_of(shape)
        first = start // tiles.width * -(-tiles.width // tiles.size)
        after = first + tiles_of(shape_of_piece(shape, start, stop)).tile_count
        rms, largest = (take(t, start, stop) for t in (self.rms, self.largest))
        return EagerErrors(rms, largest, self.scatter[first:after])


def estimate_accumulation(
    inputs: Sequence[Any], numel: int, zero_mean: bool, most: float = math.inf, longest: float = 1.0
) -> float:
    """The error that an honest serial kernel may make, in units of its condition; N is capped at 2**20.

    N is the longest axis of an input, or the number of input elements for each of the numel outputs, or longest, what
    one convolution sums. Where the reference's operations sum no more than most terms, N is most, but the error may be
    that of FEW at least.
    """
    tensors = [x for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point()]
    axis = max((max(x.shape, default=1) for x in tensors), default=1)
    total = max((x.numel() for x in tensors), default=1)

    def error_of(terms: float) -> float:
        terms = min(terms, 2.0**20)
        return math.sqrt(terms) / 2 if zero_mean else 0.375 * terms

    return max(SHORT, min(error_of(max(axis, total / max(1, numel), longest)), max(FEW, error_of(most))))


def compute_limits(
    expected: torch.Tensor,
    dtype: torch.dtype,
    eager: EagerErrors,
    moved: torch.Tensor,
    judged: torch.Tensor,
    *,
    eps: float,
    factor: float,
    coarse: float,
    homogeneous: bool,
    zero_mean: bool,
    one_term: bool = False,
    scale: float = 1.0,
    reach: torch.Tensor | None = None,
) -> ErrorLimits:
    """The limits of one floating output.

    expected and moved (its condition) are float64, dtype is the output's own; judged marks the elements whose
    values count. eps is the compute precision, factor comes from `estimate_accumulation`; coarse is how many times
    16-bit operands are coarser than the compute precision (1 for float32); homogeneous says that the output has one
    regime, zero_mean that precision is judged on it, one_term that a row's elements may share a rounding; scale widens
    all limits (the task's own TOLERANCE); reach is what `measure_reach` gives for this output.
    """
    tiles = tiles_of(expected.shape)
    k_rms, k_max = FLOAT32_FACTORS if dtype.itemsize >= 4 else HALF_FACTORS
    zero = torch.zeros((), dtype=torch.float64, device=expected.device)
    judged = tiles.split(judged)  # from here to `join` all values are (tiles, size)

    def pick(values: torch.Tensor) -> torch.Tensor:
        return torch.where(judged, values, zero)

    value = pick(tiles.split(expected))
    ulp = pick(half_ulp_of(value, dtype))
    moved = pick(tiles.split(moved) + eps * value.abs())
    eager_rms, eager_largest = pick(tiles.split(eager.rms)), pick(tiles.split(eager.largest))
    counts = judged.sum(1, dtype=torch.float64).clamp_min(1)
    narrow = expected.dim() < 2 or expected.shape[-1] < TINY_AXIS
    picked = zero if reach is None else pick(2.0**-24 * torch.nan_to_num(tiles.split(reach), posinf=0.0))
    unit = torch.where(judged, ulp + moved + picked, zero + 1) if narrow and not homogeneous else None

    def scaled(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if unit is None else tensor / unit

    def largest(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.amax(1, keepdim=True)

    def scattered(tensor: torch.Tensor) -> torch.Tensor:
        few = 1 + (PEAK - 1) / _effective(tensor).sqrt()
        return few * _rms(tensor, counts)

    scatter = eager.scatter.clamp_min(1.0) if unit is None else 1.0
    scaled_ulp, scaled_moved = scaled(ulp), scaled(moved)
    roundings = k_rms / math.sqrt(3) + 2 / _effective(scaled_ulp).sqrt()
    if one_term or not zero_mean:
        roundings = roundings.clamp_min(TWO_ROUNDINGS)
    k_max = k_max if zero_mean else 2 * k_max
    rounding = _rms(scaled_ulp, counts) * roundings
    rms = torch.maximum(k_rms * scatter * scattered(scaled(eager_rms)), rounding) + factor * scattered(scaled_moved)
    if reach is not None:
        rms = rms + SHORT * _rms(scaled(picked), counts)
    per_row = torch.maximum(k_max * largest(scaled(eager_largest)), max(k_max, TWO_ROUNDINGS) * scaled_ulp)
    peak = PEAK * factor if zero_mean and factor > SHORT else factor
    per_row = per_row + peak * largest(scaled_moved)
    own = ulp + moved * max(peak / ELEMENT_FACTOR, coarse)
    worse = largest(eager_largest / own.clamp_min(torch.finfo(torch.float64).tiny)).clamp_min(1.0)
    near = zero if unit is not None else 4 * 2.0**-24 * largest(value.abs())
    per_element = ELEMENT_FACTOR * worse * own + near
    element = torch.minimum(per_row if unit is None else per_row * unit, per_element) + SHORT * picked
    element = tiles.join(element * scale, expected.shape)
    return ErrorLimits(tiles, element, rms * scale, None if unit is None else tiles.join(unit, expected.shape), counts)


def _rms(split: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    return (split.square().sum(1) / counts).sqrt()


def _effective(split: torch.Tensor) -> torch.Tensor:
    """The number of elements of each tile that carry its rms: (sum v**2)**2 / sum v**4, at least 1."""
    square = (split / split.amax(1, keepdim=True).clamp_min(torch.finfo(split.dtype).tiny)).square()
    return square.sum(1).square().div(square.square().sum(1).clamp_min(1e-300)).clamp_min(1.0)
