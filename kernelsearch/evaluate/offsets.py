"""Offsets of 32 bits that wrap around on their way to an address: they are computed exactly beside.

A sum or product that does not fit in its type carries along what it would be (`Pair`). Where such a number is part of
the address of an active lane, the access is refused. Other operations, as a hash has, end that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kernelsearch.evaluate.arithmetic import BINARY, dtype_of
from kernelsearch.evaluate.counting import CountedRun, find_lanes
from kernelsearch.evaluate.faults import EndlessLoop, Fault, OutOfBounds
from kernelsearch.evaluate.launch import Env
from kernelsearch.evaluate.steps import Step, Value
from kernelsearch.evaluate.sums import Pair, add_up, take_here, take_there
from kernelsearch.ir.text import Module, Operation

Tensor = torch.Tensor
LINEAR = frozenset({"arith.addi", "arith.subi", "arith.muli"})
_PASSING = frozenset(
    "tt.splat tt.unsplat tt.broadcast tt.expand_dims tt.reshape tt.trans tt.addptr arith.extsi arith.extui "
    "arith.select arith.index_cast".split()
)
_ACCESSES = ("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas")
Program = tuple[int, int, int]


class OffsetWraps(OutOfBounds):
    """An offset is beyond the range of its type."""


def may_wrap(module: Module, most_bytes: int) -> bool:
    """Whether a sum or product of a kernel may wrap around below so many bytes."""
    every = (op for func in module.functions.values() for op in func.walk() if op.name in LINEAR)
    kinds = {dtype_of(op.types[-1].element) for op in every} - {torch.bool, torch.int64}
    return any(most_bytes > torch.iinfo(kind).max for kind in kinds)


class FollowedRun(CountedRun):
    """Runs programs of a kernel that was compiled with `follow_step`.

    where says which programs are wrong; inside_only: exact addresses outside of the buffers are no fault.
    """

    where, inside_only = "", False

    def _loop(self, op: Operation, env: Env, act: Tensor | None) -> list[Value]:
        env.update({n: take_here(env[n]) for n in op.operands[1:4]})
        return super()._loop(op, env, act)


def follow_step(op: Operation, step: Step) -> Step:
    """The step of an operation, which computes what does not fit exactly beside. An access is checked by the run."""
    kind = dtype_of(op.types[-1].element) if op.name in LINEAR else None

    def follow(run: Any, values: list[Value], act: Tensor | None) -> Any:
        follows = any(type(v) is Pair for v in values)
        if kind is not None and kind != torch.bool:
            made = step(run, [take_here(v) for v in values], act)
            if not follows and kind == torch.int64:
                return made
            exact = BINARY[op.name](*(add_up(take_there(v)).to(torch.int64) for v in values))
            return _join(add_up(made), exact)
        if not follows:
            return step(run, values, act)
        if op.name in _PASSING:
            return _join(*(add_up(step(run, [of(v) for v in values], act)) for of in (take_here, take_there)))
        if op.name in _ACCESSES and type(values[0]) is Pair:
            _check(run, op, values)
        return step(run, [take_here(v) for v in values], act)

    return follow


def _join(wrapped: Tensor, exact: Tensor) -> Value:
    return wrapped if torch.equal(wrapped.to(torch.int64), exact) else Pair(wrapped, exact)


def _check(run: Any, op: Operation, values: list[Value]) -> None:
    addresses, mask = find_lanes(op, [take_here(v) for v in values])
    exact = add_up(values[0].there)
    wrong = addresses != exact
    wrong = wrong if mask is None else wrong & mask
    if run.inside_only:
        wrong = wrong & torch.tensor([run.buffers.contains(int(a)) for a in exact.reshape(-1)]).reshape(exact.shape)
    if bool(wrong.any()):
        raise OffsetWraps(f"an offset of 32 bits wraps around {run.where}: cast a factor to tl.int64", op.line)


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
    for wrong, b, c in dict.fromkeys([(x, y, z), (max(x - 1, 0), y, z), (x // 2, y // 2, z // 2)]):
        found, right = find_fault((wrong, b, c)), -1
        while found is not None and wrong - right > 1:
            middle = (right + wrong) // 2
            earlier = find_fault((middle, b, c))
            found, right, wrong = earlier or found, middle if earlier is None else right, middle if earlier else wrong
        if found is not None:
            raise found


def check_loaded(grid: Program, loaded: dict[str, Tensor], run: Callable[..., None]) -> None:
    """`check_offsets` with 0, the largest value (it may be padding), and the next, in all of each of these tensors.

    What is outside of the buffers then is no fault."""
    for name, values in loaded.items():
        before = values.clone()
        for number in (0, *before.unique()[-2:].tolist()[::-1]):
            values.fill_(number)
            try:
                check_offsets(grid, partial(run, instead=f"where {name} holds {number:,}" if number else ""))
            except OffsetWraps:
                raise
            except (Fault, EndlessLoop):  # numbers that may not go together
                pass
        values.copy_(before)
