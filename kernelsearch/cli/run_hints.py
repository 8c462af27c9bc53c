"""`hints`: where the time of one kernel goes, from its binary, its launches, and a GPU where there is one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

from kernelsearch.compile import sass
from kernelsearch.compile.build import Binary
from kernelsearch.core.types import Config, TaskFacts, Verdict, Word
from kernelsearch.kernel.launch import LaunchError
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.hints.findings import Call
from kernelsearch.measure.static_model.counts import Counts
from kernelsearch.measure.static_model.known_error import KNOWN_ERROR
from kernelsearch.measure.timing import nvml
from kernelsearch.record.store import Store
from kernelsearch.report import hints as report
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation, referee
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.estimate import estimated
from kernelsearch.trial.hints import calls
from kernelsearch.worker.gpu.counters_main import Counted, counted
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.messages.confirm_jobs import MeasureCeilings
from kernelsearch.worker.processes.handle import WorkerDied, WorkerHung
from kernelsearch.worker.processes.pool import Pool, trusted

PROFILE_LIMIT_S = 120.0
NO_GPU = f"a measured time (no GPU here): times are the static model's, and the verdict is not asked for; {KNOWN_ERROR.said()}"
NO_COUNTERS = "hardware counters: {reason}; what needs them is estimated"
RATES = "ceilings measured on this device: rates are the datasheet's"
CEILINGS_LIMIT_S = 120.0


@dataclass(frozen=True)
class Options:
    """The command's options, as the command line names them."""

    kernel: str | None = None
    target: str = "auto"
    db: str = "kernelsearch.db"
    shapes: tuple[str, ...] = ()
    counters: bool = True
    as_json: bool = False


def _said(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(path: str, options: Options) -> int:
    """Prints the hints. Returns 0, or 1 when the kernel is refused. Raises KernelsearchError for misuse."""
    text = referee.asked(path, options.kernel)
    if text is not None and not (verdict := referee.checked(text)).accepted:
        return _refused(verdict, options)
    if note := nvml.busy_now(nvml.ALONE):  # before anything of ours runs on it
        _said(f"note: {note}")
    with ExitStack() as stack:
        bench = stack.enter_context(Bench.open(path, options.target, say=_said))
        pool = counting_pool(bench)
        bench.ceilings = known_ceilings(bench, options.db)
        facts = narrow_to_shapes(bench.facts, options.shapes)
        found = examine(bench, facts, text, pool, profile=options.counters)
    if isinstance(found, Verdict):
        return _refused(found, options)
    print(json.dumps(report.as_dict(found), indent=2) if options.as_json else report.as_text(found).rstrip("\n"))
    return 0


def known_ceilings(bench: Bench, db: str) -> Mapping[str, float]:
    """What the live device can do at best: as the database has it, else measured now; empty without a GPU."""
    if bench.device is None:
        return {}
    if os.path.exists(db):
        with Store.open(db, write=False) as store:
            found = store.ceilings(bench.device.name)
        if found:
            return found
    answer = trusted(bench.workplace.pool("confirm", 1, fork=False), MeasureCeilings(), CEILINGS_LIMIT_S)
    return dict(answer.values)


def counting_pool(bench: Bench) -> Pool:
    """The interpreters that count what sampled programs do, on a machine with a GPU too; they begin to start at once."""
    pool = bench.interpreters or bench.workplace.pool("interpret", 1)
    pool.warm()
    return pool


def examine(
    bench: Bench, facts: TaskFacts, text: str | None = None, pool: Pool | None = None, *, profile: bool = True
) -> report.Report | Verdict:
    """Everything that hints say of a kernel file's text, or of the task's own kernel; a Verdict when it is refused.

    profile asks for the hardware's counters too, which takes some seconds a shape.
    """
    kernel = Kernel.parse(text) if text is not None else bench.seed
    config = referee.config_of(kernel, bench.facts) if text is not None else dict(facts.config)
    shapes = tuple(s.key for s in facts.shapes)
    missing: list[str] = []
    measurement = None
    with ThreadPoolExecutor(1) as beside:
        counting = beside.submit(_counts, bench, pool or counting_pool(bench), kernel, config, shapes)
        if bench.device is not None:
            outcome = Evaluation(bench, shapes).evaluate(kernel, config)
            if outcome.measurement is None:
                return outcome.verdict
            measurement = outcome.measurement
            missing += [] if bench.ceilings else [RATES]
        else:
            missing += [NO_GPU, NO_COUNTERS.format(reason="no GPU here")]
        binaries = _binaries(bench, kernel, config, shapes)
        counts = counting.result()
    if isinstance(counts, str):
        missing.append(f"counts of sampled programs (masks are not known): {counts}")
        counts = None
    if isinstance(binaries, Verdict):
        return binaries
    if measurement is None and counts is not None:
        measurement = estimated(bench, kernel, config, binaries, counts, shapes)
    if sass.disassembler() is None:
        missing.append("the disassembly: this Triton has no nvdisasm")
    known = calls(bench, kernel, config, binaries, shapes, measurement, counts)
    if bench.device is not None:
        reason = "not asked for"
        if profile:
            known, reason = _with_counters(bench, kernel, config, binaries, known)
        missing += [NO_COUNTERS.format(reason=reason)] if reason else []
    return _reported(bench, facts, kernel, config, binaries, known, tuple(missing))


def _with_counters(
    bench: Bench, kernel: Kernel, config: Config, binaries: Mapping[str, Binary], known: tuple[Call, ...]
) -> tuple[tuple[Call, ...], str]:
    """The calls with the hardware's counters where they can be read, and why not where they cannot."""
    found, reason = [], ""
    for call in known:
        functions = [one.function for one in call.launches]
        job = Counted(bench.path, call.shape, bench.candidate(kernel, config, code=False), binaries)
        if not reason:
            with bench.gpu:
                read = counted(job, functions, bench.workplace.cache)
            if isinstance(read, str):
                reason = read
            else:
                pairs = zip(call.launches, read, strict=True)
                call = replace(call, launches=tuple(replace(one, counters=c) for one, c in pairs))
        found.append(call)
    return tuple(found), reason


def _reported(
    bench: Bench,
    facts: TaskFacts,
    kernel: Kernel,
    config: Config,
    binaries: Mapping[str, Binary],
    known: tuple[Call, ...],
    missing: tuple[str, ...],
) -> report.Report:
    shapes = tuple(s.key for s in facts.shapes)
    labels = {s.key: s.label for s in facts.shapes}
    codes = {b.identity: b for b in binaries.values()}
    machine = {identity: sass.counts(b.cubin) for identity, b in codes.items()}
    order = {s: [i for _, i in _identities(bench, kernel, config, s, binaries)] for s in shapes}
    return report.Report(
        task=facts.name,
        kernel=kernel.digest,
        config=dict(config),
        device=bench.device.name if bench.device else bench.target.name,
        calls=tuple((labels[c.shape], c, tuple(machine[i] for i in order[c.shape])) for c in known),
        missing=missing,
    )


def _identities(bench: Bench, kernel: Kernel, config: Config, shape: str, binaries: Mapping[str, Binary]) -> list:
    return [
        (spec.function, binaries[jobs.spec_key(spec, bound.of_seed)].identity)
        for fact, bound in bench.bound(kernel, config, (shape,))
        for spec in bound.specialisations(fact)
    ]


def _binaries(bench: Bench, kernel: Kernel, config: Config, shapes: tuple[str, ...]) -> dict[str, Binary] | Verdict:
    try:
        bound = bench.bound(kernel, config, shapes)
    except LaunchError as error:
        return Verdict(Word.STATIC, "launch", str(error))
    specs = tuple(dict.fromkeys((s, b.of_seed) for fact, b in bound for s in b.specialisations(fact)))
    binaries, verdict = bench.binaries(kernel, specs)
    return verdict or binaries


def _counts(
    bench: Bench, pool: Pool, kernel: Kernel, config: Config, shapes: tuple[str, ...]
) -> Mapping[str, tuple[Counts, ...]] | str:
    """What sampled programs do; a sentence when the interpreter cannot say it."""
    job = jobs.Profile(bench.path, bench.candidate(kernel, config, code=True), shapes)
    try:
        answer = pool.ask(job, PROFILE_LIMIT_S)
    except (WorkerDied, WorkerHung) as error:
        return f"the interpreter could not run them: {error}"
    return answer.counts if answer.verdict is None else f"the interpreter could not run them: {answer.verdict.reason}"


def _refused(verdict: Verdict, options: Options) -> int:
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr)  # noqa: E731
    if options.as_json:
        print(json.dumps({"refused": referee.as_json(verdict)}))
    say(f"no hints for a kernel that is refused: {referee.explained(verdict)}")
    return 1
