"""Estimated times of a candidate that no GPU has run, from its binaries and launches by the static model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from kernelsearch.compile.build import Binary
from kernelsearch.core.types import Evidence, Fill, Measurement, ShapeTime, TensorFact, Verdict, Word, content_digest
from kernelsearch.kernel.descriptors import count_bytes
from kernelsearch.kernel.launch import HostDescriptor, Scratch
from kernelsearch.measure.static_model.counts import LaunchCounts
from kernelsearch.measure.static_model.device_launch import BLIND
from kernelsearch.measure.static_model.estimate import estimate_call
from kernelsearch.measure.timing.confirm_rules import explain_impossible
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.hints import launches_of
from kernelsearch.trial.rejection import Rejection
from kernelsearch.worker.messages import jobs

ESTIMATE_PROTOCOL = "static-model-6"
EXTRAPOLATES = "extrapolates"
"""In a time's detail: what no kernel has that the model was fitted to, in words."""


def explain_extrapolation(*measurements: Measurement) -> str:
    """A sentence on what these estimates rest on that the model was never fitted to; empty for others."""
    words = dict.fromkeys(w for m in measurements for t in m.times for w in t.detail.get(EXTRAPOLATES, ()))
    if not words:
        return ""
    unlike = " and ".join(words)
    return (
        f"note: the model was fitted to no such kernel ({unlike}): its estimate may be off by more than its known error"
    )


def find_unseen(measurement: Measurement) -> str:
    """What these estimates cannot be compared for, in words: how often a loop runs; empty for others."""
    words = {w for t in measurement.times for w in t.detail.get(EXTRAPOLATES, ())}
    return " and ".join(sorted(BLIND & words))


def estimate_times(
    candidate: BoundCandidate,
    binaries: Mapping[str, Binary],
    counts: Mapping[str, tuple[LaunchCounts, ...]],
    shapes: tuple[str, ...],
) -> Measurement:
    """The estimated times of a candidate at these shapes, in microseconds.

    counts of sampled programs, where a shape has them, know masks; without them the binary and the launch are enough.
    Raises Rejection for an estimate below the least time that the shape's bytes and flops allow.
    """
    target, times = candidate.bench.target, []
    for shape in shapes:
        launches = launches_of(candidate.launches(shape), binaries, target, counts.get(shape, ()))
        total, parts = estimate_call(launches)
        total += estimate_fills(candidate, shape)
        if wrong := explain_impossible(target, candidate.bench.facts, shape, total):
            raise Rejection(Verdict(Word.TIMING, "estimate", f"an estimate of {wrong}"))
        slowest = max(parts, key=lambda e: e.time_us)
        detail = {"bottleneck": slowest.bottleneck, "occupancy": slowest.occupancy, "waves": round(slowest.waves, 2)}
        if len({launch.function for launch in launches}) > 1:
            by_function: defaultdict[str, float] = defaultdict(float)
            for launch, part in zip(launches, parts, strict=True):
                by_function[launch.function] += part.time_us
            detail["parts_us"] = dict(by_function)
        if unlike := list(dict.fromkeys(words for e in parts for words in e.extrapolates)):
            detail[EXTRAPOLATES] = unlike
        identity = content_digest(*candidate.identities(shape, binaries))
        times.append(ShapeTime(shape, total, None, 0, identity, detail))
    return Measurement(Evidence.ESTIMATED, target.name, ESTIMATE_PROTOCOL, tuple(times))


def estimate_fills(candidate: BoundCandidate, shape: str) -> float:
    """The time in microseconds in which the launcher fills what it passes: each fill is a launch that writes."""
    target, facts = candidate.bench.target, [fact for fact, _ in candidate.launches(shape)]
    left_out = {fill for name in candidate.kernel.unfilled for fill in candidate.bench.facts.find_fills(name)}
    filled: dict[Fill, int] = {}
    for fact in facts:
        for name, fills in fact.fills.items():
            tensor = fact.args[name]
            assert isinstance(tensor, TensorFact)
            filled |= dict.fromkeys(fills, tensor.extent * count_bytes(tensor.dtype))
    rate = target.bandwidth_gbps * 1e3
    return sum(target.launch_us + size / rate for fill, size in filled.items() if fill not in left_out)


def work_digest(candidate: BoundCandidate, shapes: tuple[str, ...], binaries: Mapping[str, Binary]) -> str:
    """The digest of what a candidate makes the GPU do: machine code, grids, arguments, buffers and initial values."""
    parts = [repr((shapes, *candidate.kernel.unfilled))]
    for fact, bound in (launch for shape in shapes for launch in candidate.launches(shape)):
        plan = bound.plan
        parts.append(repr((sorted(plan.init.items()), fact.site)))
        buffers: dict[str, int] = {}
        for step, spec in zip(plan.steps, bound.specialise_steps(fact), strict=True):
            b = binaries[jobs.spec_key(spec, bound.of_seed)]
            args = [step.args[name] for name, _ in b.params]
            own = {n: ("scratch", buffers.setdefault(n, len(buffers)), repr(plan.scratch[n])) for n in step.scratch}
            described = [own[a.name] if isinstance(a, Scratch) else repr(a) for a in args]
            described += [own[a.base.name] for a in args if isinstance(a, HostDescriptor) and a.base.name in own]
            described += map(repr, b.maps)
            parts.append(repr((b.identity, b.num_warps, b.num_ctas, b.shared, step.grid, described)))
    return content_digest(*parts)
