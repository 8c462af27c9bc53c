"""Has the judge compute right answers ahead of the runs that they judge."""

from __future__ import annotations

import os
import time

from kernelsearch.trial.bench import Bench
from kernelsearch.worker.messages import jobs

ANSWERS_AT_ONCE = max(8, len(os.sched_getaffinity(0)))
"""Right answers that the judge computes ahead (15 ms each on an H100) before whoever waits for it has its turn; those
that the CPU makes take all cores."""
LET_OTHERS_S = 0.002
"""Seconds in which a thread that waits for the judge or the GPU takes it: locks are not fair."""


def prepare_answers(bench: Bench, cases: jobs.JudgedCases) -> None:
    """Some at a time: the judge answers nobody else meanwhile, and nothing is timed."""
    for first in range(0, len(cases), ANSWERS_AT_ONCE):
        with bench.gpu:
            some = cases[first : first + ANSWERS_AT_ONCE]
            bench.ask_judge(jobs.PrepareAnswers(some), some)
        time.sleep(LET_OTHERS_S)
