"""The right answer for one shape, regime and seed: made once, compared with hundreds of candidates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from kernelsearch.verify.domains import move_inputs, scale_inputs
from kernelsearch.verify.error_samples import (
    FLUSHING,
    HEADROOM,
    NarrowAttention,
    add_flushed,
    find_within_range,
    measure_condition,
    measure_eager,
    measure_reach,
)
from kernelsearch.verify.exactness import has_exact_operations, is_exact
from kernelsearch.verify.pieces import LARGE, encode, has_no_number
from kernelsearch.verify.regimes import ONE_TERM, SHRINK, SMALL, UNEVEN, WHOLE, ZERO_MEAN, is_data
from kernelsearch.verify.sites import UNSURE, Picked, SitesMode, draw_roundings, find_shift, find_sure
from kernelsearch.verify.terms import TermsMode
from kernelsearch.verify.tolerance import (
    COMPUTE_EPS,
    DRAWS,
    EIGHT_BIT_STEP,
    EIGHT_BIT_SUM,
    FARTHEST,
    MANY,
    SAMPLES,
    EagerErrors,
    ErrorLimits,
    compute_limits,
    estimate_accumulation,
    list_pieces,
    take,
)
from kernelsearch.verify.widest import find_widest, run_reference


@dataclass(frozen=True)
class Output:
    """One output tensor's right answer.

    expected is float64 (or the integer dtype itself); rounded is the same in the output's dtype; judged marks the
    elements whose values count (finite in both the reference and eager, or in neither); open marks those of them where
    any infinity or NaN is right: float64 and eager differ, or float32 has no such number. limits is None for integers
    and booleans, which must be exact; floats must be too if exact is set. also are other right answers for integers
    (eager's, where ties fall differently in float64, and those to which roundings lead); where these are UNSURE
    different ones an element is not judged. picked says what integers that are indices point at; between, that what
    lies between two right answers is right too. A piece of a larger output has the flat index of its first element and
    the shape of the whole.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    expected: torch.Tensor
    rounded: torch.Tensor
    judged: torch.Tensor
    finite: torch.Tensor
    limits: ErrorLimits | None = None
    exact: bool = False
    also: tuple[torch.Tensor, ...] = ()
    picked: Picked | None = None
    stride: tuple[int, ...] | None = None
    open: torch.Tensor | None = None
    start: int = 0
    whole: tuple[int, ...] | None = None
    between: bool = False

    @cached_property
    def is_plain(self) -> bool:
        """True if every element counts and has a finite answer and limit, as most do: comparing it takes few passes."""
        return self.limits is not None and bool((self.judged & self.finite & self.limits.element.isfinite()).all())

    def pieces(self, *values: torch.Tensor) -> Iterator[tuple[Output, tuple[torch.Tensor, ...]]]:
        """The output itself with values of its shape, on its device."""
        yield self, tuple(v.to(self.expected.device) for v in values)

    def count_useless(self, overflows: bool = True) -> int:
        """The number of elements that are not finite in the reference or in eager, or are decided by roundings. Where
        nothing overflows an infinity on which both agree is an answer, as that of a masked logit."""
        useful = self.judged & (self.finite if overflows else self.finite | self.expected.isinf())
        return math.prod(self.shape) - int((useful if self.open is None else useful & ~self.open).sum())

    def to_cpu(self) -> Output:
        def move(part: Any) -> Any:
            return replace(part, **{n: v.cpu() for n, v in vars(part).items() if isinstance(v, torch.Tensor)})

        also = tuple(v.cpu() for v in self.also)
        own = {"limits": self.limits and move(self.limits), "picked": self.picked and move(self.picked)}
        return replace(move(self), also=also, **own)


@dataclass(frozen=True)
class LargeOutput:
    """An output whose limits are computed piece by piece from the values that it keeps.

    expected is float64, eager has the output's dtype; errors, moved and reach cover every element; how has the other
    arguments of `compute_limits`.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    expected: torch.Tensor
    eager: torch.Tensor
    errors: EagerErrors
    moved: torch.Tensor
    stride: tuple[int, ...] | None
    reach: torch.Tensor | None
    how: Mapping[str, Any]
    limits: None = None

    @property
    def rounded(self) -> torch.Tensor:
        return self.expected.to(self.dtype)

    @property
    def finite(self) -> torch.Tensor:
        return torch.isfinite(self.rounded)

    def pieces(self, *values: torch.Tensor) -> Iterator[tuple[Output, tuple[torch.Tensor, ...]]]:
        """Each piece with its limits, and the same piece of values of the output's shape, on its device."""
        for start, stop in list_pieces(self.shape):
            y, eager, moved, *cut = (take(v, start, stop) for v in (self.expected, self.eager, self.moved, *values))
            reach = None if self.reach is None else take(self.reach, start, stop)
            errors = self.errors.take(self.shape, start, stop)
            piece = _make_output(y, eager, errors, moved, None, reach=reach, **self.how)
            yield replace(piece, start=start, whole=self.shape), tuple(v.to(y.device) for v in cut)

    def count_useless(self, overflows: bool = True) -> int:
        useful = 0
        for pair in list_pieces(self.shape):
            y, eager = (take(v, *pair) for v in (self.expected, self.eager))
            infinite = (not overflows) & y.isinf() & (eager == y)
            useful += int((infinite | (y.to(self.dtype).isfinite() & eager.isfinite())).sum())
        return math.prod(self.shape) - useful

    def to_cpu(self) -> LargeOutput:
        """Returns itself, not moved: the CPU's memory is for others."""
        return self


@dataclass(frozen=True)
class Expectation:
    """All outputs of the reference at one shape, regime and seed. dropped says why this regime judges nothing.

    coarse is how many times 16-bit operands are coarser than the compute precision.
    """

    shape: str
    regime: str
    outputs: tuple[Output | LargeOutput, ...]
    dropped: str = ""
    notes: tuple[str, ...] = ()
    coarse: float = 1.0


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Within the context, CPU sums have one order, whatever the machine and the task's file would choose."""
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
    convolution_eps: float = 0.0,
    picks: bool = True,
) -> Expectation:
    """Runs the reference in float64 (the right answer) and in the task's dtypes (the error of eager PyTorch).

    reference64 takes the inputs as float64; where it cannot, it runs in float32 on the CPU, and notes say so.
    mutates are the positions of inputs that the task changes; their later values are outputs too, after the
    flattened return value. strides are the seed's, per output (None: any). tolerance multiplies all limits.
    convolution_eps is the relative error that operands of float32 convolutions may have. picks says that integer
    inputs may hold each other's values: on a GPU an index out of bounds ends the process.
    """
    with TermsMode() as terms, SitesMode() as seen:
        eager = run_reference(reference, inputs, mutates)
    dtypes, rounded = [y.dtype for y in eager], list(map(seen.has_rounded, eager))
    widest, answers = find_widest(reference64, inputs, mutates, [y.shape for y in eager])
    if len(answers) != len(eager):
        raise ValueError(f"the reference gives {len(answers)} outputs in float64 and {len(eager)} in its own dtypes")
    eager, answers = _encode(eager, dtypes), _encode(answers, dtypes)
    count, picked = len(eager), []
    operands = [x.dtype for x in (*inputs, *eager) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    units = [torch.finfo(d).eps / 2 for d in operands if d.itemsize <= 2]
    eps = contract = COMPUTE_EPS.get(precision, COMPUTE_EPS["ieee"])
    if precision == "half-accumulate":  # sums in the operands' own 16 bits: those of float16 are 8 times finer
        eps = contract = max(units, default=eps)
    coded = any(not y.is_floating_point() for y in eager) and (bool(seen.values) or any(map(is_data, inputs)))
    if coded and max(y.numel() for y in (*eager, *seen.values)) <= LARGE:
        with SitesMode() as exact:
            wide = run_reference(widest.reference, widest.widen(inputs), mutates, copied=True)
        if [v.shape for v in seen.values] == [v.shape for v in exact.values]:  # judged as if they were outputs too
            picked = [exact.find_picked(y) for y in wide]
            eager, answers = [*eager, *seen.values], [*answers, *exact.values]
    floats = _widen(answers)
    if all(y.dtype is torch.float64 or not y.is_floating_point() for y in eager):
        eps, convolution_eps = min(eps, 2.0**-52), 0.0
    eights = [x for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype.itemsize == 1]
    steps = -(-terms.deepest // EIGHT_BIT_STEP) if len(eights) > 1 else 0.0
    product_eps = steps * EIGHT_BIT_SUM
    notes = [widest.note] if widest.note else []
    if steps:
        notes.append(f"{EIGHT_BIT_NOTE}: {product_eps:.2g} of the terms' size at {terms.deepest:.0f} terms")

    def run(function: Any, fresh: Sequence[Any], copied: bool, shifts: Sequence[torch.Tensor] = ()) -> Any:
        with SitesMode(shifts) if picked else nullcontext() as sites:
            made = _encode(run_reference(function, fresh, mutates, copied=copied), dtypes)
        return [*made, *sites.values] if sites else made

    def run_wide(fresh: list[Any], shifts: Sequence[torch.Tensor] = ()) -> list[torch.Tensor]:
        return run(widest.reference, fresh, True, shifts)

    most = max((y.numel() for y in floats), default=0)
    large = most > LARGE
    if large:  # what is not needed now is computed again later: memory is scarcer than time
        eager = []
    zero_mean = regime in ZERO_MEAN
    factors = [estimate_accumulation(inputs, y.numel(), zero_mean, terms.most, terms.longest) for y in floats]
    farthest = min([FARTHEST, *factors])
    has_limits = any(y.is_floating_point() for y in floats)  # else no sample of an error is looked at
    draws = draws if has_limits else 0
    moved = measure_condition(
        run_wide,
        lambda: widest.widen(inputs),
        floats,
        eps=eps,
        seed=seed,
        draws=draws,
        steps=farthest,
        # limits multiply it by a factor, and tf32's roundings of operands do not add up along an axis
        convolution_eps=convolution_eps * farthest / max([farthest, *factors]),
        product_eps=product_eps * farthest / max([farthest, *factors]),
        scalars_of=reference64,
    )
    if eps > FLUSHING and has_limits:
        add_flushed(moved, run_wide, lambda: widest.widen(inputs), floats, factors)
    shrink = 0.0 if regime in WHOLE else SHRINK

    def draw_pairs() -> Iterator[tuple[list[torch.Tensor], list[torch.Tensor]]]:
        """Answers of eager with the right ones; of each pair nothing is kept while the next one is made."""
        if eager:
            yield eager, answers
        for sample in range(0 if eager else -1, SAMPLES["many" if most > MANY else "few"] if has_limits else 0):
            near = list(inputs) if sample < 0 else move_inputs(inputs, seed * 41 + sample, shrink)
            with nullcontext() if sample < 0 else NarrowAttention(seed * 41 + sample):
                pair = [run(reference, near, False)]
            wide = widest.widen(near)
            del near
            pair.append(run_wide(wide))
            del wide
            yield pair.pop(0), pair.pop()

    if large:
        answers, floats, moved = [], [], [m.cpu() for m in moved]
    errors = measure_eager(draw_pairs())
    if large:
        eager = _encode(run_reference(reference, inputs, mutates), dtypes)
        answers = _encode(widest.run(inputs, mutates), dtypes)
        floats = _widen(answers)
    reached: list[Any] = [None] * len(floats)
    if picks and has_limits:
        reached = measure_reach(lambda x: _encode(widest.run(x, mutates), dtypes), inputs, floats, seed=seed)
    coarse = max(1.0, max(units, default=eps) / eps)
    how = {"eps": eps, "coarse": coarse, "homogeneous": regime not in UNEVEN, "zero_mean": zero_mean}
    how |= {"one_term": regime in ONE_TERM, "has_orders": terms.most > 2}  # of additions: two terms have one
    may_be_exact = tolerance <= 1.0 and regime in WHOLE
    may_be_exact = may_be_exact and has_exact_operations(run_wide, widest.widen(inputs))
    others: list[tuple[torch.Tensor, ...]] = [() for _ in floats]
    shifts: list[torch.Tensor] = []
    outputs: list[Output | LargeOutput] = []
    for number in [*range(count, len(floats)), *range(count)]:  # what is rounded, then what it is rounded to
        y, c, r = floats[number], moved[number], reached[number]
        e, c, r = eager[number].to(y.device), c.to(y.device), None if r is None else r.to(y.device)
        own = {**how, "scale": tolerance, "factor": factors[number], "reach": r, "may_be_exact": may_be_exact}
        if number >= count:
            limits = _make_output(y, e, errors[number], c, None, **own).limits
            among = any(p and p.site == number - count for p in picked)
            shifts.append(find_shift(y, e, errors[number], limits, among))
            continue
        if coded and not number:
            others = draw_roundings(
                run_wide, lambda: widest.widen(inputs), floats[:count], shifts, eps=contract, seed=seed
            )
            if any(map(has_no_number, floats[:count], dtypes)):
                with SitesMode(saturate=True):
                    ends = run_wide(widest.widen(inputs))
                others = [other if y.is_floating_point() else (*other, y) for other, y in zip(others, ends)]
        stride = strides[number] if number < len(strides) else None
        if y.numel() > LARGE and e.dtype.is_floating_point and y.shape == e.shape:
            del own["reach"]
            outputs.append(LargeOutput(tuple(e.shape), dtypes[number], y, e, errors[number], c, stride, r, own))
            continue
        output = _make_output(y, e, errors[number], c, stride, also=(e, *others[number]), **own)
        if picked and (index := picked[number]) is not None:
            index = index.settle(floats[count + index.site], shifts[index.site])
            output = replace(output, picked=index, judged=torch.ones_like(output.judged))
        outputs.append(replace(output, dtype=dtypes[number], between=rounded[number]))
    if regime in ("far", "extreme"):
        nearby = (scale_inputs(inputs, factor) for factor in (1 / HEADROOM, HEADROOM))
        pairs = [(run_reference(reference, near, mutates), widest.run(near, mutates)) for near in nearby]
        for n, made in enumerate(outputs):
            if isinstance(made, Output) and made.dtype.is_floating_point:
                judged = find_within_range(made.judged, [(eager[n], right[n]) for eager, right in pairs])
                outputs[n] = replace(made, judged=judged)
    return Expectation(shape, regime, tuple(outputs), explain_drop(outputs, regime), tuple(notes), coarse)


EIGHT_BIT_NOTE = (
    "sums of products of 8-bit floats may err as those of Hopper's matrix units do, in cuBLAS (torch._scaled_mm with "
    "use_fast_accum) as in a kernel; eager's product of float32 errs less"
)
"""The contract of such products, in a verdict's notes."""


def _encode(values: Sequence[torch.Tensor], dtypes: Sequence[torch.dtype]) -> list[torch.Tensor]:
    return [encode(y, dtype) for y, dtype in zip(values, dtypes, strict=True)]


def _widen(answers: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [y.double() if y.is_floating_point() else y for y in answers]


def _make_output(
    y: torch.Tensor,
    eager: torch.Tensor,
    errors: EagerErrors,
    moved: torch.Tensor,
    stride: tuple[int, ...] | None,
    *,
    may_be_exact: bool,
    has_orders: bool,
    also: tuple[torch.Tensor, ...] = (),
    **how: Any,
) -> Output:
    shape, dtype = tuple(eager.shape), eager.dtype
    if tuple(y.shape) != shape:
        raise ValueError(f"the reference gives shape {tuple(y.shape)} in float64 and {shape} in its own dtype")
    everywhere = torch.ones(shape, dtype=torch.bool, device=y.device)
    if not dtype.is_floating_point:
        answer = y.to(dtype)
        also = tuple(v.to(y.device, dtype) for v in also)
        sure = everywhere
        if len(also) >= UNSURE:
            sure = find_sure(answer, also)
            if how["zero_mean"] and 2 * int(sure.sum()) < sure.numel():
                sure = everywhere  # one regime at least must say something
        return Output(shape, dtype, answer, answer, sure, everywhere, also=also, exact=True, stride=stride)
    rounded = y.to(dtype)
    finite = torch.isfinite(rounded)
    agreed = finite == torch.isfinite(eager)
    apart = (rounded != eager) & ~(rounded.isnan() & eager.isnan())
    if has_orders:  # inf in one and inf - inf in another
        apart |= y.isfinite() & (y.abs() > torch.finfo(torch.float32).max)
    apart &= agreed & ~finite
    allowed = compute_limits(y, dtype, errors, moved, judged := finite & agreed, **how)
    exact = may_be_exact and bool(judged.all()) and is_exact(y, eager, rounded)
    opened = apart if bool(apart.any()) else None
    return Output(shape, dtype, y, rounded, agreed, finite, allowed, exact, (), None, stride, opened)


def explain_drop(outputs: Sequence[Any], regime: str) -> str:
    """Why a regime judges nothing; empty if it does. More than half of each output must say something.

    Integers that roundings decide are no reason: the other outputs are judged, and their own range is.
    """
    for number, output in enumerate(outputs):
        total = math.prod(output.shape)
        useless = output.count_useless() if output.dtype.is_floating_point else 0
        if regime in SMALL and total / 2 < useless < total:
            useless = output.count_useless(overflows=False)
        if useless * 2 > total:
            return f"regime {regime} is dropped: output {number} is non-finite in {useless} of {total} elements"
    return ""
