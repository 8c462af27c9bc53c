"""Answers that a rounding on the way decides: there the reference errs by as much as an honest kernel does.

Where two scores of an attention are nearly equal and large, the rounding of either to 16 bits says which value is the
answer. The few samples of eager's error do not hold every such accident of one draw of values. So where few elements
are wrong the roundings of the reference are drawn anew, up to DRAWN times; an element may err by as much as the
reference does there in one of them, if that is more than its limit. Of accidents that have any chance between 0 and 1
alike, 2 in DRAWN**2 are missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelsearch.core.types import Verdict, Word
from kernelsearch.verify.error_samples import FINE, NarrowAttention, RoundingMode, try_sample
from kernelsearch.verify.expectation import Expectation, Output
from kernelsearch.verify.pieces import draw_factors, encode, is_dense_float, untangle
from kernelsearch.verify.tolerance import COMPUTE_EPS, PRODUCTS, ErrorLimits

DRAWN, FIRST = 256, 4
"""Draws of the roundings of a reference at most, and those after which an answer is first judged again; then twice as
many each time. Limits only grow, so what is accepted early would be after all."""
FEW = 0.02
"""The largest share of an output's elements that accidents of rounding may explain."""


class HalfRoundingMode(RoundingMode):
    """While it is active, results of 16 bits move to a neighbour, and operands of a coarse product by its precision.

    With mixed, where one operand of a float32 product holds values of 16 bits, the other moves by half an ulp of these:
    matrix units take both in one type. Whole numbers stay where the type has others of that size: masks and counts have
    no rounding.
    """

    def __init__(self, seed: int, operand_eps: float, mixed: bool) -> None:
        super().__init__(operand_eps if operand_eps > FINE else 0.0, seed)
        self.mixed, self.moved = mixed, False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        first = PRODUCTS.get(func._schema.name.removeprefix("aten::"))
        if first is not None and args[first].dtype is torch.float32:
            args = (*args[:first], *self._narrow(args[first : first + 2]), *args[first + 2 :])
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _narrow(self, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Both operands of a product, as matrix units may take them."""
        halves = [_find_half(x) if self.mixed and not self.eps else None for x in operands]
        half = halves[0] or halves[1]
        steps = [self.eps if half is None or own else torch.finfo(half).eps / 2 for own in halves]
        self.moved |= any(steps)
        return [self._move_by(x, step) if step else x for x, step in zip(operands, steps)]

    def _move_by(self, operand: torch.Tensor, eps: float) -> torch.Tensor:
        factors = draw_factors(operand, eps, self._generator(operand.device))
        return operand * factors.masked_fill_(operand == operand.round(), 1.0)

    def _move(self, value: Any, whole: bool = False) -> Any:
        if not is_dense_float(value) or value.dtype.itemsize != 2:
            return value
        self.moved = True
        value = untangle(value)
        with torch._C.DisableTorchFunction():
            eps, wide = torch.finfo(value.dtype).eps, value.float()
            factors = draw_factors(wide, eps / 2, self._generator(value.device))
            stays = (wide == wide.round()) & (wide.abs() < 1.0 / eps)
            return value.copy_(wide * (factors if whole else factors.masked_fill_(stays, 1.0)))


def _find_half(operand: torch.Tensor) -> torch.dtype | None:
    """The 16-bit type of which all these float32 values are."""
    return next((d for d in (torch.bfloat16, torch.float16) if torch.equal(operand.to(d).float(), operand)), None)


def is_accident(verdict: Verdict) -> bool:
    """Whether a verdict refuses finite errors of few elements, which roundings on the way may explain."""
    finite = verdict.word is Word.WRONG and verdict.error_ratio is not None and verdict.error_ratio < math.inf
    return finite and verdict.detail.get("wrong", 1) <= max(1.0, FEW * verdict.detail.get("of", 0))


def redraw_roundings(
    expected: Expectation, run: Callable[[], Sequence[torch.Tensor]], precision: str, seed: int
) -> Iterator[Expectation]:
    """The expectation with ever more draws of the roundings of the reference, which run evaluates in its own dtypes.

    It gives none where nothing is rounded so, and leaves outputs that are judged piece by piece as they are.
    """
    eps, worst = COMPUTE_EPS.get(precision, COMPUTE_EPS["ieee"]), dict[int, tuple[torch.Tensor, torch.Tensor]]()
    for draw in range(DRAWN):
        number = seed * 43 + draw
        with NarrowAttention(number), HalfRoundingMode(number, eps, expected.coarse > 1.0) as mode:
            answers = try_sample(lambda: list(run()))
        if not mode.moved or not answers:
            return
        for place, (right, answer) in enumerate(zip(expected.outputs, answers, strict=True)):
            if isinstance(right, Output) and right.limits is not None and tuple(answer.shape) == right.shape:
                error, rms = _measure(right, right.limits, encode(answer, right.dtype))
                most = worst.setdefault(place, (error, rms))
                worst[place] = torch.maximum(most[0], error), torch.maximum(most[1], rms)
        if draw + 1 >= FIRST and (draw + 1).bit_count() == 1:
            outputs = (_widen(right, worst.get(place)) for place, right in enumerate(expected.outputs))
            yield replace(expected, outputs=tuple(outputs))


def _measure(right: Output, limits: ErrorLimits, answer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The error of each element that is judged, and the rms of each tile."""
    error = (answer.to(right.expected.device).double() - right.expected).abs()
    error = torch.where(right.judged & right.finite & error.isfinite(), error, 0.0)
    return error, limits.tiles.rms(error if limits.unit is None else error / limits.unit, limits.counts)


def _widen(right: Any, worst: tuple[torch.Tensor, torch.Tensor] | None) -> Any:
    """The output, where an error of its reference exceeds a limit with both together as the limit."""
    if worst is None:
        return right
    own = right.limits.element, right.limits.rms
    element, rms = (torch.where(more > limit, more + limit, limit) for more, limit in zip(worst, own, strict=True))
    return replace(right, limits=replace(right.limits, element=element, rms=rms))
