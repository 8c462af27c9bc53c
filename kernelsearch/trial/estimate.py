"""From binaries and launches to estimated times: what the static model says of a candidate that no GPU has run."""

from __future__ import annotations

from collections.abc import Mapping

from kernelsearch.compile.build import Binary
from kernelsearch.core.types import Config, Evidence, Measurement, ShapeTime, content_digest
from kernelsearch.kernel.launch import Scratch
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.static_model.counts import Counts
from kernelsearch.measure.static_model.estimate import estimate_call
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.hints import launches_of
from kernelsearch.worker.messages import jobs

ESTIMATE_PROTOCOL = "static-model-3"


def estimated(
    bench: Bench,
    kernel: Kernel,
    config: Config,
    binaries: Mapping[str, Binary],
    counts: Mapping[str, tuple[Counts, ...]],
    shapes: tuple[str, ...],
) -> Measurement:
    """The estimated times of a candidate at these shapes, in microseconds.

    counts of sampled programs, where a shape has them, know masks; without them the binary and the launch are enough.
    """
    times = []
    for shape in shapes:
        launches = launches_of(bench.bound(kernel, config, (shape,)), binaries, bench.target, counts.get(shape, ()))
        total, parts = estimate_call(launches)
        slowest = max(parts, key=lambda e: e.time_us)
        detail = {"bottleneck": slowest.bottleneck, "occupancy": slowest.occupancy, "waves": round(slowest.waves, 2)}
        identity = content_digest(*identities(bench, kernel, config, shape, binaries))
        times.append(ShapeTime(shape, total, None, 0, identity, detail))
    return Measurement(Evidence.ESTIMATED, bench.target.name, ESTIMATE_PROTOCOL, tuple(times))


def identities(bench: Bench, kernel: Kernel, config: Config, shape: str, binaries: Mapping[str, Binary]) -> list[str]:
    """The identity of each binary that runs at a shape, in order."""
    bound = bench.bound(kernel, config, (shape,))
    return [binaries[jobs.spec_key(s, b.of_seed)].identity for fact, b in bound for s in b.specialisations(fact)]


def work_of(
    bench: Bench, kernel: Kernel, config: Config, shapes: tuple[str, ...], binaries: Mapping[str, Binary]
) -> str:
    """The digest of what a candidate makes the GPU do: machine code, grids, arguments, buffers and initial values."""
    parts = [repr(shapes)]
    for fact, bound in bench.bound(kernel, config, shapes):
        plan = bound.plan
        parts.append(repr((sorted(plan.init.items()), fact.site)))
        buffers: dict[str, int] = {}
        for step, spec in zip(plan.steps, bound.specialisations(fact), strict=True):
            b = binaries[jobs.spec_key(spec, bound.of_seed)]
            args = [step.args[name] for name, _ in b.params]
            told = [
                ("scratch", buffers.setdefault(a.name, len(buffers)), repr(plan.scratch[a.name]))
                if isinstance(a, Scratch)
                else repr(a)
                for a in args
            ]
            parts.append(repr((b.identity, b.num_warps, b.num_ctas, b.shared, step.grid, told)))
    return content_digest(*parts)
