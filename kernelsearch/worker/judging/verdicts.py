"""The verdict on a candidate's runs: every case against its right answer, then repeats and timed shapes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import torch

from kernelsearch.core.types import Verdict, Word
from kernelsearch.tasks.facts import label_shape
from kernelsearch.verify.expectation import Expectation
from kernelsearch.verify.half_roundings import is_accident
from kernelsearch.verify.judge import Probe, judge, judge_sensitivity, measure_spread
from kernelsearch.verify.regime_words import describe_layout
from kernelsearch.verify.regimes import BY_ROW, is_data
from kernelsearch.verify.scales import find_mixing_axis
from kernelsearch.worker.judging.opened_task import OpenedTask
from kernelsearch.worker.launcher import tensors
from kernelsearch.worker.messages import ipc
from kernelsearch.worker.messages.jobs import REPEATED, JudgedCase, JudgeRuns, JudgeSeeded, Ran


def judge_runs(opened: OpenedTask, job: JudgeRuns) -> Verdict:
    """The first rejecting verdict of these cases in order, else accept with the worst error ratio."""
    worst = 0.0
    unmoved: dict[JudgedCase, list[Any]] = {}
    opened.prepare_answers(case for case, run in zip(job.cases, job.runs, strict=True) if not run.written)
    for case, run in zip(job.cases, job.runs, strict=True):
        before = opened.inputs_before(case) if run.inputs else []
        outputs = unmoved[case] = [tensors.unpack(o) for o in run.outputs]
        after = tensors.unpack_changed(run.inputs, before)
        rest = before, after, opened.mutated_positions(case)
        if run.written:
            verdict = _judge_few(opened, job, case, run, outputs, rest)
        else:
            verdict = _judge_all(opened, job, case, outputs, *rest)
        base = replace(case, probe=None)
        if case.probe is not None and base in unmoved and verdict.word in (Word.ACCEPT, Word.WRONG):
            answers = opened.expectation_of(base), opened.expectation_of(case)
            verdict = judge_sensitivity(*answers, unmoved[base], outputs, Probe(*case.probe), depth=job.depth)
        if verdict.accepted and run.again:
            verdict = _judge_repeats(opened.expectation_of(case), outputs, run, job)
        if not verdict.accepted:
            return _describe(opened, verdict, case, opened.inputs_before(case))
        worst = max(worst, verdict.error_ratio or 0.0)
    said = [*opened.expectation_of(job.cases[0]).notes] if job.cases else []
    return Verdict(Word.ACCEPT, "judge", depth=job.depth, error_ratio=worst, detail={"notes": said} if said else {})


def _judge_few(
    opened: OpenedTask, job: JudgeRuns, case: JudgedCase, run: Ran, outputs: list[Any], rest: tuple[Any, ...]
) -> Verdict:
    """The verdict on a few rows where these stand alone, else on all."""
    masks = [tensors.unpack(w) for w in run.written]
    if rows := _list_written(opened, case, outputs, masks):
        right, at = opened.expect_written(case, rows), list(rows)
        if right is not None and not right.dropped:
            few = judge(right, [outputs[0][at]], *rest, depth=job.depth)
            if few.accepted:  # else all rows say what is wrong, and where
                return few
    return _judge_all(opened, job, case, outputs, *rest)


def _judge_all(opened: OpenedTask, job: JudgeRuns, case: JudgedCase, *given: Any) -> Verdict:
    """The verdict on all elements; few errors may be as large as those of other roundings of the reference."""
    verdict = judge(opened.expectation_of(case), *given, depth=job.depth)
    if not is_accident(verdict):
        return verdict
    wider = (judge(right, *given, depth=job.depth) for right in opened.redraw_roundings(case))
    return next(filter(attrgetter("accepted"), wider), verdict)


def _list_written(opened: OpenedTask, case: JudgedCase, outputs: list[Any], masks: list[Any]) -> tuple[int, ...]:
    """The rows of a single output that kernels wrote, if they are few and it has the form of the task's own."""
    if len(outputs) != 1 or len(masks) != 1 or masks[0] is None or opened.mutated_positions(case):
        return ()
    got, form = outputs[0], opened.run_seed(case.shape).outputs[0]
    if got.dim() < 2 or (got.shape, got.stride()) != (form.shape, form.stride()):
        return ()
    rows = tuple(masks[0].flatten(1).any(1).nonzero().flatten().tolist())
    return rows if 2 * len(rows) <= len(got) else ()


def _judge_repeats(expected: Expectation, outputs: list[Any], run: Ran, job: JudgeRuns) -> Verdict:
    """The verdict on repeated runs with different bits: a race, or, with atomics, a spread that has a limit."""
    about = {"shape": expected.shape, "regime": expected.regime}
    if not job.atomics:
        reason = "runs of the same inputs differ, and the kernel has no atomics that could explain it"
        return Verdict(Word.RACE, "judge", reason, job.depth, detail=about)
    worst = max(measure_spread(expected, outputs, [tensors.unpack(o) for o in again]) for again in run.again)
    if worst > 1.0:
        reason = f"runs of the same inputs differ by {worst:.3g} times what is allowed"
        return Verdict(Word.RACE, "judge", reason, job.depth, error_ratio=worst, detail=about)
    return Verdict(Word.ACCEPT, "judge", depth=job.depth, error_ratio=worst)


def _describe(opened: OpenedTask, verdict: Verdict, case: JudgedCase, before: list[Any]) -> Verdict:
    """The verdict with the case's sizes, and whether only inputs are wrong that the task's own are not like."""
    verdict = _name_inputs(opened, verdict, case)
    detail = {**verdict.detail, "label": label_shape(opened.task, case.shape)}
    if opened.task.tolerance:
        detail["tolerance"] = opened.task.tolerance
    if "rows" in detail and case.probe is None:
        drawn = opened.build_case(case.shape).inputs
        detail["outside"] = lie_outside(before, drawn, detail["rows"], opened.count_rows(case.shape), case.regime)
    if case.scalars:
        given = ", ".join(f"{name}={value!r}" for name, value in case.scalars)
        verdict = replace(verdict, reason=f"with {given}: {verdict.reason}")
    if not case.padded:
        return replace(verdict, detail=detail)
    return replace(verdict, reason=verdict.reason + describe_layout(case.padded), detail={**detail, "padded": True})


def _name_inputs(opened: OpenedTask, verdict: Verdict, case: JudgedCase) -> Verdict:
    """The verdict with the names of inputs in place of their numbers, and in its detail those that hold data."""
    built = opened.build_case(case.shape)
    names = dict(zip(built.names, built.inputs, strict=True))
    reason = re.sub(r"\binput (\d+)\b", lambda found: f"input {built.names[int(found[1])]}", verdict.reason)
    detail = {**verdict.detail, "inputs": [name for name, value in names.items() if is_data(value)]}
    if "input" in detail:
        detail["input"] = built.names[detail["input"]]
    return replace(verdict, reason=reason, detail=detail)


def judge_seeded(opened: OpenedTask, job: JudgeSeeded) -> Verdict:
    """The verdict on a whole timed shape, in GPU memory, and on its runs that were made like timed ones."""
    outputs = [ipc.open_shared(o) for o in job.run.outputs]
    after = [ipc.open_shared(v) for v in job.run.inputs]
    try:
        return _judge_seeded(opened, job, outputs, after)
    finally:
        del outputs, after
        opened.make_room()


def _judge_seeded(opened: OpenedTask, job: JudgeSeeded, outputs: list[Any], after: list[Any]) -> Verdict:
    alike = not job.run.again and not job.run.unequal
    mark = opened.mark_bits(job.case, outputs) if alike else ()  # of what is judged below, before it is
    if alike and (known := opened.find_accepted(mark, after)) is not None:
        return _with_repeats(known, job.run)
    expected, before = opened.load_timed(job.case)
    verdict = judge(expected, outputs, before, after, opened.mutated_positions(job.case), depth="full")
    for timed in ([ipc.open_shared(o) for o in again] for again in job.run.again):
        if not verdict.accepted:
            break
        again = judge(expected, timed, depth="full")
        if not again.accepted or not job.atomics:
            if job.run.unequal:
                return _describe_race(expected, [ipc.open_shared(o) for o in job.run.unequal])
            fault = again.reason or "its bits are not those of the judged run, and the kernel has no atomics"
            return replace(again, word=Word.TIMING, reason=f"run as it is timed, it gives another answer: {fault}")
        spread = measure_spread(expected, outputs, timed)
        verdict = replace(verdict, error_ratio=max(verdict.error_ratio or 0.0, again.error_ratio or 0.0, spread))
    if verdict.accepted and job.run.unequal:
        verdict = _describe_race(expected, [ipc.open_shared(o) for o in job.run.unequal])
    if not verdict.accepted:
        verdict = _name_inputs(opened, verdict, job.case)
        verdict = replace(verdict, detail={**verdict.detail, "label": label_shape(opened.task, job.case.shape)})
    elif alike:
        opened.keep_accepted(mark, verdict)
    return _with_repeats(verdict, job.run)


def _with_repeats(verdict: Verdict, run: Ran) -> Verdict:
    return replace(verdict, detail={**verdict.detail, REPEATED: run.repeated}) if run.repeated else verdict


def _describe_race(expected: Expectation, outputs: list[Any]) -> Verdict:
    """The verdict on an asynchronous kernel of which one run gave other bits than the first."""
    late = judge(expected, outputs, depth="full")
    what = late.reason or "its bits are others, and the kernel has no atomics that could explain it"
    reason = f"one of many runs of the same inputs, with other work on the GPU, differs: {what}"
    return replace(late, word=Word.RACE, reason=reason)


def lie_outside(
    inputs: Sequence[Any], drawn: Sequence[Any], rows: Sequence[int], rows_in_all: int | None, regime: str
) -> bool:
    """Whether the values behind each of these rows of an output are others than the task's own inputs (drawn) have.

    Where regimes are mixed, a row of an input along which they are stands for that row of the output.
    """

    def parts(value: torch.Tensor, row: int | None) -> torch.Tensor:
        axis = find_mixing_axis(value, rows_in_all)
        mixed = regime in BY_ROW and value.shape[axis] == rows_in_all and (row or 0) < rows_in_all
        return value.select(axis, row) if mixed and row is not None else value

    data = [(value, own) for value, own in zip(inputs, drawn, strict=True) if is_data(own)]
    return not any(all(_is_among(parts(v, row), own) for v, own in data) for row in (rows or (None,)))


def _is_among(values: torch.Tensor, drawn: torch.Tensor) -> bool:
    """Whether values lie in the range of drawn ones, which is half a range wider on both sides but keeps its sign."""
    low, high = (float(v) for v in drawn.float().aminmax())
    room = (high - low) / 2
    least = max(low - room, 0.0) if low >= 0 else low - room
    most = min(high + room, 0.0) if high <= 0 else high + room
    first, last = (float(v) for v in values.float().aminmax())
    return least <= first and last <= most
