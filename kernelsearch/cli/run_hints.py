"""`hints`: the bottlenecks of one kernel, from its binary, its launches, and a GPU where there is one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

from kernelsearch.compile.build import Binary
from kernelsearch.core.types import TaskFacts, Verdict
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.hints.findings import LauncherCall
from kernelsearch.measure.static_model.counts import LaunchCounts
from kernelsearch.measure.static_model.known_error import describe_error
from kernelsearch.measure.timing import nvml
from kernelsearch.record.store import Store
from kernelsearch.report import hint_report as report
from kernelsearch.report.terminal import make_say, print_text
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation, referee
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.confirmation import Confirmation
from kernelsearch.trial.estimate import estimate_times
from kernelsearch.trial.hints import describe_calls
from kernelsearch.trial.profile import profile_programs
from kernelsearch.trial.rejection import Rejection
from kernelsearch.trial.shared_state import Once
from kernelsearch.worker.gpu.counters_main import Counted, count_launches
from kernelsearch.worker.processes.pool import Pool

PROFILE_LIMIT_S = 120.0
NO_GPU = "a measured time (no GPU here): times are the static model's, and the verdict is not asked for; {error}"
NO_COUNTERS = "hardware counters: {reason}; what needs them is estimated"
RATES = "ceilings measured on this device: rates are the datasheet's"


def main(
    path: str,
    kernel: str | None,
    target: str,
    db: str,
    shapes: tuple[str, ...],
    counters: bool,
    require_isolation: bool,
    as_json: bool,
    quiet: bool = False,
) -> int:
    """Prints the hints. Returns 0, or 1 when the kernel is refused. Raises KernelsearchError for misuse."""
    say = make_say(quiet)
    text = referee.read_kernel_argument(path, kernel)
    if text is not None and not (verdict := referee.check_kernel_file(text)).accepted:
        return _print_refusal(verdict, as_json)
    if note := nvml.check_busy(nvml.ALONE):  # before anything of ours runs on it
        say(f"note: {note}")
    with ExitStack() as stack:
        bench = stack.enter_context(Bench.open(path, target, say=say))
        pool = open_counting_pool(bench)
        bench.check_isolation(say, require_isolation)
        bench.ceilings = find_ceilings(bench, db)
        facts = narrow_to_shapes(bench.facts, shapes)
        found = examine(bench, facts, text, pool, profile=counters)
    if isinstance(found, Verdict):
        return _print_refusal(found, as_json)
    if as_json:
        print(json.dumps(report.as_dict(found), indent=2))
    else:
        print_text(report.as_text(found))
    return 0


def find_ceilings(bench: Bench, db: str) -> Mapping[str, float]:
    """The best rates of the live device, from the database or else measured now; empty without a GPU."""
    if bench.device is None:
        return {}
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(db, write=False)) if os.path.exists(db) else None
        return stack.enter_context(Confirmation(bench)).find_ceilings(store, keep=False)


def open_counting_pool(bench: Bench) -> Pool:
    """The evaluators that count what sampled programs do, also on a machine with a GPU; they start at once."""
    pool = bench.evaluators or bench.workplace.pool("evaluate", 1)
    pool.warm()
    return pool


def examine(
    bench: Bench, facts: TaskFacts, text: str | None = None, pool: Pool | None = None, *, profile: bool = True
) -> report.HintReport | Verdict:
    """The hints about a kernel file's text, or about the task's own kernel; a Verdict when it is refused.

    profile asks for the hardware's counters too, which takes some seconds a shape.
    """
    kernel = Kernel.parse(text) if text is not None else bench.seed
    config = referee.config_of(kernel, bench.facts) if text is not None else dict(facts.config)
    shapes = tuple(s.key for s in facts.shapes)
    candidate = BoundCandidate(bench, kernel, config)
    missing: list[str] = []
    measurement = None
    with ThreadPoolExecutor(1) as beside:
        counting = beside.submit(_count, candidate, pool or open_counting_pool(bench), shapes)
        if bench.device is not None:
            outcome = Evaluation(bench, shapes).evaluate(kernel, config)
            if outcome.measurement is None:
                return outcome.verdict
            measurement = outcome.measurement
            missing += [] if bench.ceilings else [RATES]
        else:
            missing += [NO_GPU.format(error=describe_error(bench.target)), NO_COUNTERS.format(reason="no GPU here")]
        try:
            binaries, verdict = bench.build_binaries(kernel, candidate.specialisations(*shapes))
        except Rejection as rejected:
            verdict = rejected.verdict
        counts, reason = counting.result()
    if reason:
        missing.append(f"counts of sampled programs (masks are not known): {reason}")
    if verdict is not None:
        return verdict
    if measurement is None and counts is not None:
        try:
            measurement = estimate_times(candidate, binaries, counts, shapes)
        except Rejection as rejected:
            return rejected.verdict
    calls = describe_calls(candidate, binaries, shapes, Once(), measurement, counts)
    if bench.device is not None:
        reason = "not asked for"
        if profile:
            calls, reason = _add_counters(candidate, binaries, calls)
        missing += [NO_COUNTERS.format(reason=reason)] if reason else []
    labels = {s.key: s.label for s in facts.shapes}
    reported = tuple((labels[c.shape], c) for c in calls)
    return report.HintReport(facts.name, kernel.digest, dict(config), bench.where, reported, tuple(missing))


def _add_counters(
    candidate: BoundCandidate, binaries: Mapping[str, Binary], calls: tuple[LauncherCall, ...]
) -> tuple[tuple[LauncherCall, ...], str]:
    """The calls with the hardware's counters where they can be read, and the reason where they cannot."""
    bench, message = candidate.bench, candidate.message(code=False)
    with_counters, reason = [], ""
    for call in calls:
        if not reason:
            functions = [one.function for one in call.launches]
            counted = Counted(bench.path, call.shape, message, binaries)
            with bench.gpu:
                counters = count_launches(counted, functions, bench.workplace.cache)
            if isinstance(counters, str):
                reason = counters
            else:
                pairs = zip(call.launches, counters, strict=True)
                call = replace(call, launches=tuple(replace(one, counters=c) for one, c in pairs))
        with_counters.append(call)
    return tuple(with_counters), reason


def _count(
    candidate: BoundCandidate, pool: Pool, shapes: tuple[str, ...]
) -> tuple[Mapping[str, tuple[LaunchCounts, ...]] | None, str]:
    """The counts of sampled programs by shape, or None and the reason."""
    try:
        return profile_programs(candidate, pool, shapes, PROFILE_LIMIT_S).counts, ""
    except Rejection as rejected:
        return None, f"the evaluator could not run them: {rejected.verdict.reason}"


def _print_refusal(verdict: Verdict, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"refused": referee.as_json(verdict)}))
    make_say()(f"no hints for a kernel that is refused: {referee.explain(verdict)}")
    return 1
