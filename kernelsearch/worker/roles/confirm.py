"""The worker of the confirmed protocol: a fresh process, one open shape, contestants timed block by block.

Like the run worker it has the user's code and compiled binaries, never candidate Python. It keeps a secret tenth of the
timed outputs for the judge (`gpu.confirming`, which is imported inside the sandbox: torch may start threads).
"""

from __future__ import annotations

import re
from typing import Any

from kernelsearch.core import errors
from kernelsearch.core.types import Verdict, Word
from kernelsearch.worker.isolation.sandbox import WorkerLimits
from kernelsearch.worker.messages import confirm_jobs, jobs

LIMITS = WorkerLimits(descriptors=4096, file_bytes=None)


def preload() -> None:
    """Does nothing: a process that touches a GPU is started, not forked."""


def handle(job: Any) -> Any:
    from kernelsearch.worker.gpu import confirming

    match job:
        case confirm_jobs.Prepare():
            return confirming.prepare(job)
        case confirm_jobs.OpenShape():
            return confirming.open_shape(job)
        case confirm_jobs.Enter():
            return confirming.enter(job)
        case confirm_jobs.Blocks():
            return confirming.time_blocks(job)
        case confirm_jobs.Outputs():
            return confirming.hand_over_outputs(job)
        case confirm_jobs.Clocks():
            return confirming.time_by_other_clocks(job)
        case confirm_jobs.MeasureCeilings():
            from kernelsearch.measure.timing import ceilings

            return confirm_jobs.Ceilings(ceilings.measure_ceilings())
    return jobs.JobFailure(f"the confirming worker does not know {type(job).__name__}", "WorkerError")


def answer_failure(job: Any, message: str, trace: str) -> Any:
    """The answer for a contestant that raised; after a lost CUDA context this process is of no more use."""
    if lack := errors.explain_lack_of_memory(message):
        message = lack
    elif "CUDA error" in message or isinstance(job, (confirm_jobs.Blocks, confirm_jobs.Outputs, confirm_jobs.Clocks)):
        return jobs.JobFailure(message, confirm_jobs.CRASHED)
    if isinstance(job, confirm_jobs.Enter):
        if job.candidate is None:
            return confirm_jobs.EnteredContestant(failure=_baseline_failure(message))
        return confirm_jobs.EnteredContestant(verdict=Verdict(Word.CRASH, "confirm", message, detail={"trace": trace}))
    return jobs.JobFailure(message, "WorkerError")


def _baseline_failure(message: str) -> str:
    """A baseline's failure in words; a missing package is `not installed`."""
    kind, _, what = message.partition(": ")
    missing = re.search(r"No module named '(\w+)", what)
    return f"not installed: {missing.group(1)}" if kind == "ModuleNotFoundError" and missing else message
