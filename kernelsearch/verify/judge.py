"""The judge: compares a candidate's outputs with an expectation; pure functions on tensors of any device."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from kernelsearch.core.types import Verdict, Word
from kernelsearch.verify.bits import find_changed_input, same_bits
from kernelsearch.verify.cures import NOT_EXACT, NOT_FINITE
from kernelsearch.verify.domains import list_domains, narrow, suggest_domain
from kernelsearch.verify.expectation import Expectation, LargeOutput, Output
from kernelsearch.verify.pieces import copy_tensor, encode, is_outside
from kernelsearch.verify.tolerance import ErrorLimits

INTEGER_POISON = -0x5A5A5A5B
"""The value of an unwritten integer, cut to its width; an unwritten float is NaN."""
_LEAST = torch.finfo(torch.float64).tiny

MOST_ROWS = 16
"""Rows with a wrong element that a verdict names: every regime that is mixed among the rows is in so many."""


def poison_value(dtype: torch.dtype) -> float | int | bool:
    """The value that fills an output before a candidate runs, to show the elements that it does not write."""
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    if dtype is torch.bool:
        return True
    info = torch.iinfo(dtype)
    return INTEGER_POISON % (info.max + 1) if info.bits < 64 else INTEGER_POISON


def judge(
    expected: Expectation,
    outputs: Sequence[torch.Tensor],
    inputs_before: Sequence[Any] = (),
    inputs_after: Sequence[Any] = (),
    mutates: Sequence[int] = (),
    *,
    depth: str = "screen",
) -> Verdict:
    """Accept, or the first fault in: inputs, number of outputs, shape, dtype, strides, unwritten, non-finite, error.

    outputs are the launcher's flattened return value, then the changed inputs, as in `widest.run_reference`. Costs a
    few passes over the data; the expectation is not changed.
    """
    about: dict[str, Any] = {"shape": expected.shape, "regime": expected.regime}
    if expected.notes:
        about["notes"] = list(expected.notes)

    def wrong(reason: str, ratio: float | None = None, **detail: Any) -> Verdict:
        return Verdict(Word.WRONG, "judge", reason, depth, error_ratio=ratio, detail={**about, **detail})

    changed = find_changed_input(inputs_before, inputs_after, mutates)
    if changed is not None:
        reason = f"input {changed} was changed; the task does not say that it may be"
        return Verdict(Word.MEMORY, "judge", reason, depth, detail={**about, "input": changed})
    if expected.dropped:
        return Verdict(Word.ACCEPT, "judge", expected.dropped, depth, detail={**about, "dropped": expected.dropped})
    if len(outputs) != len(expected.outputs):
        return wrong(f"{len(outputs)} outputs where the reference has {len(expected.outputs)}")
    worst = 0.0
    for number, (right, got) in enumerate(zip(expected.outputs, outputs)):
        form = _describe_wrong_form(right, got)
        if form:
            return wrong(f"output {number}: {form}", output=number)
        for piece, (part,) in right.pieces(got.detach()):
            finding = _compare(piece, part)
            worst = max(worst, finding.ratio)
            if finding.reason:
                narrow = right.dtype.is_floating_point and right.dtype.itemsize > 2 and finding.ratio < expected.coarse
                detail = {"output": number, **finding.detail, **({"narrow": True} if narrow else {})}
                return wrong(f"output {number}: {finding.reason}", finding.ratio, **detail)
    return Verdict(Word.ACCEPT, "judge", "", depth, error_ratio=worst, detail=about)


@dataclass(frozen=True)
class _Finding:
    """The error divided by its limit, and the fault (empty if there is none)."""

    ratio: float
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


def _describe_wrong_form(right: Output | LargeOutput, got: Any) -> str:
    if not isinstance(got, torch.Tensor):
        return f"a {type(got).__name__} instead of a tensor"
    if tuple(got.shape) != right.shape:
        return f"shape {tuple(got.shape)}, expected {right.shape}"
    if got.dtype != right.dtype:
        return f"dtype {got.dtype}, expected {right.dtype}"
    if right.stride is not None and tuple(got.stride()) != tuple(right.stride):
        return f"strides {tuple(got.stride())}, expected {tuple(right.stride)}"
    return ""


def _compare(right: Output, got: torch.Tensor) -> _Finding:
    got = encode(got, right.dtype)
    if not got.numel():
        return _Finding(0.0)
    if right.limits is None:
        wrong = got != right.rounded
        for other in right.also:
            wrong &= got != other
        if right.between and bool(wrong.any()):
            wrong &= is_outside(got, (right.rounded, *right.also), right.dtype)
        if not bool(right.judged.all()):
            ends = [int(end) for v in (right.rounded, *right.also) for end in v.long().aminmax()]
            low, high, number = min(ends), max(ends), got.long()
            reach = high - low  # few draws do not span all that is right
            wrong &= right.judged | (number < low - reach) | (number > high + reach)
        if right.picked is not None:
            wrong = (wrong & ~right.picked.points_alike(got, right.rounded)) | right.picked.repeats(got, right.rounded)
        if not bool(wrong.any()):
            return _Finding(0.0)
        poison = encode(torch.full((), poison_value(right.dtype), dtype=right.dtype), right.dtype)
        poisoned = wrong & (got == poison.item())  # a number like any other: some may be so by chance
        if 2 * int(poisoned.sum()) >= int(wrong.sum()) and right.dtype is not torch.bool:
            return _locate(right, got, poisoned, "not written", float("inf"))
        return _locate(right, got, wrong, NOT_EXACT, float("inf"))
    error = (got.double() - right.expected).abs()
    if right.exact or not right.is_plain or not bool((error <= right.limits.element).all()):  # NaN is not less
        counts = right.judged & right.finite & torch.isfinite(got)
        if fault := _find_fault(right, got, counts):
            return fault
        error = torch.where(counts, error, 0.0)
    return _grade(right, right.limits, got, error)


def _find_fault(right: Output, got: torch.Tensor, counts: torch.Tensor) -> _Finding | None:
    """A number where there must be none, or the reverse, or one that must be exact and is not, if there is one."""
    bad = _find_misplaced(right, got)
    if bool(bad.any()):
        unwritten = right.finite & torch.isnan(got)
        hole = "not written, or NaN where the reference is finite"
        what = hole if bool(unwritten.any()) else NOT_FINITE
        return _locate(right, got, bad, what, float("inf"))
    if right.exact and bool((wrong := counts & (got != right.rounded)).any()):
        return _locate(right, got, wrong, "must be exact here, and is not", float("inf"))
    return None


def _grade(right: Output, limits: ErrorLimits, got: torch.Tensor, error: torch.Tensor) -> _Finding:
    relative = error / limits.element.clamp_min(_LEAST)
    worst = float(relative.max())
    if worst > 1.0:
        return _locate(right, got, relative > 1.0, f"an element's error is {worst:.3g} times what is allowed", worst)
    scaled = error if limits.unit is None else error / limits.unit
    rms = limits.tiles.rms(scaled, limits.counts)
    ratios = rms / limits.rms.clamp_min(_LEAST)
    worst_rms = float(ratios.max())
    if worst_rms > 1.0:
        least = torch.where(ratios > 1.0, rms, torch.inf)  # what errs less than its tile's rms is not to blame
        where = limits.tiles.join(limits.tiles.split(scaled) >= least[:, None], error.shape)
        return _locate(right, got, where, f"a tile's rms error is {worst_rms:.3g} times what is allowed", worst_rms)
    return _Finding(max(worst, worst_rms))


def _find_misplaced(right: Output, got: torch.Tensor) -> torch.Tensor:
    """Elements that are finite where they must not be, or the reverse; next to overflow either is right.

    Where eager is NaN in place of the infinity, next to it means within a tenth: terms cancel, which errs by more.
    """
    finite = torch.isfinite(got)
    if bool((finite & right.finite).all()):  # as it mostly is; the rest takes ten times as long
        return torch.zeros_like(finite)
    largest = torch.finfo(got.dtype).max
    sign = torch.sign(right.expected)
    near = 0.01 if right.open is None else torch.where(right.open, 0.1, 0.01).double()
    edge = (right.expected.abs() >= (1.0 - near) * largest) & (right.expected.abs() <= (1.0 + near) * largest)
    right_if_finite = finite | (edge & (got.double() == sign * torch.inf))
    same = (right.rounded == got) | (torch.isnan(right.rounded) & torch.isnan(got))
    right_if_not = same | (edge & finite & (torch.sign(got.double()) == sign))
    if right.open is not None:
        right_if_not |= right.open & ~finite
    return right.judged & ~torch.where(right.finite, right_if_finite, right_if_not)


def _locate(right: Output, got: torch.Tensor, wrong: torch.Tensor, what: str, ratio: float) -> _Finding:
    """A finding that names the first wrong element, for --explain."""
    flat = int(wrong.reshape(-1).to(torch.uint8).argmax())
    shape = right.whole or right.shape
    index = [int(i) for i in torch.unravel_index(torch.tensor(right.start + flat), shape)] if shape else []
    wanted, value = (v.reshape(-1)[flat] for v in (right.rounded, got))
    if right.dtype.is_floating_point and right.dtype.itemsize == 1:
        wanted, value = wanted.view(right.dtype).float(), value.view(right.dtype).float()
    expected, found = wanted.item(), value.item()
    count = int(wrong.sum())
    rows = index[:1] if right.whole else _list_rows(wrong)
    detail = {"index": index, "rows": rows, "expected": expected, "got": found, "wrong": count, "of": wrong.numel()}
    place = f"first at {index}: expected {expected:.6g}, got {found:.6g}; {count} of {wrong.numel()} elements"
    return _Finding(ratio, f"{what} ({place})", detail)


def _list_rows(wrong: torch.Tensor) -> list[int]:
    """The first rows with a wrong element; empty for a scalar."""
    if not wrong.dim():
        return []
    rows = wrong.flatten(1).any(1) if wrong.dim() > 1 else wrong
    return rows.nonzero()[:MOST_ROWS].reshape(-1).tolist()


def measure_spread(expected: Expectation, first: Sequence[torch.Tensor], again: Sequence[torch.Tensor]) -> float:
    """The largest difference of two runs divided by the element's limit; 0 if they are equal bit for bit.

    A kernel without atomics must give 0; one with atomics at most 1.
    """
    worst = 0.0
    for right, one, two in zip(expected.outputs, first, again):
        if same_bits(one, two):
            continue
        for piece, (a, b) in right.pieces(one, two):
            if piece.limits is None:
                return float("inf")
            apart = torch.nan_to_num((a.double() - b.double()).abs(), nan=torch.inf)
            apart = torch.where(piece.judged & piece.finite, apart, 0.0)
            worst = max(worst, float((apart / piece.limits.element.clamp_min(_LEAST)).max()), 1e-9)
    return worst


# ---------------------------------------------------------------- sensitivity


@dataclass(frozen=True)
class Probe:
    """One input element and its new value; index is into the flattened input."""

    input: int
    index: int
    value: float


def choose_probes(
    inputs: Sequence[Any],
    seed: int,
    count: int = 8,
    *,
    names: Sequence[str] = (),
    domain: Mapping[str, str] | None = None,
) -> tuple[Probe, ...]:
    """Elements to move: first, last, around the edges of blocks, and random ones; count of each floating input.

    names and domain are those of `make_inputs`: a value stays in its input's domain, and a fixed input as it is.
    """
    chosen = []
    for position, (value, limit) in enumerate(zip(inputs, list_domains(inputs, names, domain))):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
            continue
        if limit == "fixed":
            continue
        numel, width = value.numel(), value.shape[-1] if value.dim() else 1
        edges = [0, numel - 1, width - 1, numel - width, *(numel - width + e for e in (width // 2, width // 2 - 1))]
        generator = torch.Generator().manual_seed(seed * 7919 + position)
        edges += torch.randint(0, numel, (count,), generator=generator).tolist()
        wide = value.double()
        middle = 0.5 if limit == "unit" else 0.0
        step = 8.0 * float(wide.abs().amax().clamp(2.0**-10, torch.finfo(value.dtype).max / 32))
        for index in list(dict.fromkeys(e for e in edges if 0 <= e < numel))[:count]:
            old = float(wide.reshape(-1)[index])
            moved = wide.new_tensor(old - step if old > middle else old + step)
            chosen.append(Probe(position, index, float(narrow(moved, limit))))
    return tuple(chosen)


def apply_probe(inputs: Sequence[Any], probe: Probe) -> list[Any]:
    """Copies of the inputs, strides kept, with the probe's element set."""
    moved = [copy_tensor(x) if isinstance(x, torch.Tensor) else x for x in inputs]
    target = moved[probe.input]
    target[torch.unravel_index(torch.tensor(probe.index), target.shape)] = probe.value
    return moved


def is_seen(base: Expectation, moved: Expectation) -> bool:
    """True if the reference moves by more than the limits: then the judge rejects a kernel that ignores the element."""
    pairs = tuple(zip(base.outputs, moved.outputs))
    if any(b.shape != m.shape for b, m in pairs):
        return True
    pieces = (both for b, m in pairs for both in zip(b.pieces(), m.pieces()))
    return any(bool(_find_visible(b, m).any()) for (b, _), (m, _) in pieces)


def judge_sensitivity(
    base: Expectation,
    moved: Expectation,
    base_outputs: Sequence[torch.Tensor],
    moved_outputs: Sequence[torch.Tensor],
    probe: Probe,
    *,
    depth: str = "full",
) -> Verdict:
    """Accept, or reject outputs that do not move as the reference does when one input element changes."""
    about = {"shape": base.shape, "regime": base.regime, "input": probe.input, "element": probe.index}
    for number, (b, m) in enumerate(zip(base.outputs, moved.outputs)):
        before, after = base_outputs[number], moved_outputs[number]
        if b.shape != m.shape or before.shape != after.shape:  # a size that depends on the values: judged below
            continue
        for (base_piece, (one,)), (piece, (two,)) in zip(b.pieces(before), m.pieces(after)):
            if piece.limits is None:  # the right answer may be the same, of several: judged below
                continue
            still = _find_visible(base_piece, piece) & (one == two)
            if bool(still.any()):
                what = f"does not depend on element {probe.index} of input {probe.input}"
                finding = _locate(piece, two, still, what, float("inf"))
                detail = {**about, "output": number, **finding.detail}
                return Verdict(Word.WRONG, "judge", f"output {number}: {finding.reason}", depth, detail=detail)
    verdict = judge(moved, moved_outputs, depth=depth)
    if verdict.accepted:
        return verdict
    reason = f"after element {probe.index} of input {probe.input} moved, {verdict.reason}"
    return replace(verdict, reason=reason, detail={**verdict.detail, **about})


def _find_visible(base: Output, moved: Output) -> torch.Tensor:
    counts = base.judged & base.finite & moved.judged & moved.finite
    if base.limits is None or moved.limits is None:
        return counts & (base.expected != moved.expected)
    allowed = base.limits.element + moved.limits.element
    return counts & ((moved.expected - base.expected).abs() > allowed)


# ---------------------------------------------------------------- the task itself


def judge_task(
    cases: Sequence[tuple[Expectation, Sequence[Any]]], own: Sequence[Any] = (), names: Sequence[str] = ()
) -> tuple[str, ...]:
    """Sentences that name the trivial answers that all cases (expectation, inputs) would accept; empty if none.

    own are the inputs that get_inputs gives, with their names.
    """
    live = [(e, inputs) for e, inputs in cases if not e.dropped]
    if not live:
        domain = json.dumps(suggest_domain(own, names) or dict.fromkeys(names[:1], "positive"))
        return (
            "no regime has a finite reference: say which inputs hold only values for which it is finite, here perhaps "
            f'DOMAIN = {domain} ("fixed": those that get_inputs gives)',
        )
    answers: dict[str, Callable[..., torch.Tensor | None]] = {
        "zeros": lambda output, _: torch.zeros_like(output.rounded)
    }
    answers |= {"a constant": _constant, "the mean over the batch": _batch_mean}
    most = max(len(inputs) for _, inputs in live)
    answers |= {f"input {names[p] if p < len(names) else p} itself": partial(_input, p) for p in range(most)}
    passing = []
    for name, answer in answers.items():
        tried = [(e, inputs) for e, inputs in live if not _is_right(answer, e)]
        if tried and all(_passes(answer, e, inputs) for e, inputs in tried):
            passing.append(
                f"{name} would be accepted as the answer at every shape: choose shapes, inputs or a TOLERANCE "
                "(such as TOLERANCE = 0.1) at which the reference differs from it"
            )
    return tuple(passing)


def _passes(answer: Callable[..., torch.Tensor | None], expectation: Expectation, inputs: Sequence[Any]) -> bool:
    """True if the judge accepts the answer, in the strides that the outputs must have: only the values may decide."""
    outputs = []
    for output in expectation.outputs:
        values = answer(output, inputs)
        if values is None:
            return False
        if output.stride is not None:
            empty = torch.empty_strided(output.shape, output.stride, dtype=output.dtype, device=values.device)
            values = empty.copy_(values)
        outputs.append(values)
    return judge(expectation, outputs).accepted


def _is_right(answer: Callable[..., Any], expectation: Expectation) -> bool:
    """True if an answer made from the reference is the reference: one element is its own mean, so is a batch of one."""
    if answer is _constant:
        return all(o.expected.numel() == 1 for o in expectation.outputs)
    return answer is _batch_mean and all(o.expected.dim() > 0 and o.shape[0] == 1 for o in expectation.outputs)


def _constant(output: Output, inputs: Sequence[Any]) -> torch.Tensor:
    values = output.expected[output.finite].double()
    return torch.full_like(output.rounded, values.mean().item() if values.numel() else 0.0)


def _batch_mean(output: Output, inputs: Sequence[Any]) -> torch.Tensor | None:
    if output.expected.dim() < 2:
        return None
    return output.expected.double().mean(0, keepdim=True).expand(output.shape).to(output.dtype)


def _input(position: int, output: Output, inputs: Sequence[Any]) -> torch.Tensor | None:
    value = inputs[position] if position < len(inputs) else None
    return value.to(output.dtype) if isinstance(value, torch.Tensor) and tuple(value.shape) == output.shape else None
