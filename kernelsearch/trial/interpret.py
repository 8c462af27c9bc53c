"""A verdict without a GPU: a candidate's cases through the interpreter worker, its outputs through the judge."""

from __future__ import annotations

from dataclasses import replace

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import Config, Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.slow_steps import patience
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.handle import WorkerDied, WorkerHung

ORDERS = ("reversed", "shuffled")
"""Orders of the grid in which the first case runs again, at full depth."""
LONG_LIMIT_S = 10.0
FEW_SMS = 2
"""`num_sms` where values are judged: a grid that is too small for the work shows only if the work is larger than it.

A kernel is right for any number of multiprocessors; of 132 or four times as many, small shapes fill none. One that reads
`num_sms` is judged with the target's as well: it could do one thing on two of them and another where it is timed.
"""
HERE = "in Triton's interpreter (no GPU)"


def interpreted(
    bench: Bench, kernel: Kernel, config: Config, cases: tuple[jobs.Case, ...], depth: str, limit_s: float
) -> Verdict:
    """The verdict on these cases; at full depth the first also runs with the grid in other orders."""
    with patience(bench.say if _is_seed(bench, kernel, config) else None, f"judging the task's own kernel {HERE}"):
        verdict = _interpreted(bench, kernel, config, cases, depth, limit_s)
        if verdict.accepted and asks_for_sms(kernel, config):
            again = _interpreted(bench, kernel, config, cases, depth, limit_s, bench.target.num_sms)
            said = f"with num_sms = {bench.target.num_sms}: {again.reason}"
            verdict = verdict if again.accepted else replace(again, reason=said)
        return verdict


def asks_for_sms(kernel: Kernel, config: Config) -> bool:
    """Whether the launch spec or a config reads `num_sms`, so that it decides something."""
    return "num_sms" in repr((kernel.grid, kernel.args, kernel.scratch, kernel.init, kernel.config, dict(config)))


def _is_seed(bench: Bench, kernel: Kernel, config: Config) -> bool:
    return kernel.digest == bench.seed.digest and dict(config) == dict(bench.facts.config)


def _interpreted(
    bench: Bench,
    kernel: Kernel,
    config: Config,
    cases: tuple[jobs.Case, ...],
    depth: str,
    limit_s: float,
    sms: int = FEW_SMS,
) -> Verdict:
    named = tuple(c for c in cases if c.kind not in jobs.SIZES)
    usual = tuple(c for c in named if c.kind != "typed" or seed_on(bench, c, limit_s).accepted)
    verdict = ran(bench, kernel, config, usual, "forward", depth, limit_s, sms=sms)
    if depth != "full":
        return verdict
    if verdict.accepted:
        verdict = _sixteen_too(bench, kernel, config, usual, verdict, limit_s, sms)
    if verdict.accepted:
        timed_sizes = tuple(c for c in cases if c.kind in jobs.SIZES)
        verdict = _long_too(bench, kernel, config, timed_sizes, verdict, min(LONG_LIMIT_S, limit_s), sms)
    for order in ORDERS if verdict.accepted else ():
        again = ran(bench, kernel, config, cases[:1], order, depth, limit_s, sms=sms)
        if not again.accepted:
            word = Word.RACE if again.word is Word.WRONG else again.word
            reason = f"with the grid {order}: {again.reason}"
            return replace(again, word=word, reason=reason, detail={**again.detail, "order": order})
    return verdict


def ran(
    bench: Bench,
    kernel: Kernel,
    config: Config,
    cases: tuple[jobs.Case, ...],
    order: str,
    depth: str,
    limit_s: float,
    twin: bool = True,
    sms: int = FEW_SMS,
) -> Verdict:
    """The verdict on these cases with the programs of every launch in one order; twin makes 16-bit floats float32."""
    inputs = bench.inputs(cases, twin=twin)
    candidate = bench.candidate(kernel, config, code=True)
    shapes, twins = tuple(c.shape for c in cases), tuple(c.half and twin for c in cases)
    sampled = tuple(c.seed + 1 if c.sampled else 0 for c in cases)
    try:
        runs = bench.interpreters.ask(
            jobs.Interpret(bench.path, candidate, shapes, inputs, order, twins, sampled, sms), limit_s
        )
    except WorkerHung:
        where = "in Triton's interpreter, which runs programs one by one: smaller TEST_SHAPES take less"
        return Verdict(Word.TIMEOUT, "run", f"did not finish within {limit_s:g} s {where}", depth)
    except WorkerDied as died:
        return Verdict(Word.CRASH, "run", f"the interpreter worker died: {died}", depth)
    failed = next((r.verdict for r in runs if r.verdict is not None), None)
    if failed is not None:
        return replace(failed, depth=depth)
    verdict = bench.judged(cases, runs, depth, twin=twin)
    suspect = next((r.suspect for r in runs if r.suspect), "")
    return Verdict(Word.MEMORY, "run", suspect, depth) if verdict.accepted and suspect else verdict


TOO_SLOW = "not judged, too slow in the interpreter"
NOT_ALONE = "programs not judged alone, they need each other"
PATIENCE = 2
"""How many timed sizes may take too long before the others are left out."""
NOT_RIGHT = "not judged, the seed is not right there"
SEED_SLOW = "not judged, the seed is too slow there in the interpreter"


def seed_on(bench: Bench, case: jobs.Case, limit_s: float) -> Verdict:
    """The verdict on the task's own kernel at a case whose sizes the task did not name: asked once a case.

    A launcher may take multiples of 64 only, and its author is not to be taught otherwise by somebody else's verdict.
    """
    if case not in bench.right_on:
        try:
            verdict = ran(bench, bench.seed, bench.facts.config, (case,), "forward", "full", limit_s)
        except TaskError as error:
            verdict = Verdict(Word.CRASH, "run", str(error), "full")
        bench.right_on[case] = verdict
    return bench.right_on[case]


SIXTEEN = ("mixed", "randn")
"""Regimes in which 16-bit floats are also judged as what they are."""


def _sixteen_too(
    bench: Bench,
    kernel: Kernel,
    config: Config,
    cases: tuple[jobs.Case, ...],
    verdict: Verdict,
    limit_s: float,
    sms: int,
) -> Verdict:
    """The verdict with 16-bit floats judged unwidened too, each operation rounded, where the seed itself is right so."""
    halves = tuple(c for c in cases if c.half and c.regime in SIXTEEN and c.probe is None and not c.padded)
    if not halves:
        return verdict
    if bench.rounds_sixteen is None:
        seed = ran(bench, bench.seed, bench.facts.config, halves, "forward", "full", limit_s, twin=False)
        bench.rounds_sixteen = seed.accepted
    if not bench.rounds_sixteen:
        return replace(verdict, detail={**verdict.detail, NOT_RIGHT: ["16-bit rounding"]})
    again = ran(bench, kernel, config, halves, "forward", "full", limit_s, twin=False, sms=sms)
    if again.accepted:
        return replace(verdict, error_ratio=max(verdict.error_ratio or 0.0, again.error_ratio or 0.0))
    return replace(again, reason=f"with 16-bit floats as they are: {again.reason}")


def _long_too(
    bench: Bench,
    kernel: Kernel,
    config: Config,
    cases: tuple[jobs.Case, ...],
    verdict: Verdict,
    limit_s: float,
    sms: int,
) -> Verdict:
    """The verdict with timed sizes judged too; an honest kernel may be too slow for them here, which is said.

    The first of each kind come first, so that one slow size does not leave a whole kind unseen.
    """
    said: dict[str, list[str]] = {}
    own = _is_seed(bench, kernel, config)
    for case in sorted(cases, key=lambda c: c.shape.partition(":")[2]):
        if len(said.get(TOO_SLOW, ())) >= PATIENCE:
            said[TOO_SLOW].append(case.shape)
            continue
        seed = seed_on(bench, case, limit_s)
        if not seed.accepted:
            said.setdefault(SEED_SLOW if seed.word is Word.TIMEOUT else NOT_RIGHT, []).append(case.shape)
            continue
        again = seed if own else ran(bench, kernel, config, (case,), "forward", "full", limit_s, sms=sms)
        if again.word is Word.TIMEOUT:
            said.setdefault(TOO_SLOW, []).append(case.shape)
            continue
        if not again.accepted:
            return again
        verdict = replace(verdict, error_ratio=max(verdict.error_ratio or 0.0, again.error_ratio or 0.0))
        if "not sampled" in again.detail:
            said.setdefault(NOT_ALONE, []).append(case.shape)
    return replace(verdict, detail={**verdict.detail, **said})
