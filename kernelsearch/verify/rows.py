"""Outputs so large that right answers are made for a few rows at a time, where no row depends on another.

A judge of a billion elements would else hold a dozen values of each at once, in float64: more than a GPU has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.verify.bits import same_bits
from kernelsearch.verify.expectation import Expectation, Output, explain_drop
from kernelsearch.verify.pieces import LARGE
from kernelsearch.verify.widest import run_reference

ELEMENTS = 2**26
"""Elements of the rows that are judged at once, if a row has no more."""


@dataclass(frozen=True)
class RowsOutput:
    """The single output of a reference that treats rows (of the first axis) alone.

    expect gives the right answer of the rows from start to stop, and nobody keeps it. useless and infinite are the
    numbers of elements that are not finite in eager, and of infinities among them.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    step: int
    expect: Callable[[int, int], Expectation]
    useless: int
    infinite: int
    stride: None = None
    limits: None = None

    def pieces(self, *values: torch.Tensor) -> Iterator[tuple[Output, tuple[torch.Tensor, ...]]]:
        """Each piece with its limits, and the same piece of values of the output's shape, on its device."""
        row = math.prod(self.shape[1:])
        for start in range(0, self.shape[0], self.step):
            stop = min(start + self.step, self.shape[0])
            (output,) = self.expect(start, stop).outputs
            for piece, cut in output.pieces(*(v[start:stop] for v in values)):
                yield replace(piece, start=start * row + piece.start, whole=self.shape), cut

    def count_useless(self, overflows: bool = True) -> int:
        """See `Output.count_useless`."""
        return self.useless - (0 if overflows else self.infinite)

    def to_cpu(self) -> RowsOutput:
        """Returns itself: it holds no tensor but the inputs."""
        return self


def expect_rows(
    expect: Callable[[Sequence[Any]], Expectation], eager: Callable[..., Any], inputs: Sequence[Any]
) -> Expectation | None:
    """The right answer to inputs whose single output is large and has rows that do not depend on each other, else None.

    None too for integers among the inputs, which may be places of rows, and for floats of 8 bits.

    expect makes the right answer to some rows of the inputs. Rows depend on others if eager gives any row of a few
    another bit than of all: what eager's roundings hide is far below every limit.
    """
    if any(isinstance(x, torch.Tensor) and not (x.is_floating_point() or x.dtype is torch.bool) for x in inputs):
        return None  # an index into rows that are cut off would end the GPU's context
    outputs = run_reference(eager, inputs)
    whole = outputs.pop() if len(outputs) == 1 else torch.empty(0)
    if not whole.dim() or whole.numel() <= LARGE or not whole.is_floating_point() or whole.dtype.itemsize == 1:
        return None
    shape, useless, infinite = tuple(whole.shape), 0, 0
    step = max(1, ELEMENTS // math.prod(shape[1:]))

    def has_rows(value: Any) -> bool:  # a vector beside a matrix holds something for each column
        return isinstance(value, torch.Tensor) and value.dim() >= min(2, len(shape)) and value.shape[0] == shape[0]

    def cut(start: int, stop: int) -> list[Any]:
        return [x[start:stop] if has_rows(x) else x for x in inputs]

    for start in range(0, shape[0], step):
        stop = min(start + step, shape[0])
        try:
            parts = run_reference(eager, cut(start, stop))
        except (TaskError, RuntimeError, TypeError, ValueError, LookupError, AssertionError):
            return None
        if len(parts) != 1 or not same_bits(parts[0], whole[start:stop]):
            return None
        useless += int((~torch.isfinite(parts[0])).sum())
        infinite += int(parts[0].isinf().sum())
    del whole
    first = expect(cut(0, min(step, shape[0])))
    if len(first.outputs) != 1:
        return None
    output = RowsOutput(shape, first.outputs[0].dtype, step, lambda *ends: expect(cut(*ends)), useless, infinite)
    return replace(first, outputs=(cast(Any, output),), dropped=explain_drop([output], first.regime))


def expect_written(
    expect: Callable[[Sequence[Any]], Expectation],
    eager: Callable[..., Any],
    inputs: Sequence[Any],
    rows: Sequence[int],
) -> Expectation | None:
    """The right answer to these rows of inputs alone, on the CPU, where the single output is the same there, else None.

    That is so if eager gives each of these rows the bits that it has among all. expect makes the right answer.
    """
    outputs = run_reference(eager, inputs)
    whole = outputs[0]
    if len(outputs) != 1 or not whole.is_floating_point() or whole.dim() < 2:
        return None
    few = [x[list(rows)] if isinstance(x, torch.Tensor) and x.shape[:1] == whole.shape[:1] else x for x in inputs]
    try:
        parts = run_reference(eager, few)
    except (TaskError, RuntimeError, TypeError, ValueError, LookupError, AssertionError):
        return None
    return expect(few) if len(parts) == 1 and same_bits(parts[0], whole[list(rows)]) else None
