"""A bench whose GPU is simulated: its run workers answer every job with an accepted run, at 10 us a call."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

from kernelsearch.core.types import Verdict, Word
from kernelsearch.measure.timing.device import LiveDevice
from kernelsearch.worker.messages import jobs

ACCEPT = Verdict(Word.ACCEPT, "judge", error_ratio=0.5, depth="full")


class Runners:
    """Run workers that answer every job with an accepted run, at 10 us a call."""

    layers = ("simulated",)

    def __init__(self, bench):
        self.asked, self.judge = [], bench.judge

    @contextlib.contextmanager
    def lease(self):
        yield self

    def ask(self, job, limit_s):
        self.asked.append(type(job).__name__)
        if isinstance(job, jobs.JudgeSeeded):
            return ACCEPT
        if isinstance(job, jobs.PrepareAnswers):
            return None
        if isinstance(job, jobs.RunCases):
            return tuple(jobs.Ran() for _ in job.shapes)
        if isinstance(job, (jobs.RunSeeded, jobs.KeepBusy)):
            return jobs.Ran()
        if isinstance(job, jobs.TimeCandidate):
            times = dict.fromkeys(job.shapes, (10.0, 11.0, 12.0))
            return jobs.Timed(times, {s: {} for s in job.shapes})
        return self.judge.ask(job, limit_s)


def simulate_gpu(bench):
    """Gives a bench that was opened without a GPU one that accepts everything."""
    traced = {d: tuple(c for c in bench.cases(d) if c.shape in bench.facts.traces) for d in ("screen", "full")}
    bench.cases = traced.__getitem__
    bench.evaluators, bench.device = None, LiveDevice("SIMULATED", 90, 132)
    bench.runners = bench.judge = Runners(bench)
    bench.judge.source = SimpleNamespace(role="judge")
    bench.judge_runs = lambda cases, runs, depth, **how: replace(ACCEPT, depth=depth)
