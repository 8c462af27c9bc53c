"""Asks the run worker on a GPU: adds missing binaries, replaces one that dies, tests that a fresh one computes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from kernelsearch.compile.build import Binary
from kernelsearch.compile.known import KNOWN, KNOWN_SPEC
from kernelsearch.core.errors import WorkerError
from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.targets import Target
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import Pool, ask_trusted
from kernelsearch.worker.processes.workers import Worker, WorkerDied, WorkerHung

Build = Callable[[tuple[tuple[Specialisation, bool], ...]], dict[str, Binary]]

PROOF_LIMIT_S = 20.0
BUILD_ROUNDS = 32
"""So often a job may lack binaries that it did not lack before: one launch of the launcher a round, at worst."""


def run_on_gpu(
    pool: Pool,
    binaries: dict[str, Binary],
    job: Callable[[dict[str, Binary]], Any],
    build: Build,
    limit_s: float,
    then: Callable[[Any], Any] = lambda answer: answer,
) -> Any:
    """then(the run worker's answer), while no other job reaches that worker; or the Verdict that ended the job.

    binaries that the worker finds missing are built and added. When the worker dies the job goes to a fresh one, once:
    somebody else may have killed it. A lost CUDA context ends the worker, after its answer.
    """
    for last in (False, True):
        with pool.lease() as runner:
            try:
                answer = ask_with_binaries(lambda job: runner.ask(job, limit_s), binaries, job, build)
            except WorkerHung:
                return Verdict(Word.TIMEOUT, "run", f"did not finish within {limit_s:g} s")
            except WorkerDied as died:
                if last:
                    return Verdict(Word.CRASH, "run", f"the run worker died: {died}")
                continue
            first = answer[0] if isinstance(answer, tuple) else answer
            if isinstance(first, Verdict):
                return first
            if first.verdict is not None and first.verdict.detail.get("poisoned"):
                runner.kill()
                return first.verdict
            return then(answer)
    raise AssertionError("the last attempt returns")


def ask_with_binaries(
    ask: Callable[[Any], Any], binaries: dict[str, Binary], job: Callable[[dict[str, Binary]], Any], build: Build
) -> Any:
    """The answer to job(binaries), after building binaries that the worker misses; else a Verdict."""
    for _ in range(BUILD_ROUNDS):
        answer = ask(job(binaries))
        if not isinstance(answer, jobs.MissingBinary):
            return answer
        known = len(binaries)
        binaries.update(build(tuple(zip(answer.specs, answer.of_seed, strict=True))))
        if len(binaries) == known:
            break
    return Verdict(Word.STATIC, "launch", "the launcher passes different arguments each time")


def make_prover(compilers: Pool, target: Target) -> Callable[[Worker], bool]:
    """A test of run workers that take the place of a lost one: whether they compute the known kernel rightly.

    The kernel is compiled once, at the first test. The test raises WorkerError when it cannot be compiled.
    """

    @cache
    def compile_known() -> Binary:
        done = ask_trusted(compilers, jobs.Compile(KNOWN, "known", (KNOWN_SPEC,), target), PROOF_LIMIT_S)
        if done.verdict is not None:
            raise WorkerError(f"the kernel that proves a worker healthy does not compile: {done.verdict.reason}")
        return done.binaries[0]

    def proves(worker: Worker) -> bool:
        known = compile_known()
        try:
            return bool(worker.ask(jobs.Prove(known), PROOF_LIMIT_S))
        except (WorkerDied, WorkerHung):
            return False

    return proves
