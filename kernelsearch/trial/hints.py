"""From binaries, launches and times to hints: what is known of a candidate, put together for `measure/hints/findings.py`."""

from __future__ import annotations

from collections.abc import Mapping

from kernelsearch.compile.build import Binary
from kernelsearch.core.types import ArgFact, Config, Evidence, Hint, LaunchFact, Measurement, TensorFact
from kernelsearch.kernel.launch import Bound, Passed, Scratch, Step
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.hints.findings import Call, hints
from kernelsearch.measure.static_model.counts import Counts
from kernelsearch.measure.static_model.launched import Launched
from kernelsearch.measure.static_model.occupancy import Machine
from kernelsearch.measure.static_model.rates import calibrated
from kernelsearch.trial.bench import Bench
from kernelsearch.worker.messages import jobs


def hinted(
    bench: Bench,
    kernel: Kernel,
    config: Config,
    binaries: Mapping[str, Binary],
    measurement: Measurement | None,
    counts: Mapping[str, tuple[Counts, ...]] | None = None,
) -> tuple[Hint, ...]:
    """The hints of a candidate over the shapes of its measurement."""
    shapes = tuple(t.shape for t in measurement.times) if measurement else ()
    return hints(calls(bench, kernel, config, binaries, shapes, measurement, counts))


def calls(
    bench: Bench,
    kernel: Kernel,
    config: Config,
    binaries: Mapping[str, Binary],
    shapes: tuple[str, ...],
    measurement: Measurement | None = None,
    counts: Mapping[str, tuple[Counts, ...]] | None = None,
) -> tuple[Call, ...]:
    """What hints need of these shapes."""
    found, target = [], calibrated(bench.target, bench.ceilings)
    for shape in shapes:
        counted = (counts or {}).get(shape, ())
        launches = launches_of(bench.bound(kernel, config, (shape,)), binaries, target, counted)
        time_us = measurement.time_us(shape) if measurement else None
        measured = measurement is not None and measurement.evidence is not Evidence.ESTIMATED
        found.append(Call(shape, launches, time_us, measured))
    return tuple(found)


def launches_of(
    bound: list[tuple[LaunchFact, Bound]],
    binaries: Mapping[str, Binary],
    target: Target,
    counts: tuple[Counts, ...] = (),
) -> tuple[Launched, ...]:
    """Each device launch of one launcher call, in order."""
    found: list[Launched] = []
    for fact, one in bound:
        for step, spec in zip(one.plan.steps, one.specialisations(fact), strict=True):
            b = binaries[jobs.spec_key(spec, one.of_seed)]
            stages = int(step.options.get("num_stages") or 3)
            machine = Machine(b.num_warps, b.registers, b.stack_bytes, b.shared, b.mix, stages)
            counted = counts[len(found)] if len(found) < len(counts) else None
            args = _arguments(fact, one, step)
            found.append(Launched(step.function, machine, b.code, step.grid, args, target, dict(step.options), counted))
    return tuple(found)


def _arguments(fact: LaunchFact, bound: Bound, step: Step) -> dict[str, ArgFact]:
    known: dict[str, ArgFact] = {}
    for name, arg in step.args.items():
        if isinstance(arg, Passed):
            known[name] = fact.args.get(arg.name)
        elif isinstance(arg, Scratch):
            buffer = bound.plan.scratch[arg.name]
            strides, step_size = [], 1
            for n in reversed(buffer.shape):
                strides.append(step_size)
                step_size *= n
            known[name] = TensorFact(buffer.dtype, buffer.shape, tuple(reversed(strides)))
        else:
            known[name] = arg
    return known
