"""The stages on a GPU: the run worker launches and times what was compiled, the judge checks the outputs."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any

from kernelsearch.compile.build import Binary
from kernelsearch.core.errors import KernelsearchError, WorkerError
from kernelsearch.core.timed_shapes import FAR, place_shapes
from kernelsearch.core.types import Evidence, Measurement, ShapeTime, Verdict, Word, content_digest
from kernelsearch.kernel.source import GLUON
from kernelsearch.measure.timing.protocol import PROTOCOL, compute_spread_us
from kernelsearch.trial.answers import prepare_answers
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.bound_candidate import BoundCandidate, has_atomics
from kernelsearch.trial.race_look import add_look, begin_look, stop_look
from kernelsearch.trial.rejection import Rejection
from kernelsearch.trial.run_jobs import run_on_gpu
from kernelsearch.trial.unrun_blocks import refuse_changes
from kernelsearch.trial.without_gpu import OPTIONAL_VALUES, name_optional
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import Pool, ask_trusted

LIMIT_S = 30.0
BUSY_S = 0.1
"""Seconds that another process computes before it is asked whether the run beside it is done."""
REPEATS = 3
"""Runs of the same inputs that must be equal bit for bit, at full depth."""


class GpuStages:
    """The stages after the compilers on a live device. Raises Rejection for what a run or the judge refuses."""

    mode, protocol = "gpu", PROTOCOL

    def __init__(self, bench: Bench, timed: tuple[str, ...], limit_s: float) -> None:
        self.bench, self.timed, self.limit_s = bench, timed, limit_s
        self.points = place_shapes(s for s in bench.facts.shapes if s.key in timed)

    @property
    def layers(self) -> tuple[str, ...]:
        assert self.bench.runners is not None
        return tuple(self.bench.runners.layers)

    def screen(
        self, candidate: BoundCandidate, cases: jobs.JudgedCases, incumbent: Measurement | None
    ) -> tuple[Verdict, Measurement]:
        verdict, binaries = self.judge_screen(candidate, cases)
        return verdict, self._measure(candidate, binaries, incumbent)

    def judge_screen(self, candidate: BoundCandidate, cases: jobs.JudgedCases) -> tuple[Verdict, dict[str, Binary]]:
        """The `screen` verdict and the binaries that ran."""
        binaries = candidate.compile(self.shapes("screen", candidate))
        return self.run_cases(candidate, binaries, self._fit_cases(candidate, cases), "screen"), binaries

    def _fit_cases(self, candidate: BoundCandidate, cases: jobs.JudgedCases) -> jobs.JudgedCases:
        """The cases without those of timed shapes where the candidate is not timed."""
        fitting = candidate.fit(self.timed)
        return tuple(c for c in cases if c.shape in fitting or c.shape not in self.timed)

    def judge_full(self, candidate: BoundCandidate, cases: jobs.JudgedCases, timed: tuple[str, ...] = ()) -> Verdict:
        """The `full` verdict, of the timed shapes at these, else at all.

        A search does not wait until its seed, which is trusted, is looked at for races.
        """
        if candidate.is_seed:
            return self._judge_on_gpu(candidate, cases)
        seed = BoundCandidate.of_seed(self.bench)
        verdict = self.verify(candidate, cases, timed)
        return refuse_changes(candidate, verdict, lambda: add_look(verdict, begin_look(seed)))

    def verify(self, candidate: BoundCandidate, cases: jobs.JudgedCases, timed: tuple[str, ...] = ()) -> Verdict:
        """The `full` verdict, with a look for races in the evaluator, which runs beside the GPU."""
        look = begin_look(candidate)
        try:
            verdict = self._judge_on_gpu(candidate, cases, timed)
        except Rejection:
            stop_look(candidate)
            raise
        return add_look(verdict, look)

    def _judge_on_gpu(self, candidate: BoundCandidate, cases: jobs.JudgedCases, timed: tuple[str, ...] = ()) -> Verdict:
        cases, fitting = self._fit_cases(candidate, cases), candidate.fit(self.timed)
        binaries = candidate.compile(tuple(dict.fromkeys((*fitting, *(c.shape for c in cases)))))
        verdict = self.run_cases(candidate, binaries, cases, "full")
        worst, detail = verdict.error_ratio or 0.0, dict(verdict.detail)
        for shape in timed or fitting:
            whole = self._run_whole(candidate, binaries, jobs.JudgedCase(shape, "randn", cases[0].seed + 1))
            worst = max(worst, whole.error_ratio or 0.0)
            detail |= {name: n for name, n in whole.detail.items() if name == jobs.REPEATED}
        return replace(verdict, error_ratio=worst, detail=detail)

    def prepare_full(self, candidate: BoundCandidate) -> None:
        """Begins what `full` needs, for a candidate that may be the new best when its turn comes.

        The search waits for that verdict with nothing to measure: on matmul some of the binaries take 3 s each.
        """
        self.begin_builds(candidate)
        begin_look(candidate)

    def begin_builds(self, candidate: BoundCandidate) -> None:
        """Begins to compile what `full` needs, of the seed too, which is judged on what not every task takes.

        The judge, which has nothing to do meanwhile, begins with the right answers.
        """
        for one in (candidate, BoundCandidate.of_seed(self.bench)):
            one.compile_ahead(self.shapes("full", one))
        self.bench.once("answers", threading.Thread(target=self._prepare_answers, daemon=True).start)

    def _prepare_answers(self) -> None:
        cases = tuple(c for c in self.bench.cases("full") if not c.seeded)
        with suppress(KernelsearchError):
            prepare_answers(self.bench, cases)

    def judge_seed(self, cases: jobs.JudgedCases) -> Verdict:
        seed = BoundCandidate.of_seed(self.bench)
        return self.run_cases(seed, seed.compile(tuple(c.shape for c in cases)), cases, "full")

    def name_optional(self, case: jobs.JudgedCase) -> str:
        """The name of what a case has and not every task takes; empty for other cases."""
        if case.kind not in jobs.SIZES:
            return name_optional(case)
        where = self.bench.labels.get(case.shape, case.shape)
        return f"{OPTIONAL_VALUES[case.regime]} at {where}" if case.regime in OPTIONAL_VALUES else case.shape

    def shapes(self, depth: str, candidate: BoundCandidate) -> tuple[str, ...]:
        """The keys of the shapes where it runs at this depth: those where it is timed, and those that are judged."""
        judged = self._fit_cases(candidate, self.bench.cases(depth))
        return tuple(dict.fromkeys((*candidate.fit(self.timed), *(c.shape for c in judged))))

    def run_cases(
        self, candidate: BoundCandidate, binaries: dict[str, Binary], cases: jobs.JudgedCases, depth: str
    ) -> Verdict:
        """The judge's verdict on a run of these cases. Raises Rejection unless it is accept."""
        seeded, cases = [c for c in cases if c.seeded], tuple(c for c in cases if not c.seeded)
        verdict = (
            self._run_given(candidate, binaries, cases, depth) if cases else Verdict(Word.ACCEPT, "judge", "", depth)
        )
        ratios = [self._run_whole(candidate, binaries, case, False).error_ratio or 0.0 for case in seeded]
        return replace(verdict, error_ratio=max([verdict.error_ratio or 0.0, *ratios]))

    def _run_given(
        self, candidate: BoundCandidate, binaries: dict[str, Binary], cases: jobs.JudgedCases, depth: str
    ) -> Verdict:
        """The verdict on cases whose inputs the judge makes. Raises Rejection unless it is accept."""
        inputs = self.bench.inputs(cases)
        shapes = tuple(c.shape for c in cases)
        repeats = tuple(REPEATS if depth == "full" and not case.once else 1 for case in cases)
        message = candidate.message(code=False)

        def job(binaries: dict[str, Binary]) -> jobs.RunCases:
            return jobs.RunCases(self.bench.path, message, binaries, shapes, inputs, repeats)

        runs = self.run_job(candidate, binaries, job)
        failed = next((r.verdict for r in runs if r.verdict is not None), None)
        if failed is not None:
            raise Rejection(replace(failed, depth=depth))
        verdict = self.bench.judge_runs(cases, runs, depth, atomics=has_atomics(candidate.kernel))
        if not verdict.accepted:
            raise Rejection(verdict)
        return verdict

    def time_shapes(
        self,
        candidate: BoundCandidate,
        binaries: dict[str, Binary],
        limits_us: Mapping[str, float],
        rival_us: Mapping[str, float] | None = None,
    ) -> jobs.Timed:
        """Event times of the timed shapes; the sampling of a shape ends early above its limit, and so does the job.

        rival_us are the times to beat: then only a shape's sampling ends early, and of several shapes those are left
        out where they will not be beaten.
        """
        message = candidate.message(code=False)
        fitting = candidate.fit(self.timed)
        points = {s: self.points[s] for s in fitting} if rival_us and len(self.timed) > 1 else {}

        def job(binaries: dict[str, Binary]) -> jobs.TimeCandidate:
            rival = dict(rival_us or {})
            return jobs.TimeCandidate(self.bench.path, message, binaries, fitting, dict(limits_us), rival, points)

        with self.bench.gpu:
            timed = self.run_job(candidate, binaries, job)
        if timed.verdict is not None:
            raise Rejection(timed.verdict)
        return timed

    def judge_timed(self, candidate: BoundCandidate) -> None:
        """Judges one run at each timed shape. Raises Rejection."""
        fitting = candidate.fit(self.timed)
        binaries = candidate.compile(fitting)
        for shape in fitting:
            self._run_whole(candidate, binaries, jobs.JudgedCase(shape, "randn", self.bench.secret), False)

    def run_job(
        self,
        candidate: BoundCandidate,
        binaries: dict[str, Binary],
        job: Callable[..., Any],
        more_s: float = 0.0,
        **then: Any,
    ) -> Any:
        """The run worker's answer, within more_s above the limit. Raises Rejection with the verdict that ended it."""
        assert self.bench.runners is not None
        answer = run_on_gpu(self.bench.runners, binaries, job, candidate.build, self.limit_s + more_s, **then)
        if isinstance(answer, Verdict):
            raise Rejection(answer)
        return answer

    def _run_whole(
        self, candidate: BoundCandidate, binaries: dict[str, Binary], case: jobs.JudgedCase, repeats: bool = True
    ) -> Verdict:
        """The verdict on a case whose inputs the run worker makes. Raises Rejection unless it is accept."""
        message, atomics = candidate.message(code=False), has_atomics(candidate.kernel)
        waits = repeats and (candidate.kernel.language == GLUON or any(map(is_asynchronous, binaries.values())))

        def job(binaries: dict[str, Binary]) -> jobs.RunSeeded:
            return jobs.RunSeeded(self.bench.path, message, binaries, case, waits, atomics)

        busy = keep_busy(self.bench.judge) if waits else nullcontext(lambda: None)
        with self.bench.gpu, busy as end:  # the judge computes on the same GPU: nothing is timed meanwhile

            def judge(ran: jobs.Ran) -> tuple[Verdict]:
                end()
                if ran.verdict is not None:
                    raise Rejection(replace(ran.verdict, depth="full"))
                return (ask_trusted(self.bench.judge, jobs.JudgeSeeded(case, ran, atomics), 120.0),)

            more_s = 2 * jobs.REPEATS_S if waits else 0.0  # the repeats' own time, and others that share the GPU
            verdict = self.run_job(candidate, binaries, job, more_s, then=judge)[0]
        if not verdict.accepted:
            raise Rejection(verdict)
        return verdict

    def _measure(
        self, candidate: BoundCandidate, binaries: dict[str, Binary], incumbent: Measurement | None
    ) -> Measurement:
        rival = incumbent.by_shape if incumbent else {}
        timed = self.time_shapes(candidate, binaries, {shape: FAR * us for shape, us in rival.items()}, rival)
        times = []
        for shape, samples in timed.samples_us.items():
            middle, spread = statistics.median(samples), compute_spread_us(samples)
            identity = content_digest(*candidate.identities(shape, binaries))
            times.append(ShapeTime(shape, middle, spread, len(samples), identity, timed.detail[shape]))
        return Measurement(Evidence.MEASURED, self.bench.where, PROTOCOL, tuple(times), timed.abandoned)


@contextmanager
def keep_busy(judge: Pool) -> Iterator[Callable[[], None]]:
    """The judge's process computes on the GPU beside what runs in this context, until what it gives is called."""
    done = threading.Event()

    def compute() -> None:
        with suppress(WorkerError):
            while not done.is_set():
                ask_trusted(judge, jobs.KeepBusy(BUSY_S), 60.0)

    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    try:
        yield done.set
    finally:
        done.set()
        thread.join()


def is_asynchronous(binary: Binary) -> bool:
    """Whether a binary loads or multiplies beside its other instructions, so that a missing wait would show rarely."""
    return bool(binary.mix["wgmma"] or binary.mix["tma"])
