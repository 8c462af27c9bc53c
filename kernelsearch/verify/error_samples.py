"""Samples of errors: how far rounding moves the right answer, how far eager PyTorch is from it, what an index reaches.

`tolerance` says what they are for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from random import Random
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from kernelsearch.verify.dispatch import DispatchMode
from kernelsearch.verify.pieces import (
    change_in_pieces,
    draw_factors,
    is_dense_float,
    split_flat,
    statistics_like,
    untangle,
)
from kernelsearch.verify.scalars import shake_scalar, shake_scalars
from kernelsearch.verify.tolerance import (
    COPIES,
    DRAWS,
    PICKS,
    PRODUCTS,
    SHORT,
    EagerErrors,
    list_pieces,
    take,
    tiles_of,
)

SATURATING = frozenset(("tanh", "erf", "sigmoid"))
"""Operations whose whole numbers are rounded ones: what is added to them may cancel (`1 + tanh(x)`)."""
PROBABILITIES = frozenset(("binary_cross_entropy",))
"""Operations that refuse arguments beyond 0 and 1, to which a rounding does not lead."""
UNEQUAL = (0.75, 1.25)
"""The steps of results over those of inputs, in turn: equal ones of other sign would leave a product where it was."""
FLUSHED, FLUSHING = torch.finfo(torch.float32).tiny, 2.0**-40
"""Values below FLUSHED may become 0 in float32 arithmetic (`.ftz`), whose eps is larger than FLUSHING."""
TIMES_EXPONENTIAL = frozenset(("mish", "silu", "glu"))
"""Operations that multiply their argument, or half of it, by an exponential, which may be flushed where the product is
not small."""
FINE, ANTITHETIC = 2.0**-16, 2
"""The largest relative movement that shows a slope, and the draws of a condition that repeat others backwards."""

HEADROOM = 2.0**10
"""How many times larger or smaller inputs eager must still be right for, where they are near the ends of a range: an
honest kernel may sum squares that eager divides first."""
MOST_SCORES = 2**26
"""Scores of an attention that are held at once."""


class RoundingMode(DispatchMode):
    """While it is active, each result of a torch operation is moved by a relative eps of random sign.

    Whole numbers stay, but for those of SATURATING: masks, counts and indices have no rounding, and an index must stay
    an index. A convolution's result also moves by the rms of what its operands' roundings by convolution_eps make of
    it: convolution_eps sqrt(sum_j (x_j w_j)**2). So does a product's by product_eps.
    """

    def __init__(self, eps: float, seed: int, convolution_eps: float = 0.0, product_eps: float = 0.0) -> None:
        super().__init__()
        self.eps, self.seed, self.convolution_eps, self.product_eps = eps, seed, convolution_eps, product_eps
        self.generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name in PROBABILITIES:
            args = (*(value.clamp(0.0, 1.0) for value in args[:2]), *args[2:])
        result = func(*args, **(kwargs or {}))
        if name == "convolution" and self.convolution_eps and result.is_floating_point():
            squares = func(args[0].square(), args[1].square(), None, *args[3:])
            result = self._move_sums(result, squares.clamp_(min=0.0).sqrt_(), self.convolution_eps)
        elif self.product_eps and name in PRODUCTS and result.is_floating_point():
            first, second = args[PRODUCTS[name] : PRODUCTS[name] + 2]
            squares = torch.matmul(first.square(), second.square())
            result = self._move_sums(result, squares.sqrt_().add_(result.abs()), self.product_eps)
        if func.is_view or name in COPIES:
            return result
        whole = name in SATURATING
        return (
            self._move(result, whole)
            if isinstance(result, torch.Tensor)
            else tree_map(partial(self._move, whole=whole), result)
        )

    def _move(self, value: Any, whole: bool = False) -> Any:
        """Changes a result in place: it is new, or an argument that the operation itself has changed."""
        if not is_dense_float(value) or value.nbytes <= value.numel():
            return value
        value = untangle(value)

        def move(part: torch.Tensor) -> None:
            factors = draw_factors(part, self.eps, generator)
            part.mul_(factors if whole else factors.masked_fill_(part == part.round(), 1.0))

        generator = self._generator(value.device)
        with torch._C.DisableTorchFunction():  # the reference's own modes have no business here
            return change_in_pieces(value, move)

    def _move_sums(self, sums: torch.Tensor, sizes: torch.Tensor, eps: float) -> torch.Tensor:
        """Adds the sizes times eps to the sums, or takes them away."""
        generator = self._generator(sums.device)
        change_in_pieces(sizes, lambda part: part.mul_(draw_factors(part, eps, generator).sub_(1.0)))
        return sums.add_(sizes)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self.generators:
            self.generators[device] = torch.Generator(device=device).manual_seed(self.seed * 107 + 53)
        return self.generators[device]


class FlushMode(DispatchMode):
    """While it is active, what float32 arithmetic may flush to zero is 0."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = func._schema.name.removeprefix("aten::").rstrip("_")
        least: torch.Tensor | None = None
        if name in TIMES_EXPONENTIAL:  # before the argument may be written to
            factor = args[0].chunk(2, *args[1:2] or (-1,))[0] if name == "glu" else args[0]
            least = factor.abs().mul_(FLUSHED)
        result = func(*args, **(kwargs or {}))
        return result if func.is_view or name in COPIES else tree_map(partial(self._flush, least=least), result)

    @staticmethod
    def _flush(value: Any, least: torch.Tensor | None) -> Any:
        if not is_dense_float(value) or value.itemsize == 1:
            return value
        value = untangle(value)
        with torch._C.DisableTorchFunction():
            if least is not None:
                return value.masked_fill_(value.abs() < least, 0.0)
            return change_in_pieces(value, lambda part: part.masked_fill_(part.abs() < FLUSHED, 0.0))


def _shake(values: torch.Tensor, eps: float, generator: torch.Generator) -> None:
    values.mul_(draw_factors(values, eps, generator))


def try_sample(run: Callable[[], list[torch.Tensor]]) -> list[torch.Tensor]:
    """The answers of a reference whose values are moved on the way; none where it fails: an index may lie outside."""
    try:
        return run()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError, LookupError):
        return []


def measure_condition(
    evaluate: Callable[[list[Any]], list[torch.Tensor]],
    make_inputs: Callable[[], list[Any]],
    expected: Sequence[torch.Tensor],
    *,
    eps: float,
    seed: int,
    draws: int = DRAWS,
    steps: float = 1.0,
    convolution_eps: float = 0.0,
    product_eps: float = 0.0,
    scalars_of: Callable[..., Any] | None = None,
) -> list[torch.Tensor]:
    """The largest movement of each output over random relative perturbations eps of all floating inputs.

    The numbers of scalars_of, the user's reference, move too.

    Convolutions are perturbed as if their operands erred by SHORT times convolution_eps: roundings of operands do not
    add up along a sum. Products are by SHORT times product_eps, which is for all of their sums.

    expected is float64; make_inputs gives new float64 inputs, and evaluate runs the reference on them. Inputs move by
    steps times eps, where that is FINE, and what the outputs move is divided by steps. The last ANTITHETIC draws are
    the first ones with the other sign.
    """
    moved = [statistics_like(y) for y in expected]
    steps = steps if eps * steps < FINE else 1.0
    for draw in range(draws):
        again = draw - draws + ANTITHETIC
        number, step = (again, -steps * eps) if draws > ANTITHETIC and again >= 0 else (draw, steps * eps)
        shaken = make_inputs()
        for position, value in enumerate(shaken):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                generator = torch.Generator(device=value.device)
                generator.manual_seed((seed * 31 + number) * 101 + position)
                change_in_pieces(value, partial(_shake, eps=step, generator=generator))
            else:
                shaken[position] = shake_scalar(value, step, Random(seed * 31 + number))
        reach = math.copysign(min(SHORT, steps), step)
        numbers = shake_scalars(scalars_of, step, seed * 31 + number) if scalars_of else nullcontext()
        with (
            numbers,
            RoundingMode(step * UNEQUAL[number % 2], seed * 31 + number, reach * convolution_eps, reach * product_eps),
        ):
            answers = try_sample(partial(evaluate, shaken))
        del shaken
        for most, y, other in zip(moved, expected, answers):
            if y.is_floating_point() and other.shape == y.shape:
                for part, right, value in split_flat(most, y, other):
                    _raise_to_size(part, (value.double() - right) / steps)
        answers = other = value = cast(Any, None)  # before the next ones are made
    return moved


def add_flushed(
    moved: Sequence[torch.Tensor],
    evaluate: Callable[[list[Any]], list[torch.Tensor]],
    make_inputs: Callable[[], list[Any]],
    expected: Sequence[torch.Tensor],
    factors: Sequence[float],
) -> None:
    """Adds to conditions, which limits multiply by these factors, how far outputs move by what may be flushed to zero.

    It does not add up as roundings do: each limit grows by the movement once. What is not finite then (a logarithm of
    0) counts as 0: such an answer is no right one.
    """
    with FlushMode():
        answers = try_sample(lambda: evaluate(make_inputs()))
    for most, y, other, factor in zip(moved, expected, answers, factors):
        if y.is_floating_point() and other.shape == y.shape:
            for part, right, value in split_flat(most, y, other):
                away = (value.double() - right).abs_().nan_to_num_(nan=0.0, posinf=0.0)
                part.add_(away.div_(max(1.0, factor)).to(part.dtype))


def _raise_to_size(most: torch.Tensor, values: torch.Tensor) -> None:
    """Raises each element of most to the size of the value; what is not finite counts as 0."""
    torch.maximum(most, values.abs().nan_to_num_(nan=0.0, posinf=0.0).to(most.dtype), out=most)


class NarrowAttention(TorchFunctionMode):
    """While it is active, the weights of an attention of 16-bit tensors err by half an ulp ahead of the second product.

    Matrix units take both operands in one type, so that every fused attention rounds them (FlashAttention does); torch
    does or does not, depending on the backend that it picks. Each weight moves by as much as a rounding may, because
    one weight can make all of an element's error, and a few samples of its rounding may all be small. Scores and sums
    are float32.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            narrow = _attend(self.seed, *args, **(kwargs or {}))
            if narrow is not None:
                return narrow
        return func(*args, **(kwargs or {}))


def _attend(
    seed: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor | None:
    """None for what torch may do itself: wider types, dropout, scores that would take more than 256 MiB."""
    if q.dtype.itemsize != 2 or dropout_p or q.numel() // max(1, q.shape[-1]) * k.shape[-2] > MOST_SCORES:
        return None
    if enable_gqa:
        k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    scores = (q.float() @ k.float().mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype is torch.bool else scores + attn_mask
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    total = weights.sum(-1, keepdim=True)
    _shake(weights, torch.finfo(q.dtype).eps / 2, torch.Generator(device=q.device).manual_seed(seed * 127 + 11))
    return ((weights @ v.float()) / total).to(q.dtype)


def measure_eager(pairs: Iterable[tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]]) -> list[EagerErrors]:
    """The errors of each output over pairs of eager's answers and the right ones."""
    norms: list[torch.Tensor] = []
    largest: list[torch.Tensor] = []
    worst: list[torch.Tensor] = []
    count = 0
    for eager, right in pairs:
        if not count:
            norms, largest = ([statistics_like(y) for y in right] for _ in range(2))
            worst = [_sum_squares(norm) for norm in norms]
        count += 1
        for norm, most, sums, e, y in zip(norms, largest, worst, eager, right):
            if e.is_floating_point() and e.shape == y.shape == most.shape and y.numel():
                squares = [_take_error(*parts) for parts in _take_pieces(norm, most, e.to(y.device), y)]
                torch.maximum(sums, torch.cat(squares), out=sums)
        del eager, right
        e = y = cast(Any, None)
    errors = []
    for norm, most, sums in zip(norms, largest, worst):
        mean = (_sum_squares(norm) / count).clamp_min(1e-300)
        errors.append(EagerErrors(norm.div_(math.sqrt(count)), most, (sums / mean).sqrt()))
    return errors


def _take_error(norm: torch.Tensor, most: torch.Tensor, eager: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Adds a sample's error to a piece's norm and largest error; the sum of its squares for each tile."""
    error = (eager.double() - right.double()).abs_().nan_to_num_(nan=0.0, posinf=0.0)
    square = error.square()
    norm.copy_(norm.double().square().add_(square).sqrt_())
    torch.maximum(most, error.to(most.dtype), out=most)
    return _sum_tiles(square)


def _sum_squares(values: torch.Tensor) -> torch.Tensor:
    """The sum of the squares of each tile's values."""
    parts = [_sum_tiles(part.double().square()) for (part,) in _take_pieces(values)]
    return torch.cat(parts) if parts else _sum_tiles(values.double())


def _sum_tiles(values: torch.Tensor) -> torch.Tensor:
    return tiles_of(values.shape).split(values).sum(1)


def _take_pieces(*values: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
    """Pieces of an output's values, each of whole tiles, or the values if they are one; those of a contiguous tensor
    are views.
    """
    pieces = list_pieces(values[0].shape)
    return [values] if len(pieces) == 1 else [tuple(take(v, *ends) for v in values) for ends in pieces]


def measure_reach(
    evaluate: Callable[[list[Any]], list[torch.Tensor]],
    inputs: Sequence[Any],
    expected: Sequence[torch.Tensor],
    *,
    seed: int,
) -> list[torch.Tensor | None]:
    """The largest size of each output element over other values of the integer inputs; None if there are no others.

    Other values are an input's own, because an index must stay an index: its least and its largest everywhere, then
    its elements drawn at random. None too for outputs that are integers, and if the reference refuses such values.
    """
    picks = [p for p, x in enumerate(inputs) if _picks(x)]
    if not picks:
        return [None] * len(expected)
    most = [statistics_like(y) for y in expected]
    for largest, y in zip(most, expected):
        for part, value in split_flat(largest, y):
            _raise_to_size(part, value.double())
    for draw in range(PICKS):
        other = list(inputs)
        for position in picks:
            value = inputs[position]
            if draw < 2:
                other[position] = torch.full_like(value, int(value.min() if draw == 0 else value.max()))
                continue
            generator = torch.Generator(device=value.device).manual_seed((seed * 37 + draw) * 103 + position)
            chosen = torch.randint(0, value.numel(), value.shape, generator=generator, device=value.device)
            other[position] = value.reshape(-1)[chosen]
        if not (answers := try_sample(partial(evaluate, other))):
            return [None] * len(expected)
        for largest, y, answer in zip(most, expected, answers):
            if y.is_floating_point() and answer.shape == y.shape:
                for part, value in split_flat(largest, answer):
                    _raise_to_size(part, value.double())
    return [largest if y.is_floating_point() else None for largest, y in zip(most, expected)]


def _picks(value: Any) -> bool:
    """True for a tensor of integers, not a mask, with more than one value to pick from."""
    if not isinstance(value, torch.Tensor) or value.dtype not in _INTEGERS or value.numel() < 2:
        return False
    return bool((value != value.reshape(-1)[0]).any())


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64)


def find_within_range(judged: torch.Tensor, pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Those of the judged elements for which eager is near the right answer in each of these pairs of the two.

    And for most others of its row: where a row's variance overflows, what is near the bias is near by chance.
    """
    near = torch.ones_like(judged)
    for eager, right in ((both.to(near.device).double() for both in pair) for pair in pairs):
        near &= ((eager - right).abs() <= 0.1 * right.abs() + 4 * FLUSHED) | (eager == right)
    if near.dim() > 1 and near.numel():
        rows = near.flatten(1).double().mean(1) >= 0.5
        near &= rows.reshape(-1, *[1] * (near.dim() - 1))
    return judged & near
