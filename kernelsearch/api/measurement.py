"""`measure`: the confirmed protocol alone, a verdict first, then paired times against every baseline.

Without a GPU nothing can be measured: it says so and gives the static model's estimate.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from kernelsearch.api.results import MeasureResult
from kernelsearch.core import formats
from kernelsearch.core.arguments import settle_options
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import Evidence, TaskFacts, Verdict
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.static_model.known_error import KNOWN_ERROR, TRIED, describe_error
from kernelsearch.measure.timing import nvml
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.record import DEFAULT_DB
from kernelsearch.record.rows import Structure
from kernelsearch.record.store import Store
from kernelsearch.report import findings
from kernelsearch.report.terminal import make_say
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation, referee
from kernelsearch.trial.bench import Bench, versions
from kernelsearch.trial.confirmation import SECONDS, Confirmation, ConfirmationPlan, Contestant
from kernelsearch.trial.estimate import explain_extrapolation
from kernelsearch.trial.own_configs import tune_seed

CANDIDATE = "kernel"

NO_GPU = (
    "no GPU here: nothing is measured. No baseline, no interval and no roofline can be given; what follows is the "
    "static model's estimate for {target}, which is for ranking kernels; {error}"
)


@dataclass(frozen=True)
class MeasureOptions:
    """The options of `measure`, as the command line names them; seconds of sampling per shape."""

    target: str = "auto"
    db: str = DEFAULT_DB
    shapes: tuple[str, ...] = ()
    seconds: float = SECONDS
    require_isolation: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        settle_options(self)


def measure(
    task: str | os.PathLike[str], kernel: str | os.PathLike[str] | None = None, **options: Any
) -> MeasureResult:
    """Times a kernel file, or the task's own kernel, by the confirmed protocol against every baseline.

    options are the fields of `MeasureOptions`. A wrong kernel is not timed: the result has its verdict. Progress goes
    to stderr unless `quiet=True`; a confirmation is kept in the database. Raises KernelsearchError for the user's
    mistakes.
    """
    wanted, task = MeasureOptions(**options), os.fspath(task)
    kernel = None if kernel is None else os.fspath(kernel)
    say = make_say(wanted.quiet)
    text = referee.read_kernel_argument(task, kernel)
    if text is not None and not (verdict := referee.check_kernel_file(text)).accepted:
        return _refuse(verdict)
    note = nvml.check_busy()  # before anything of ours runs on it
    if note:
        say(f"note: {note}")
    with Bench.open(task, wanted.target, say=say) as bench:
        bench.check_isolation(say, wanted.require_isolation)
        facts = narrow_to_shapes(bench.facts, wanted.shapes)
        facts = tune_seed(bench, facts, Evaluation.of(bench, facts), say=say)
        contestants = [Contestant(SEED, bench.seed, dict(facts.config))]
        if text is not None:
            candidate = Kernel.parse(text)
            contestants.append(Contestant(CANDIDATE, candidate, referee.config_of(candidate, bench.facts)))
        if bench.device is None:
            return _estimate(bench, facts, contestants, say)
        return _confirm(bench, facts, contestants, wanted, say)


def _confirm(
    bench: Bench, facts: TaskFacts, contestants: list[Contestant], options: MeasureOptions, say: Say
) -> MeasureResult:
    candidate = contestants[-1]
    with ExitStack() as stack:
        confirmation = stack.enter_context(Confirmation(bench, ConfirmationPlan(options.seconds), say))
        confirmation.prepare()
        say(f"judging {candidate.name} before it is timed")
        verdict = Evaluation.of(bench, facts).verify(candidate.kernel, candidate.config)
        if not verdict.accepted:
            return _refuse(verdict)
        store = stack.enter_context(Store.open(options.db))
        ceilings = confirmation.find_ceilings(store)
        runs = tuple(confirmation.confirm_shapes(facts.shapes, lambda shape: contestants).values())
        finding = findings.build_finding(candidate, runs, bench.where, ceilings, seed_configs=facts.tuned)
        if finding["shapes"]:
            store.add_confirmation(facts, Structure(candidate.kernel, 0), candidate.config, finding, versions())
    times = {
        s["label"]: {
            candidate.name: s["time_us"],
            **{b["name"]: b["time_us"] for b in s["baselines"] if "time_us" in b},
        }
        for s in finding["shapes"]
    }
    done = finding["status"] in (findings.CONFIRMED, findings.UNSTABLE)
    about = {**finding, "ceilings": ceilings, "versions": versions()}
    return MeasureResult(verdict, Evidence.CONFIRMED, times, done, about, findings.as_text(finding))


def _estimate(bench: Bench, facts: TaskFacts, contestants: list[Contestant], say: Say) -> MeasureResult:
    reason = NO_GPU.format(target=bench.target.name, error=describe_error(bench.target))
    say(reason)
    evaluation = Evaluation.of(bench, facts)
    outcomes = {c.name: evaluation.evaluate(c.kernel, c.config) for c in contestants}
    verdict = outcomes[contestants[-1].name].verdict
    if not verdict.accepted:
        return _refuse(verdict)
    estimates = {name: outcome.measurement for name, outcome in outcomes.items() if outcome.measurement}
    rows: list[dict[str, Any]] = [
        {"shape": s.key, "label": s.label, "estimated_us": {name: m.time_us(s.key) for name, m in estimates.items()}}
        for s in facts.shapes
    ]
    lines = [f"seed: {formats.format_seed(facts.tuned)}, {formats.format_config(facts.config)}"] if facts.tuned else []
    for row in rows:
        named = ", ".join(f"{name} {formats.format_time(us)}" for name, us in row["estimated_us"].items())
        lines.append(f"{row['label']}: estimated {named}")
    if note := explain_extrapolation(*estimates.values()):
        lines.append(note)
    about = {"evidence": "estimated", "target": bench.target.name, "reason": reason, "seed_configs": facts.tuned}
    about |= {"known_error": KNOWN_ERROR if bench.target.arch == TRIED else None, "shapes": rows}
    times = {row["label"]: row["estimated_us"] for row in rows}
    return MeasureResult(verdict, Evidence.ESTIMATED, times, True, about, "\n".join(lines))


def _refuse(verdict: Verdict) -> MeasureResult:
    """The result for a wrong kernel, which is not timed."""
    about = referee.as_json(replace(verdict, depth="full"))
    text = f"not measured, because it is not right: {referee.explain(verdict)}"
    return MeasureResult(verdict, None, {}, False, about, text)
