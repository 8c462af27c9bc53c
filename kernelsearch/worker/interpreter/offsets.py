"""Offsets of 32 bits that wrap around on their way to an address: they are computed exactly beside.

A sum or product that does not fit in its type carries along what it would be (`Followed`). Where such a number is part
of the address of an active lane, the access is refused. Other operations, as a hash has, end that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import TensorHandle
from triton.runtime.interpreter import interpreter_builder as builder

from kernelsearch.evaluate.faults import EndlessLoop, OutOfBounds
from kernelsearch.worker.interpreter.addresses import Buffers, Followed, join_lanes, make_plain
from kernelsearch.worker.interpreter.programs import Program
from kernelsearch.worker.launcher.standin import replace_attributes
from kernelsearch.worker.launcher.trace import WHOLE_ELEMENTS

_LINEAR = (np.add, np.subtract, np.multiply)


class OffsetWraps(OutOfBounds):
    """An offset is beyond the range of its type."""


class _Exact:
    """What the numbers here follow, in place of buffers: what becomes of them is no fault."""

    def note(self) -> None:
        """Does nothing."""


def check_offsets(grid: Program, run: Callable[[Program, str], None]) -> None:
    """Runs the last program of a grid, its neighbour and one amid it; run gets one, and from where offsets wrap.

    Raises OffsetWraps for the first program along the grid's first axis whose offsets wrap.
    """

    def find_fault(program: Program) -> OffsetWraps | None:
        try:
            run(program, f"from program {program[0]:,} of {grid[0]:,} on")
        except OffsetWraps as error:
            return error
        return None

    x, y, z = (n - 1 for n in grid)
    for wrong, *rest in dict.fromkeys([(x, y, z), (max(x - 1, 0), y, z), (x // 2, y // 2, z // 2)]):
        found, right = find_fault((wrong, *rest)), -1
        while found is not None and wrong - right > 1:
            middle = (right + wrong) // 2
            earlier = find_fault((middle, *rest))
            found, right, wrong = earlier or found, middle if earlier is None else right, middle if earlier else wrong
        if found is not None:
            raise found


def check_loaded(grid: Program, passed: Mapping[str, torch.Tensor], run: Callable[..., None]) -> None:
    """`check_offsets` with 0, the largest value (it may be padding), and the next, in all of each of these tensors.

    What is outside of the buffers then is no fault."""
    reach = max((v.untyped_storage().nbytes() // v.element_size() for v in passed.values()), default=0)
    kinds = (torch.int16, torch.int32, torch.int64) if reach > 2**31 else ()
    for name, values in passed.items():
        if values.dtype not in kinds or values.numel() > WHOLE_ELEMENTS:
            continue
        before = values.clone()
        for number in (0, *before.unique()[-2:].tolist()[::-1]):
            values.fill_(number)
            try:
                check_offsets(grid, partial(run, instead=f"where {name} holds {number:,}" if number else ""))
            except (OutOfBounds, EndlessLoop, InterpreterError) as error:  # numbers that may not go together
                if isinstance(error, OffsetWraps):
                    raise
        values.copy_(before)


@contextmanager
def follow_offsets(where: str, buffers: Buffers | None = None) -> Iterator[None]:
    """Within the context, an access at an address that wrapped around raises OffsetWraps; with buffers, one in them."""
    plain, memory = builder.binary_op, ("create_masked_load", "create_masked_store", "create_atomic_rmw")

    def operate(lhs: Any, rhs: Any, op: Any) -> Any:
        if op not in _LINEAR:
            return plain(*(TensorHandle(make_plain(h.data), h.dtype) for h in (lhs, rhs)), op)
        result = plain(lhs, rhs, op)
        if not result.dtype.scalar.is_int() or result.data.itemsize > 4 or isinstance(result.data, Followed):
            return result
        exact = op(lhs.data.astype(np.int64), rhs.data.astype(np.int64))
        return TensorHandle(join_lanes(_Exact(), [result.data, exact]), result.dtype)

    def access(name: str) -> Callable[..., Any]:
        plain, at = getattr(builder, name), {memory[0]: (0, 1), memory[1]: (0, 2), memory[2]: (1, 3)}[name]

        def check(*args: Any, **named: Any) -> Any:
            addresses, mask = (args[i].data for i in at)
            if isinstance(addresses, Followed):
                exact = addresses.lanes[0]
                wrong = (make_plain(addresses) != exact) & np.asarray(mask, dtype=bool)
                wrong &= buffers is None or exact < buffers.ends[buffers.owner_of(exact)]
                if wrong.any():
                    raise OffsetWraps(f"an offset of 32 bits wraps around {where}: cast a factor to tl.int64")
            return plain(*args, **named)

        return check

    with replace_attributes(builder, binary_op=operate, **{name: access(name) for name in memory}):
        yield
