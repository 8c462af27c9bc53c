"""An opened task's candidates evaluated: which stages a question needs, in order, and the signature under the verdict."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from kernelsearch.core.types import Config, Hint, Measurement, Outcome, Referee, Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.hints.findings import hints
from kernelsearch.trial import with_gpu, without_gpu
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.build import Builder
from kernelsearch.trial.estimate import work_of
from kernelsearch.trial.hints import calls
from kernelsearch.trial.leader import Lead
from kernelsearch.trial.niche import described
from kernelsearch.trial.once import Once
from kernelsearch.trial.rejection import Rejected
from kernelsearch.trial.with_gpu import Gpu
from kernelsearch.trial.without_gpu import Interpreter
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import trusted


class Evaluation:
    """Evaluates candidates of one opened task; safe to call from several threads.

    shapes narrows what is timed (all timed shapes by default); limit_s is how long one run of a candidate may take.
    """

    def __init__(self, bench: Bench, shapes: tuple[str, ...] | None = None, limit_s: float | None = None) -> None:
        self.bench, self.facts = bench, bench.facts
        self.timed = shapes or tuple(s.key for s in bench.facts.shapes)
        self.once, self.lead = Once(), Lead()
        self.builder = Builder(bench, self.once)
        if bench.device is None:
            self.stages = Interpreter(bench, self.builder, self.once, self.timed, limit_s or without_gpu.LIMIT_S)
        else:
            self.stages = Gpu(bench, self.builder, self.timed, limit_s or with_gpu.LIMIT_S)
        self.mode, self.protocol = self.stages.mode, self.stages.protocol

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        """A `screen` verdict and a time; with no incumbent to beat, a `full` verdict too.

        Whether a candidate is the new best is known when its turn comes: `complete` then judges it at full depth.
        """
        started = time.perf_counter()
        try:
            self.builder.gated(kernel)
            verdict, measurement = self.stages.screened(kernel, config, self._cases("screen"), incumbent)
            if incumbent is None:
                verdict = self.stages.full(kernel, config, self._cases("full"))
            elif self.lead.taken(measurement, incumbent):
                self.stages.foresee(kernel, config)
            outcome = Outcome(self._signed(verdict), *self._looked_at(kernel, config, measurement))
        except Rejected as rejected:
            outcome = Outcome(self._signed(rejected.verdict))
        return replace(outcome, seconds=time.perf_counter() - started)

    def complete(self, kernel: Kernel, config: Config, outcome: Outcome) -> Outcome:
        """The outcome with a `full` verdict, which may reject what `screen` accepted."""
        started = time.perf_counter()
        try:
            verdict = self.stages.full(kernel, config, self._cases("full"))
            outcome = replace(outcome, verdict=self._signed(verdict))
        except Rejected as rejected:
            outcome = replace(outcome, verdict=self._signed(rejected.verdict), measurement=None, hints=())
        return replace(outcome, seconds=outcome.seconds + time.perf_counter() - started)

    def compiles(self, kernel: Kernel, config: Config) -> Verdict:
        """The gate's and the compilers' verdict alone, at the timed shapes."""
        try:
            self.builder.gated(kernel)
            self.builder.compiled(kernel, config, self.timed)
        except Rejected as rejected:
            return self._signed(rejected.verdict)
        return self._signed(Verdict(Word.ACCEPT, "compile"))

    def work(self, kernel: Kernel, config: Config) -> str:
        """The digest of what a candidate makes the GPU do at the shapes of `screen`; empty without a GPU or a binary."""
        if not isinstance(self.stages, Gpu):
            return ""
        try:
            self.builder.gated(kernel)
            shapes = self.stages.shapes("screen")
            return work_of(self.bench, kernel, config, shapes, self.stages.binaries(kernel, config))
        except Rejected:
            return ""

    def sampled(
        self, kernel: Kernel, config: Config, limits_us: Mapping[str, float]
    ) -> tuple[Verdict, Mapping[str, tuple[float, ...]]]:
        """A `screen` verdict and the raw event times in microseconds by timed shape, empty unless accepted (GPU only).

        limits_us ends the sampling of a shape early, after a few samples above it; the shapes after it are left out.
        """
        try:
            verdict, binaries = self.stages.accepted(kernel, config, self._cases("screen"))
            return verdict, self.stages.timed_us(kernel, config, binaries, limits_us).samples_us
        except Rejected as rejected:
            return rejected.verdict, {}

    def hints(self, kernel: Kernel, config: Config, measurement: Measurement) -> tuple[Hint, ...]:
        """Where the time of a measured candidate goes; its binaries and counts are known by now."""
        return self._looked_at(kernel, config, measurement)[1]

    def verify(self, kernel: Kernel, config: Config) -> Verdict:
        """The referee alone, at full depth."""
        try:
            self.builder.gated(kernel)
            return self._signed(self.stages.verified(kernel, config, self._cases("full")))
        except Rejected as rejected:
            return self._signed(replace(rejected.verdict, depth="full"))

    def baseline(self, name: str, shape: str) -> tuple[float, ...]:
        """Event times in microseconds of `eager`, `compile` or `max-autotune` at a timed shape (GPU only)."""
        with self.bench.gpu:
            answer = trusted(self.bench.runners, jobs.TimeBaseline(self.bench.path, name, shape), 600.0)
        return answer.samples_us[shape]

    def _cases(self, depth: str) -> tuple[jobs.Case, ...]:
        """What is judged; a case with padded rows only where the seed itself is right on it.

        The launcher says nothing of what it takes, the seed does: a kernel that walks its input as one flat array is
        honest, and wrong on rows that lie apart.
        """
        cases = self.bench.cases(depth)
        padded = tuple(c for c in cases if c.padded)
        if not padded or self.once("seed takes padded rows", lambda: self._seed_takes(padded)):
            return cases
        return tuple(c for c in cases if not c.padded)

    def _seed_takes(self, padded: tuple[jobs.Case, ...]) -> bool:
        try:
            return self.stages.seed_takes(padded)
        except Rejected:
            return False

    def _looked_at(
        self, kernel: Kernel, config: Config, measurement: Measurement
    ) -> tuple[Measurement, tuple[Hint, ...]]:
        """The measurement with its candidate's niche in its first time's detail, and the hints."""
        shapes = tuple(t.shape for t in measurement.times)
        binaries = self.builder.compiled(kernel, config, shapes)
        found = calls(self.bench, kernel, config, binaries, shapes, measurement, self._counts(kernel, config))
        first, *rest = measurement.times
        niche = described(launched for call in found for launched in call.launches)
        first = replace(first, detail={**first.detail, "niche": niche})
        return replace(measurement, times=(first, *rest)), hints(found)

    def _counts(self, kernel: Kernel, config: Config) -> Mapping:
        return self.stages.profiled(kernel, config).counts if isinstance(self.stages, Interpreter) else {}

    def _signed(self, verdict: Verdict) -> Verdict:
        labels = {s.key: s.label for s in (*self.facts.shapes, *self.facts.test_shapes)}
        label = labels.get(verdict.detail.get("shape", ""))
        detail = {"label": label, **verdict.detail} if label else verdict.detail
        return replace(verdict, referee=Referee(self.mode, self.stages.layers), detail=detail)
