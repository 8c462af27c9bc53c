"""The right answer for one shape, regime and seed: made once, compared with hundreds of candidates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelsearch.verify.regimes import MIXED, ZERO_MEAN, move_inputs
from kernelsearch.verify.tolerance import (
    COMPUTE_EPS,
    DRAWS,
    MANY,
    SAMPLES,
    EagerErrors,
    ErrorLimits,
    compute_limits,
    estimate_accumulation,
    measure_condition,
    measure_eager,
    measure_reach,
)

_CANNOT = (RuntimeError, TypeError, ValueError, NotImplementedError)
"""torch's errors for an operation that does not exist in float64."""


@dataclass(frozen=True)
class Output:
    """One output tensor's right answer.

    expected is float64 (or the integer dtype itself); rounded is the same in the output's dtype; judged marks the
    elements whose values count (finite in both the reference and eager, or in neither). limits is None for integers
    and booleans, which must be exact, as floats must if exact is set. also is a second right answer for integers
    (eager's, where ties fall differently in float64).
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    expected: torch.Tensor
    rounded: torch.Tensor
    judged: torch.Tensor
    finite: torch.Tensor
    limits: ErrorLimits | None = None
    exact: bool = False
    also: torch.Tensor | None = None
    stride: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Expectation:
    """All outputs of the reference at one shape, regime and seed. dropped says why this regime judges nothing."""

    shape: str
    regime: str
    outputs: tuple[Output, ...]
    dropped: str = ""
    notes: tuple[str, ...] = ()


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Sums on the CPU have one order inside, whatever the machine and the task's file would have it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@use_one_thread()
def make_expectation(
    reference64: Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    shape: str = "",
    regime: str = "randn",
    precision: str = "ieee",
    mutates: Sequence[int] = (),
    strides: Sequence[tuple[int, ...] | None] = (),
    seed: int = 0,
    draws: int = DRAWS,
    tolerance: float = 1.0,
) -> Expectation:
    """Runs the reference in float64 (the right answer) and in the task's dtypes (the error of eager PyTorch).

    reference64 takes the inputs as float64; where it cannot, it runs in float32 on the CPU, and notes say so.
    mutates are the positions of inputs that the task changes; their later values are outputs too, after the
    flattened return value. strides are the seed's, per output (None: any). tolerance multiplies all limits.
    """
    eager = run_reference(reference, inputs, mutates)
    wide, answers, notes = _run_widest(reference64, inputs, mutates)
    if len(answers) != len(eager):
        raise ValueError(f"the reference gives {len(answers)} outputs in float64 and {len(eager)} in its own dtypes")
    floats = [y.double() if y.is_floating_point() else y for y in answers]
    eps = COMPUTE_EPS.get(precision, COMPUTE_EPS["ieee"])
    if all(y.dtype is torch.float64 or not y.is_floating_point() for y in eager):
        eps = min(eps, 2.0**-52)
    moved = measure_condition(
        lambda x: run_reference(reference64, x, mutates), wide, floats, eps=eps, seed=seed, draws=draws
    )
    amount = "many" if max((y.numel() for y in floats), default=0) > MANY else "few"
    near = (move_inputs(inputs, seed * 41 + sample) for sample in range(SAMPLES[amount]))
    samples = ((run_reference(reference, x, mutates), _run_widest(reference64, x, mutates)[1]) for x in near)
    errors = measure_eager(chain([(eager, answers)], samples))
    reached = measure_reach(lambda x: run_reference(reference64, x, mutates), wide, floats, seed=seed)
    operands = [x.dtype for x in (*inputs, *eager) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    unit = max((torch.finfo(d).eps / 2 for d in operands if d.itemsize <= 2), default=eps)
    zero_mean = regime in ZERO_MEAN
    how = {"eps": eps, "coarse": max(1.0, unit / eps), "homogeneous": regime != MIXED, "zero_mean": zero_mean}
    outputs = []
    for number, (y, e, c, r) in enumerate(zip(floats, eager, moved, reached)):
        stride = strides[number] if number < len(strides) else None
        may_be_exact = tolerance <= 1.0 and regime == "integers"
        own = {
            "factor": estimate_accumulation(inputs, y.numel(), zero_mean),
            "reach": None if r is None else r.to(y.device),
        }
        outputs.append(
            _output(y, e.to(y.device), errors[number], c, stride, may_be_exact, scale=tolerance, **how, **own)
        )
    return Expectation(shape, regime, tuple(outputs), _dropped(outputs, regime), tuple(notes))


def run_reference(
    function: Callable[..., Any], inputs: Sequence[Any], mutates: Sequence[int] = ()
) -> list[torch.Tensor]:
    """The outputs of a function on copies of the inputs: flattened return value, then what it changed."""
    copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    with torch.no_grad():
        returned = function(*copies)
    return [y.detach() for y in flatten(returned)] + [copies[position] for position in mutates]


def flatten(value: Any) -> list[torch.Tensor]:
    """The tensors of a return value in order: the reference's and the launcher's outputs. All else is left out."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _run_widest(
    reference64: Callable[..., Any], inputs: Sequence[Any], mutates: Sequence[int]
) -> tuple[list[Any], list[torch.Tensor], list[str]]:
    try:
        wide = [_cast(x, torch.float64) for x in inputs]
        return wide, run_reference(reference64, wide, mutates), []
    except _CANNOT as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    wide = [_cast(x, torch.float32).cpu() if isinstance(x, torch.Tensor) else x for x in inputs]
    answers = run_reference(reference64, wide, mutates)
    device = next((x.device for x in inputs if isinstance(x, torch.Tensor)), torch.device("cpu"))
    note = f"the reference cannot run in float64 ({reason[:120]}): it ran in float32 on the CPU"
    return wide, [y.to(device) for y in answers], [note]


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _output(
    y: torch.Tensor,
    eager: torch.Tensor,
    errors: EagerErrors,
    moved: torch.Tensor,
    stride: tuple[int, ...] | None,
    may_be_exact: bool,
    **how: Any,
) -> Output:
    shape, dtype = tuple(eager.shape), eager.dtype
    if tuple(y.shape) != shape:
        raise ValueError(f"the reference gives shape {tuple(y.shape)} in float64 and {shape} in its own dtype")
    everywhere = torch.ones(shape, dtype=torch.bool, device=y.device)
    if not dtype.is_floating_point:
        answer = y.to(dtype)
        return Output(shape, dtype, answer, answer, everywhere, everywhere, also=eager, exact=True, stride=stride)
    rounded = y.to(dtype)
    finite = torch.isfinite(rounded)
    agreed = finite == torch.isfinite(eager)
    judged = finite & agreed
    allowed = compute_limits(y, dtype, errors, moved.to(y.device), judged, **how)
    exact = may_be_exact and bool(judged.all()) and _is_exact(y, eager, rounded)
    return Output(shape, dtype, y, rounded, agreed, finite, allowed, exact, stride=stride)


def _is_exact(y: torch.Tensor, eager: torch.Tensor, rounded: torch.Tensor) -> bool:
    """True for whole numbers, not all equal, far below 2**24, that eager hits: every order of summing must hit them."""
    whole = bool((y == y.round()).all()) and bool((y.abs() < 2**20).all())
    return whole and y.numel() > 1 and bool((y != y.reshape(-1)[0]).any()) and bool(torch.equal(eager, rounded))


def _dropped(outputs: Sequence[Output], regime: str) -> str:
    for number, output in enumerate(outputs):
        total = math.prod(output.shape)
        useless = total - int((output.judged & output.finite).sum())
        if total and useless * 2 > total:
            return f"regime {regime} is dropped: output {number} is non-finite in {useless} of {total} elements"
    return ""
