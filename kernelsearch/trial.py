"""From a candidate to its outcome: gate, bind, compile, judge, time or estimate; the first refusal ends it."""

from __future__ import annotations

import ast
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from kernelsearch.compile.build import Binary
from kernelsearch.launch import LaunchError, Specialisation
from kernelsearch.measure.hints import hints
from kernelsearch.measure.protocol import PROTOCOL, spread_us
from kernelsearch.source import Kernel
from kernelsearch.types import (
    LAUNCH_OPTIONS, Config, Evidence, Hint, Measurement, Outcome, Referee, ShapeTime, TaskFacts, TensorFact, Verdict, Word,
    config_key, content_digest,
)  # fmt: skip
from kernelsearch.verify import gate
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.bench import Bench
from kernelsearch.worker.descriptor import described
from kernelsearch.worker.estimating import ESTIMATE_PROTOCOL, estimated, identities, work_of
from kernelsearch.worker.findings import calls
from kernelsearch.worker.interpreted import interpreted, ran
from kernelsearch.worker.processes.pool import Pool, trusted
from kernelsearch.worker.processes.worker import WorkerDied, WorkerHung
from kernelsearch.worker.running import on_gpu

INTERPRET_LIMIT_S = 60.0
RUN_LIMIT_S = 30.0
ABANDON_RATIO = 2.0
"""A candidate that takes this many times the incumbent's time at a shape is not sampled further."""

REPEATS = 3
"""Runs of the same inputs that must be equal bit for bit on a GPU, at full depth."""


class Rejected(Exception):
    """Carries the verdict that ends an evaluation."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class Evaluation:
    """Evaluates candidates of one opened task; safe to call from several threads.

    shapes narrows what is timed (all timed shapes by default); limit_s is how long one run of a candidate may take.
    """

    def __init__(self, bench: Bench, shapes: tuple[str, ...] | None = None, limit_s: float | None = None) -> None:
        self.bench = bench
        self.limit_s = limit_s or (INTERPRET_LIMIT_S if bench.device is None else RUN_LIMIT_S)
        self.facts = bench.facts
        self.timed = shapes or tuple(s.key for s in bench.facts.shapes)
        self.mode = "interpreter" if bench.device is None else "gpu"
        self.protocol = ESTIMATE_PROTOCOL if bench.device is None else PROTOCOL
        self.abandon_ratio = ABANDON_RATIO
        self._memo: dict[str, Future] = {}
        self._lock = threading.Lock()

    # ------------------------------------------------------------ the two questions

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        """A `screen` verdict and a time; with no incumbent to beat, a `full` verdict too.

        Whether a candidate is the new best is known when its turn comes: `complete` then judges it at full depth.
        """
        started = time.perf_counter()
        try:
            verdict, measurement = self._screened(kernel, config, incumbent)
            if incumbent is None:
                verdict = self._full(kernel, config)
            outcome = Outcome(self._signed(verdict), *self._looked_at(kernel, config, measurement))
        except Rejected as rejected:
            outcome = Outcome(self._signed(rejected.verdict))
        return replace(outcome, seconds=time.perf_counter() - started)

    def complete(self, kernel: Kernel, config: Config, outcome: Outcome) -> Outcome:
        """The outcome with a `full` verdict, which may reject what `screen` accepted."""
        started = time.perf_counter()
        try:
            outcome = replace(outcome, verdict=self._signed(self._full(kernel, config)))
        except Rejected as rejected:
            outcome = replace(outcome, verdict=self._signed(rejected.verdict), measurement=None, hints=())
        return replace(outcome, seconds=outcome.seconds + time.perf_counter() - started)

    def compiles(self, kernel: Kernel, config: Config) -> Verdict:
        """The gate's and the compilers' verdict alone, at the timed shapes."""
        try:
            self._gated(kernel)
            self._compiled(kernel, config, self.timed)
        except Rejected as rejected:
            return self._signed(rejected.verdict)
        return self._signed(Verdict(Word.ACCEPT, "compile"))

    def work(self, kernel: Kernel, config: Config) -> str:
        """The digest of what a candidate makes the GPU do at the shapes of `screen`; empty without a GPU or a binary."""
        if self.bench.device is None:
            return ""
        shapes = self._screen_shapes()
        try:
            self._gated(kernel)
            return work_of(self.bench, kernel, config, shapes, self._compiled(kernel, config, shapes))
        except Rejected:
            return ""

    def _screen_shapes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.timed, *(c.shape for c in self.bench.cases("screen")))))

    def sampled(
        self, kernel: Kernel, config: Config, limits_us: Mapping[str, float]
    ) -> tuple[Verdict, Mapping[str, tuple[float, ...]]]:
        """A `screen` verdict and the raw event times in microseconds by timed shape, empty unless accepted (GPU only).

        limits_us ends the sampling of a shape early, after a few samples above it; the shapes after it are left out.
        """
        try:
            verdict, binaries = self._screened_on_gpu(kernel, config)
            return verdict, self._timed(kernel, config, binaries, dict(limits_us)).samples_us
        except Rejected as rejected:
            return rejected.verdict, {}

    def hints(self, kernel: Kernel, config: Config, measurement: Measurement) -> tuple[Hint, ...]:
        """Where the time of a measured candidate goes; its binaries and counts are known by now."""
        return self._looked_at(kernel, config, measurement)[1]

    def _looked_at(self, kernel: Kernel, config: Config, measurement: Measurement) -> tuple[Measurement, tuple[Hint, ...]]:
        """The measurement with its candidate's niche in its first time's detail, and the hints."""
        shapes = tuple(t.shape for t in measurement.times)
        binaries = self._compiled(kernel, config, shapes)
        counts = self._profiled(kernel, config).counts if self.bench.device is None else {}
        found = calls(self.bench, kernel, config, binaries, shapes, measurement, counts)
        first, *rest = measurement.times
        niche = described(launched for call in found for launched in call.launches)
        first = replace(first, detail={**first.detail, "niche": niche})
        return replace(measurement, times=(first, *rest)), hints(found)

    def verify(self, kernel: Kernel, config: Config) -> Verdict:
        """The referee alone, at full depth."""
        try:
            self._gated(kernel)
            if self.bench.device is None:  # the test shapes too: their dtypes may be held to another precision
                tests = tuple(s.key for s in self.facts.test_shapes)
                self._compiled(kernel, config, tuple(dict.fromkeys((*self.timed, *_unlike(self.facts, tests)))))
            return self._signed(self._full(kernel, config))
        except Rejected as rejected:
            return self._signed(replace(rejected.verdict, depth="full"))

    def baseline(self, name: str, shape: str) -> tuple[float, ...]:
        """Event times in microseconds of `eager`, `compile` or `max-autotune` at a timed shape (GPU only)."""
        with self.bench.gpu:
            answer = trusted(self.bench.runners, jobs.TimeBaseline(self.bench.path, name, shape), 600.0)
        return answer.samples_us[shape]

    # ------------------------------------------------------------ stages

    def _screened(self, kernel: Kernel, config: Config, incumbent: Measurement | None) -> tuple[Verdict, Measurement]:
        self._gated(kernel)
        if self.bench.device is None:
            verdict = self._interpreted(kernel, config, "screen")
            binaries = self._compiled(kernel, config, self.timed)
            return verdict, self._estimated(kernel, config, binaries)
        verdict, binaries = self._screened_on_gpu(kernel, config)
        return verdict, self._measured(kernel, config, binaries, incumbent)

    def _screened_on_gpu(self, kernel: Kernel, config: Config) -> tuple[Verdict, dict[str, Binary]]:
        binaries = self._compiled(kernel, config, self._screen_shapes())
        return self._run_and_judged(kernel, config, binaries, "screen"), binaries

    def _gated(self, kernel: Kernel) -> None:
        if kernel.digest == self.bench.seed.digest:
            return  # the user's own; told apart by its canonical source
        verdict = self._once(f"gate/{content_digest(kernel.code)}", lambda: gate.check(kernel.render()))
        if not verdict.accepted:
            raise Rejected(verdict)

    def _full(self, kernel: Kernel, config: Config) -> Verdict:
        if self.bench.device is None:
            return self._interpreted(kernel, config, "full")
        cases = self.bench.cases("full")
        needed = tuple(dict.fromkeys((*self.timed, *(c.shape for c in cases))))
        binaries = self._compiled(kernel, config, needed)
        verdict = self._run_and_judged(kernel, config, binaries, "full")
        worst = verdict.error_ratio or 0.0
        for shape in self.timed:
            whole = self._run_timed_shape(kernel, config, binaries, shape)
            if not whole.accepted:
                raise Rejected(whole)
            worst = max(worst, whole.error_ratio or 0.0)
        return replace(verdict, error_ratio=worst)

    def _compiled(self, kernel: Kernel, config: Config, shapes: tuple[str, ...]) -> dict[str, Binary]:
        try:
            bound = self.bench.bound(kernel, config, shapes)
            specs = [(s, b.of_seed) for fact, b in bound for s in b.specialisations(fact)]
        except LaunchError as error:
            raise Rejected(Verdict(Word.STATIC, "launch", str(error))) from None
        return self._built(kernel, tuple(dict.fromkeys(specs)))

    def _built(self, kernel: Kernel, specs: tuple[tuple[Specialisation, bool], ...]) -> dict[str, Binary]:
        binaries, verdict = self.bench.binaries(kernel, specs)
        if verdict is not None:
            raise Rejected(verdict)
        unsupported = next((b.unsupported for b in binaries.values() if b.unsupported), "")
        if unsupported:
            raise Rejected(Verdict(Word.COMPILE, "launch", unsupported))
        return binaries

    def _cases(self, depth: str) -> tuple[jobs.Case, ...]:
        """What is judged; a case with padded rows only where the seed itself is right on it.

        The launcher says nothing of what it takes, the seed does: a kernel that walks its input as one flat array is
        honest, and wrong on rows that lie apart.
        """
        cases = self.bench.cases(depth)
        if not any(c.padded for c in cases):
            return cases
        plain = tuple(c for c in cases if not c.padded)
        return cases if self._once("seed takes padded rows", lambda: self._seed_takes(cases)) else plain

    def _seed_takes(self, cases: tuple[jobs.Case, ...]) -> bool:
        padded = tuple(c for c in cases if c.padded)
        seed, config = self.bench.seed, self.facts.config
        try:
            if self.bench.device is None:
                return ran(self.bench, seed, config, padded, "forward", "full", self.limit_s).accepted
            binaries = self._compiled(seed, config, tuple(c.shape for c in padded))
            return self._run_cases(seed, config, binaries, padded, "full").accepted
        except Rejected:
            return False

    # ------------------------------------------------------------ without a GPU

    def _interpreted(self, kernel: Kernel, config: Config, depth: str) -> Verdict:
        """The verdict on float32 twins; launch options do not change what the interpreter does, so it is kept."""
        key = f"{depth}/{kernel.digest}/{_numbers(kernel, config)}"
        cases = self._cases(depth)
        verdict = self._once(key, lambda: interpreted(self.bench, kernel, config, cases, depth, self.limit_s))
        if not verdict.accepted:
            raise Rejected(verdict)
        return verdict

    def _estimated(self, kernel: Kernel, config: Config, binaries: dict[str, Binary]) -> Measurement:
        profiled = self._profiled(kernel, config)
        return estimated(self.bench, kernel, config, binaries, profiled.counts, self.timed)

    def _profiled(self, kernel: Kernel, config: Config) -> jobs.Profiled:
        """Counts of the timed shapes; launch options do not change them."""
        profiled = self._once(
            f"profile/{kernel.digest}/{_numbers(kernel, config)}",
            lambda: self._ask(
                self.bench.interpreters,
                jobs.Profile(self.bench.path, self.bench.candidate(kernel, config, code=True), self.timed),
                self.limit_s, "profile",
            ),
        )  # fmt: skip
        if profiled.verdict is not None:
            raise Rejected(profiled.verdict)
        return profiled

    # ------------------------------------------------------------ on a GPU

    def _run_and_judged(self, kernel: Kernel, config: Config, binaries: dict[str, Binary], depth: str) -> Verdict:
        return self._run_cases(kernel, config, binaries, self._cases(depth), depth)

    def _run_cases(
        self, kernel: Kernel, config: Config, binaries: dict[str, Binary], cases: tuple[jobs.Case, ...], depth: str
    ) -> Verdict:
        inputs = self.bench.inputs(cases, twin=False)
        shapes = tuple(c.shape for c in cases)
        candidate = self.bench.candidate(kernel, config, code=False)
        repeats = REPEATS if depth == "full" else 1

        def job(binaries: dict[str, Binary]) -> jobs.RunCases:
            return jobs.RunCases(self.bench.path, candidate, binaries, shapes, inputs, repeats)

        runs = self._on_gpu(kernel, binaries, job)
        failed = next((r.verdict for r in runs if r.verdict is not None), None)
        if failed is not None:
            raise Rejected(replace(failed, depth=depth))
        verdict = self.bench.judged(cases, runs, depth, twin=False, atomics=has_atomics(kernel))
        if not verdict.accepted:
            raise Rejected(verdict)
        return verdict

    def _run_timed_shape(self, kernel: Kernel, config: Config, binaries: dict[str, Binary], shape: str) -> Verdict:
        case = jobs.Case(shape, "randn", self.bench.secret + 1)
        candidate = self.bench.candidate(kernel, config, code=False)

        def judged(ran: jobs.Ran) -> tuple[Verdict]:
            if ran.verdict is not None:
                raise Rejected(replace(ran.verdict, depth="full"))
            return (trusted(self.bench.judge, jobs.JudgeSeeded(case, ran, has_atomics(kernel)), 120.0),)

        with self.bench.gpu:  # the judge computes on the same GPU: nothing is timed meanwhile
            job = lambda b: jobs.RunSeeded(self.bench.path, candidate, b, case)  # noqa: E731
            return self._on_gpu(kernel, binaries, job, then=judged)[0]

    def _measured(
        self, kernel: Kernel, config: Config, binaries: dict[str, Binary], incumbent: Measurement | None
    ) -> Measurement:
        limits = {t.shape: ABANDON_RATIO * t.time_us for t in incumbent.times} if incumbent else {}
        timed = self._timed(kernel, config, binaries, limits)
        times = tuple(
            ShapeTime(
                shape, statistics.median(samples), spread_us(samples), len(samples),
                content_digest(*identities(self.bench, kernel, config, shape, binaries)),
                {"host_us": round(timed.host_us[shape], 1)},
            )
            for shape, samples in timed.samples_us.items()
        )  # fmt: skip
        return Measurement(Evidence.MEASURED, self.bench.device.name, PROTOCOL, times, timed.abandoned)

    def _timed(self, kernel: Kernel, config: Config, binaries: dict[str, Binary], limits: dict[str, float]) -> jobs.Timed:
        def job(binaries: dict[str, Binary]) -> jobs.Time:
            return jobs.Time(self.bench.path, self.bench.candidate(kernel, config, code=False), binaries, self.timed, limits)

        with self.bench.gpu:
            timed = self._on_gpu(kernel, binaries, job)
        if timed.verdict is not None:
            raise Rejected(timed.verdict)
        return timed

    def _on_gpu(
        self, kernel: Kernel, binaries: dict[str, Binary], job: Callable[[dict[str, Binary]], Any], **then: Any
    ) -> Any:
        answer = on_gpu(self.bench.runners, binaries, job, lambda specs: self._built(kernel, specs), self.limit_s, **then)
        if isinstance(answer, Verdict):
            raise Rejected(answer)
        return answer

    # ------------------------------------------------------------ helpers

    def _ask(self, pool: Pool, job: Any, limit_s: float, stage: str) -> Any:
        try:
            return pool.ask(job, limit_s)
        except WorkerHung:
            raise Rejected(Verdict(Word.TIMEOUT, stage, f"did not finish within {limit_s:g} s")) from None
        except WorkerDied as died:
            raise Rejected(Verdict(Word.CRASH, stage, f"the worker died: {died}")) from None

    def _once(self, key: str, make: Callable[[], Any]) -> Any:
        """The value of make(), computed once per key; a rejection is remembered too."""
        with self._lock:
            future = self._memo.get(key)
            mine = future is None
            if mine:
                future = self._memo[key] = Future()
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)
                raise
        return future.result()

    def _signed(self, verdict: Verdict) -> Verdict:
        pool = self.bench.interpreters or self.bench.runners
        layers = (*pool.layers, "float32 twin") if self.bench.device is None else pool.layers
        labels = {s.key: s.label for s in (*self.facts.shapes, *self.facts.test_shapes)}
        label = labels.get(verdict.detail.get("shape", ""))
        detail = {"label": label, **verdict.detail} if label else verdict.detail
        return replace(verdict, referee=Referee(self.mode, tuple(layers)), detail=detail)


def _unlike(facts: TaskFacts, shapes: tuple[str, ...]) -> tuple[str, ...]:
    """Of these shapes the first for each set of argument dtypes."""
    found: dict[str, str] = {}
    for shape in shapes:
        launches = facts.traces[shape].launches
        kinds = [[n, a.dtype] for f in launches for n, a in f.args.items() if isinstance(a, TensorFact)]
        found.setdefault(repr(kinds), shape)
    return tuple(found.values())


def has_atomics(kernel: Kernel) -> bool:
    """Whether runs of a kernel may differ in their last bits, because additions come in any order."""
    code = kernel.code
    if "atomic_" not in code:
        return False
    return any(isinstance(n, ast.Attribute) and n.attr.startswith("atomic_") for n in ast.walk(ast.parse(code)))


def _numbers(kernel: Kernel, config: Config) -> str:
    """The key of what the interpreter sees of a config: no launch options, but for those that a function takes itself."""
    taken = {n for f in kernel.functions for n in f.params}
    return config_key({k: v for k, v in config.items() if (n := k.rpartition(".")[2]) in taken or n not in LAUNCH_OPTIONS})
