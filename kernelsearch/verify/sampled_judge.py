"""The judge of a few programs of a large grid: it compares the elements that they wrote, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelsearch.core.types import Verdict, Word
from kernelsearch.verify.blind_spots import FILLED
from kernelsearch.verify.expectation import Expectation
from kernelsearch.verify.judge import judge, poison_value

LEAST_COVER = 0.5


def judge_sampled(
    expected: Expectation,
    outputs: Sequence[torch.Tensor],
    covers: float,
    masks: Sequence[torch.Tensor | None],
    before: Sequence[Any],
    after: Sequence[Any],
    mutates: Sequence[int],
    *,
    depth: str = "full",
) -> Verdict:
    """Accept, or the fault in the elements that kernels wrote.

    masks show them, one for each output; without one, those that are no longer poison.

    covers is the share of the outputs that the grid would write if all programs did as those that ran. A grid that
    would leave half of it or more unwritten has left out its work. The detail has FILLED where an output held no
    poison: in integers that the launcher fills with zeros, elements that nobody wrote count as wrong.
    """
    filled, marked, written = [], True, []
    for right, got, mask in zip(expected.outputs, outputs, [*masks, *[None] * len(outputs)]):
        if tuple(got.shape) != right.shape or got.dtype != right.dtype:
            return judge(expected, outputs, before, after, mutates, depth=depth)
        poison = poison_value(got.dtype)
        unwritten = torch.isnan(got) if got.dtype.is_floating_point else got == poison
        unwritten = unwritten if mask is None else ~mask
        marked = marked and (mask is not None or bool(unwritten.any()))
        written.append(got.numel() - int(unwritten.sum()))
        whole = torch.where(unwritten, right.rounded.view(right.dtype), got)  # of 8 bits it is codes
        filled.append(torch.empty_strided(got.shape, got.stride(), dtype=got.dtype).copy_(whole))
    verdict = judge(expected, [*filled, *outputs[len(filled) :]], before, after, mutates, depth=depth)
    if verdict.accepted and covers <= LEAST_COVER:
        reason = f"programs sampled from the grid of a large shape write {covers:.0%} of their share of the output"
        return replace(verdict, word=Word.WRONG, reason=reason)
    if marked and "of" in verdict.detail:
        verdict = _count_among_written(verdict, written[verdict.detail["output"]])
    return verdict if marked else replace(verdict, detail={**verdict.detail, FILLED: True})


def _count_among_written(verdict: Verdict, written: int) -> Verdict:
    """The verdict with its wrong elements counted among those that the programs that ran wrote, not among all."""
    wrong, of = verdict.detail["wrong"], verdict.detail["of"]
    reason = verdict.reason.replace(
        f"{wrong} of {of} elements", f"{wrong} of the {written} elements that the few programs that ran wrote"
    )
    return replace(verdict, reason=reason, detail={**verdict.detail, "of": written, "sampled": True})
