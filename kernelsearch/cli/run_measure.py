"""`measure`: the confirmed protocol alone, a verdict first, then paired times against every baseline.

Without a GPU nothing can be measured: the command says so and gives the static model's estimate.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace

from kernelsearch.cli.say import make_say
from kernelsearch.core import formats
from kernelsearch.core.types import TaskFacts, Verdict
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.static_model.known_error import KNOWN_ERROR
from kernelsearch.measure.timing import nvml
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.record import DEFAULT_DB
from kernelsearch.record.rows import Structure
from kernelsearch.record.store import Store
from kernelsearch.report import findings
from kernelsearch.report.terminal import print_text
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation, referee
from kernelsearch.trial.bench import Bench, versions
from kernelsearch.trial.confirmation import SECONDS, Confirmation, ConfirmationPlan, Contestant
from kernelsearch.trial.estimate import explain_extrapolation
from kernelsearch.trial.own_configs import tune_seed
from kernelsearch.trial.slow_steps import Say

CANDIDATE = "kernel"

NO_GPU = (
    "no GPU here: nothing is measured. No baseline, no interval and no roofline can be given; what follows is the "
    "static model's estimate for {target}, which is for ranking kernels; {error}"
)


@dataclass(frozen=True)
class MeasureOptions:
    """The command's options, as the command line names them; seconds of sampling per shape."""

    kernel: str | None = None
    target: str = "auto"
    db: str = DEFAULT_DB
    shapes: tuple[str, ...] = ()
    seconds: float = SECONDS
    require_isolation: bool = False
    as_json: bool = False
    quiet: bool = False


def main(path: str, options: MeasureOptions) -> int:
    """Measures and prints. Returns the exit code; raises KernelsearchError for misuse."""
    say = make_say(options.quiet)
    text = referee.read_kernel_argument(path, options.kernel)
    if text is not None and not (verdict := referee.check_kernel_file(text)).accepted:
        return _print_refusal(verdict, options)
    note = nvml.check_busy()  # before anything of ours runs on it
    if note:
        say(f"note: {note}")
    with Bench.open(path, options.target, say=say) as bench:
        bench.check_isolation(say, options.require_isolation)
        facts = narrow_to_shapes(bench.facts, options.shapes)
        facts = tune_seed(bench, facts, Evaluation.of(bench, facts), say=say)
        contestants = [Contestant(SEED, bench.seed, dict(facts.config))]
        if text is not None:
            kernel = Kernel.parse(text)
            contestants.append(Contestant(CANDIDATE, kernel, referee.config_of(kernel, bench.facts)))
        if bench.device is None:
            return _estimate(bench, facts, contestants, options, say)
        return _confirm(bench, facts, contestants, options, say)


def _confirm(bench: Bench, facts: TaskFacts, contestants: list[Contestant], options: MeasureOptions, say: Say) -> int:
    candidate = contestants[-1]
    with ExitStack() as stack:
        confirmation = stack.enter_context(Confirmation(bench, ConfirmationPlan(options.seconds), say))
        confirmation.prepare()
        say(f"judging {candidate.name} before it is timed")
        verdict = Evaluation.of(bench, facts).verify(candidate.kernel, candidate.config)
        if not verdict.accepted:
            return _print_refusal(verdict, options)
        store = stack.enter_context(Store.open(options.db))
        ceilings = confirmation.find_ceilings(store)
        runs = confirmation.confirm_shapes(facts.shapes, contestants)
        finding = findings.build_finding(candidate, runs, bench.where, ceilings, seed_configs=facts.tuned)
        if finding["shapes"]:
            store.add_confirmation(facts, Structure(candidate.kernel, 0), candidate.config, finding, versions())
    if options.as_json:
        print(json.dumps({**finding, "ceilings": ceilings, "versions": versions()}, indent=2))
    else:
        print_text(findings.as_text(finding))
    return 0 if finding["status"] in (findings.CONFIRMED, findings.UNSTABLE) else 1


def _estimate(bench: Bench, facts: TaskFacts, contestants: list[Contestant], options: MeasureOptions, say: Say) -> int:
    reason = NO_GPU.format(target=bench.target.name, error=KNOWN_ERROR.as_short_text())
    say(reason)
    evaluation = Evaluation.of(bench, facts)
    outcomes = {c.name: evaluation.evaluate(c.kernel, c.config) for c in contestants}
    verdict = outcomes[contestants[-1].name].verdict
    if not verdict.accepted:
        return _print_refusal(verdict, options)
    times = {name: outcome.measurement for name, outcome in outcomes.items() if outcome.measurement}
    rows = [
        {"shape": s.key, "label": s.label, "estimated_us": {name: m.time_us(s.key) for name, m in times.items()}}
        for s in facts.shapes
    ]
    if options.as_json:
        about = {"evidence": "estimated", "target": bench.target.name, "reason": reason}
        about["seed_configs"] = facts.tuned
        print(json.dumps({**about, "known_error": asdict(KNOWN_ERROR), "shapes": rows}, indent=2))
        return 0
    if facts.tuned:
        print(f"seed: {formats.format_seed(facts.tuned)}, {formats.format_config(facts.config)}")
    for row in rows:
        estimates = ", ".join(f"{name} {formats.format_time(us)}" for name, us in row["estimated_us"].items())
        print(f"{row['label']}: estimated {estimates}")
    if note := explain_extrapolation(*times.values()):
        print(note)
    return 0


def _print_refusal(verdict: Verdict, options: MeasureOptions) -> int:
    """Prints the verdict on a wrong kernel, which is not timed. Returns the exit code."""
    if options.as_json:
        print(json.dumps(referee.as_json(replace(verdict, depth="full"))))
    else:
        print_text(f"not measured, because it is not right: {referee.explain(verdict)}")
    return 1
