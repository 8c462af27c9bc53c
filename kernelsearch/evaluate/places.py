"""Kernels that make numbers of addresses: what hangs on where buffers lie is noted.

Beside the number of an address goes what it would be if the buffers lay elsewhere, as far from 512 bytes as they do.
So a kernel may peel to an alignment, and go from a pointer to a number and back; what decides by more than that is
no answer that another run has to give.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelsearch.evaluate.steps import Step, Value
from kernelsearch.evaluate.sums import Pair, add_up, take_here, take_there
from kernelsearch.ir.text import Operation

Tensor = torch.Tensor
MEMORY = frozenset("tt.load tt.atomic_rmw tt.atomic_cas tt.descriptor_load tt.descriptor_gather".split())


def follow_places(op: Operation, step: Step) -> Step:
    """The step of an operation, for addresses as they are and as they would be elsewhere."""

    def follow(run: Any, values: list[Value], act: Tensor | None) -> Any:
        if op.name == "tt.ptr_to_int":
            here = add_up(values[0])
            return Pair(step(run, [here], act), step(run, [run.buffers.find_low(here)], act))
        if not any(type(v) is Pair for v in values):
            return step(run, values, act)
        here = step(run, [take_here(v) for v in values], act)  # what touches memory does it once
        if not op.results or op.name in MEMORY:
            run.buffers.note_place(op)
            return here
        there = step(run, [take_there(v) for v in values], act)
        is_pointer, several = op.name == "tt.int_to_ptr", type(here) is list
        ours, theirs = (made if several else [made] for made in (here, there))
        if all(
            _is_equal(run.buffers.find_low(a) if is_pointer else add_up(a), add_up(b)) for a, b in zip(ours, theirs)
        ):
            return here
        if is_pointer or any(add_up(a).dtype == torch.bool for a in ours):
            run.buffers.note_place(op)
            return here
        return [Pair(a, b) for a, b in zip(ours, theirs, strict=True)] if several else Pair(here, there)

    return follow


def _is_equal(a: Tensor, b: Tensor) -> bool:
    return bool(((a == b) | ((a != a) & (b != b))).all())
