"""Evaluates candidates of an opened task: runs the stages that a question needs, in order, and signs the verdict."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from kernelsearch.core.formats import BETWEEN, CLAIMS, FAILED, describe_failures, make_claims
from kernelsearch.core.types import (
    Config,
    Hint,
    Measurement,
    Outcome,
    Referee,
    TaskFacts,
    Verdict,
    Word,
    config_key,
    content_digest,
)
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.hints.findings import make_hints
from kernelsearch.trial import with_gpu, without_gpu
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.estimate import estimate_times, find_unseen, work_digest
from kernelsearch.trial.evaluator import TaskEvaluator
from kernelsearch.trial.hints import describe_calls, describe_resources
from kernelsearch.trial.rejection import Rejection, hide_drawn, judge_near_twice, try_twice
from kernelsearch.trial.shared_state import Lead, Once
from kernelsearch.trial.with_gpu import GpuStages
from kernelsearch.trial.without_gpu import EvaluatorStages
from kernelsearch.verify import gate
from kernelsearch.verify.regime_words import REDRAWN
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import ask_trusted

RECENT = 128
"""Bound candidates that are kept: one trial asks for its candidate several times, and many trials are in flight."""


ELSEWHERE = "other kernels are judged only where it is right, and an exported package runs the reference elsewhere"
MISSING_LAYERS = "missing isolation"
"""The field of a verdict's detail that lists the isolation layers which its workers lacked."""


class Evaluation(TaskEvaluator):
    """Evaluates candidates of one opened task; safe to call from several threads.

    shapes narrows what is timed (all timed shapes by default); limit_s is how long one run of a candidate may take.
    """

    def __init__(self, bench: Bench, shapes: tuple[str, ...] | None = None, limit_s: float | None = None) -> None:
        self.bench, self.facts = bench, bench.facts
        self.timed = shapes or tuple(s.key for s in bench.facts.shapes)
        self.once, self.lead = Once(), Lead()
        self.stages: EvaluatorStages | GpuStages
        if bench.device is None:
            self.stages = EvaluatorStages(bench, self.once, self.timed, limit_s or without_gpu.LIMIT_S)
        else:
            self.stages = GpuStages(bench, self.timed, limit_s or with_gpu.LIMIT_S)
        self.mode, self.protocol = self.stages.mode, self.stages.protocol
        self._recent: dict[str, BoundCandidate] = {}
        self._left_out: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, bench: Bench, facts: TaskFacts) -> Evaluation:
        """An evaluation that times the shapes of these facts."""
        return cls(bench, tuple(s.key for s in facts.shapes))

    def bind(self, kernel: Kernel, config: Config) -> BoundCandidate:
        """The candidate, past the gate. Raises Rejection with the gate's verdict.

        The gate looks at every text, also at one whose digest is known: comments have no part in a digest.
        """
        if kernel.digest != self.bench.seed.digest:  # the user's own is trusted
            verdict = self.once(f"gate/{content_digest(kernel.code)}", lambda: gate.check(kernel.render()))
            if not verdict.accepted:
                raise Rejection(verdict)
        key = f"{kernel.digest}/{config_key(config)}"
        with self._lock:
            candidate = self._recent.pop(key, None) or BoundCandidate(self.bench, kernel, config)
            self._recent[key] = candidate
            if len(self._recent) > RECENT:
                del self._recent[next(iter(self._recent))]
        return candidate

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        """A `screen` verdict and a time; with no incumbent to beat, a `full` verdict too.

        Whether a candidate is the new best is known when its turn comes: `complete` then judges it at full depth.
        """
        started = time.perf_counter()
        try:
            candidate = self.bind(kernel, config)
            if incumbent is None:
                self.stages.begin_builds(candidate)
            verdict, measurement = judge_near_twice(
                lambda cases: self.stages.screen(candidate, cases, incumbent), self._cases("screen")
            )
            if incumbent is None:
                verdict = judge_near_twice(partial(self.stages.judge_full, candidate), self._cases("full"))
            elif self.lead.take(measurement, incumbent):
                self.stages.prepare_full(candidate)
            outcome = Outcome(self._sign(verdict), *self._look_at(candidate, measurement))
            self._say_failures(outcome.verdict)
        except Rejection as rejected:
            outcome = Outcome(self._sign(rejected.verdict, kernel))
        return replace(outcome, seconds=time.perf_counter() - started)

    def complete(self, kernel: Kernel, config: Config, outcome: Outcome) -> Outcome:
        """The outcome with a `full` verdict, which may reject what `screen` accepted: at the shapes that were timed."""
        timed = tuple(outcome.measurement.by_shape) if outcome.measurement else ()
        started = time.perf_counter()
        try:
            judge = partial(self.stages.judge_full, self.bind(kernel, config), timed=timed)
            verdict = judge_near_twice(judge, self._cases("full"))
            outcome = replace(outcome, verdict=self._sign(verdict))
        except Rejection as rejected:
            outcome = replace(outcome, verdict=self._sign(rejected.verdict, kernel), measurement=None, hints=())
        return replace(outcome, seconds=outcome.seconds + time.perf_counter() - started)

    def begin_full(self, kernel: Kernel, config: Config) -> None:
        """Begins the builds that a `full` verdict needs, where compilers would wait: on a GPU."""
        if isinstance(self.stages, GpuStages):
            with suppress(Rejection):
                self.stages.begin_builds(self.bind(kernel, config))

    def try_compile(self, kernel: Kernel, config: Config) -> Verdict:
        """The verdict of the gate and the compilers alone, at the timed shapes."""
        try:
            candidate = self.bind(kernel, config)
            candidate.compile(candidate.fit(self.timed))
        except Rejection as rejected:
            return self._sign(rejected.verdict)
        return self._sign(Verdict(Word.ACCEPT, "compile"))

    def estimate(self, kernel: Kernel, config: Config) -> Measurement | None:
        """The estimated times at the timed shapes, from binaries and launches alone.

        None for what does not compile, and where the model does not see how often a loop runs.
        """
        try:
            candidate = self.bind(kernel, config)
            fitting = candidate.fit(self.timed)
            estimated = estimate_times(candidate, candidate.compile(fitting), {}, fitting)
        except Rejection:
            return None
        return None if find_unseen(estimated) else estimated

    def work(self, kernel: Kernel, config: Config) -> str:
        """The digest of a candidate's work on the GPU at the shapes of `screen`; empty without a GPU or a binary."""
        if not isinstance(self.stages, GpuStages):
            return ""
        try:
            candidate = self.bind(kernel, config)
            shapes = self.stages.shapes("screen", candidate)
            return work_digest(candidate, shapes, candidate.compile(shapes))
        except Rejection:
            return ""

    def sample_times(
        self, kernel: Kernel, config: Config, limits_us: Mapping[str, float]
    ) -> tuple[Verdict, Mapping[str, tuple[float, ...]]]:
        """A `screen` verdict and the raw event times in microseconds by timed shape, empty unless accepted (GPU only).

        limits_us ends the sampling of a shape early, after a few samples above it; the shapes after it are left out.
        """
        try:
            candidate = self.bind(kernel, config)
            assert isinstance(self.stages, GpuStages)
            verdict, binaries = self.stages.judge_screen(candidate, self._cases("screen"))
            return verdict, self.stages.time_shapes(candidate, binaries, limits_us).samples_us
        except Rejection as rejected:
            return rejected.verdict, {}

    def time_drawn(self, kernel: Kernel, config: Config) -> tuple[Verdict, Measurement | None]:
        """A `screen` verdict and the times at the timed shapes, which were drawn."""
        try:
            return self.stages.screen(self.bind(kernel, config), self._cases("screen"), None)
        except Rejection as rejected:
            return rejected.verdict, None

    def judge_drawn(self, kernel: Kernel, config: Config) -> Verdict:
        """The verdict on one run at each of the timed shapes, which were drawn (without a GPU nothing runs there)."""
        try:
            if isinstance(self.stages, GpuStages):
                self.stages.judge_timed(self.bind(kernel, config))
            return Verdict(Word.ACCEPT, "judge")
        except Rejection as rejected:
            return rejected.verdict

    def verify(self, kernel: Kernel, config: Config) -> Verdict:
        """The referee alone, at full depth."""
        try:
            candidate = self.bind(kernel, config)
            self.stages.begin_builds(candidate)
            judge = partial(self.stages.verify, candidate)
            return self._sign(judge_near_twice(judge, self._cases("full")))
        except Rejection as rejected:
            return self._sign(replace(rejected.verdict, depth="full"))

    def time_baseline(self, name: str, shape: str) -> tuple[float, ...]:
        """Event times in microseconds of `eager`, `compile` or `max-autotune` at a timed shape (GPU only)."""
        with self.bench.gpu:
            answer = ask_trusted(self.bench.runners, jobs.TimeBaseline(self.bench.path, name, shape), 600.0)
        return answer.samples_us[shape]

    def _cases(self, depth: str) -> jobs.JudgedCases:
        """The cases to judge; those of an optional kind only where the seed itself is right on them.

        The launcher does not declare what it takes, but the seed shows it: a kernel that walks its input as one flat
        array is honest, and wrong on rows that lie apart; so is one that squares values near the largest. Of rows with
        -inf some may leave nothing to compute with: those cases alone are left out.
        """
        cases = self.bench.cases(depth)
        groups: dict[str, list[jobs.JudgedCase]] = {}
        for case in cases:
            groups.setdefault(self.stages.name_optional(case), []).append(case)
        wrong: set[str] = set()
        left_out: set[jobs.JudgedCase] = set()
        optional = tuple(c for name, some in groups.items() if name for c in some)
        if isinstance(self.stages, GpuStages) and optional and self._judge_seed(f"all of {depth}", optional).accepted:
            return cases  # as it mostly is: one run in place of thirty
        for name, some in groups.items():
            parts = {self.stages.name_optional(replace(some[0], scalars=(one,))) for one in some[0].scalars}
            if not name:
                continue
            refused = set(some) if parts & wrong else self._find_refused(name, tuple(some))
            left_out |= refused
            if refused == set(some):
                wrong.add(name)
        return tuple(c for c in cases if c not in left_out)

    def _find_refused(self, name: str, cases: jobs.JudgedCases) -> set[jobs.JudgedCase]:
        """The cases of an optional kind to leave out as the seed is wrong there, of each shape by itself, with -inf in
        rows each by itself. Later `full` verdicts say so.
        """
        verdict, refused = self._judge_seed(name, cases), set(cases)
        if verdict.accepted:
            return set()
        parts: dict[str, list[jobs.JudgedCase]] = {}
        for number, case in enumerate(cases):
            where = self.bench.labels.get(case.shape, case.shape)
            part = f"{name}, {number}" if case.regime == "masked" else f"{name} at {where}"
            parts.setdefault(without_gpu.name_part(case) or part, []).append(case)
        wrong = [name]
        if len(parts) > 1 and verdict.word is not Word.TIMEOUT and not cases[0].scalars:
            wrong = [part for part, some in parts.items() if not self._judge_seed(part, tuple(some)).accepted]
            refused = {case for part in wrong for case in parts[part]}
        if refused == set(cases):
            wrong = [name]
        elif cases[0].regime == "masked":  # others of such rows are judged
            wrong = []
        for case in refused if verdict.word is not Word.TIMEOUT else ():
            if case.kind in jobs.SIZES:
                self.bench.right_on.setdefault(case, verdict)
        for part in wrong if name not in REDRAWN.values() else ():  # the task may never draw such
            left_out = self._left_out.setdefault(without_gpu.why_left_out(verdict), [])
            left_out += [part] * (part not in left_out)
        return refused

    def _judge_seed(self, name: str, cases: jobs.JudgedCases) -> Verdict:
        """The verdict on the seed at cases of this name, which it is judged on once."""

        def judge() -> Verdict:
            try:
                return self.stages.judge_seed(cases)
            except Rejection as rejected:
                return rejected.verdict

        return self.bench.once(f"seed on {name}", lambda: try_twice(judge))

    def _look_at(self, candidate: BoundCandidate, measurement: Measurement) -> tuple[Measurement, tuple[Hint, ...]]:
        """The measurement with its candidate's resources in its first time's detail, and the hints."""
        shapes = tuple(t.shape for t in measurement.times)
        counts = self.stages.profile(candidate).counts if isinstance(self.stages, EvaluatorStages) else {}
        calls = describe_calls(candidate, candidate.compile(shapes), shapes, self.once, measurement, counts)
        first, *rest = measurement.times
        first = replace(first, detail={**first.detail, "launches": describe_resources(calls[0])})
        return replace(measurement, times=(first, *rest)), make_hints(calls)

    def _say_failures(self, verdict: Verdict) -> None:
        """Says, once, at which made sizes the task's own kernel fails."""
        if self.bench.say and (failed := describe_failures(verdict.detail.get(FAILED, ()))):
            self.bench.once(FAILED, partial(self.bench.say, f"the task's own kernel {failed}; {ELSEWHERE}"))

    def _sign(self, verdict: Verdict, kernel: Kernel | None = None) -> Verdict:
        """The verdict with who gave it and how; one on a kernel that somebody proposed keeps its secrets."""
        verdict = hide_drawn(verdict) if kernel and kernel.digest != self.bench.seed.digest else verdict
        labels = {s.key: s.label for s in (*self.facts.shapes, *self.facts.test_shapes)} | self.bench.labels
        label = labels.get(verdict.detail.get("shape", ""))
        detail = {"label": label, **verdict.detail} if label else dict(verdict.detail)
        if verdict.accepted and verdict.depth == "full":
            detail |= {why: [*detail.get(why, ()), *what] for why, what in self._left_out.items()}
            failed = without_gpu.list_failures(self.bench, detail.get(without_gpu.NOT_RIGHT, ()))
            whys = (without_gpu.SEED_SLOW, without_gpu.NOT_RIGHT)
            left_out = {shape for why in whys for shape in detail.get(why, ())}
            judged = [c for c in self._cases("full") if c.scalars or (c.kind == "drawn" and c.shape not in left_out)]
            params = [s.params.values() for s in (*self.facts.shapes, *self.facts.test_shapes)]
            listed = {str([v for v in own if str(v).endswith((")", "]"))]) for own in params}
            drawn = len(listed) == 1 and any(not c.scalars for c in judged)  # sizes in lists are not drawn
            scalars = [c.scalars[0] for c in judged if len(c.scalars) == 1]
            detail[CLAIMS] = make_claims([*scalars, (BETWEEN, True)] if drawn and not failed else scalars)
            if failed:
                shapes = [f["shape"] for f in failed]
                others = [name for name in detail.pop(without_gpu.NOT_RIGHT) if name not in shapes]
                detail |= {FAILED: failed, **({without_gpu.NOT_RIGHT: others} if others else {})}
        if missing := self.stages.bench.missing_layers:
            detail[MISSING_LAYERS] = list(missing)
        return replace(verdict, referee=Referee(self.mode, self.stages.layers), detail=detail)
