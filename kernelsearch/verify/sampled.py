"""The judge of a few programs of a large grid: what they wrote is held against the limits, the rest is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelsearch.types import Verdict, Word
from kernelsearch.verify.expectation import Expectation
from kernelsearch.verify.judge import judge, poison_value


def judge_sampled(
    expected: Expectation, outputs: Sequence[torch.Tensor], idle: tuple[int, int], before: Sequence[Any],
    after: Sequence[Any], mutates: Sequence[int], *, depth: str = "full",
) -> Verdict:  # fmt: skip
    """Accept, or what is wrong in the elements that no longer hold poison.

    idle is (programs that wrote nothing, programs that ran): a grid most of whose programs do nothing has left out its
    work, for a program that has none is an exception in any launch.
    """
    filled = []
    for right, got in zip(expected.outputs, outputs):
        if tuple(got.shape) != right.shape or got.dtype != right.dtype:
            return judge(expected, outputs, before, after, mutates, depth=depth)
        poison = poison_value(got.dtype)
        unwritten = torch.isnan(got) if got.dtype.is_floating_point else got == poison
        whole = torch.where(unwritten, right.rounded, got)
        filled.append(torch.empty_strided(got.shape, got.stride(), dtype=got.dtype).copy_(whole))
    verdict = judge(expected, [*filled, *outputs[len(filled) :]], before, after, mutates, depth=depth)
    lazy, count = idle
    if verdict.accepted and lazy and 2 * lazy >= count:
        reason = f"{lazy} of {count} programs sampled from the grid of a large shape write nothing"
        return replace(verdict, word=Word.WRONG, reason=reason)
    return verdict
