"""`optimize`: opens the task, runs the search, reports its progress and what it gained."""

from __future__ import annotations

import json
import os
import random
import shlex
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from kernelsearch.cli.say import make_say
from kernelsearch.core import files
from kernelsearch.core.errors import KernelsearchError, NoKernelError, StoreError, TaskError, WorkerError
from kernelsearch.core.model_calls import ModelCall
from kernelsearch.core.types import TaskFacts, Trial
from kernelsearch.measure.static_model.known_error import KNOWN_ERROR
from kernelsearch.measure.timing import nvml
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.propose import proposers
from kernelsearch.propose.contract import Proposer, Request
from kernelsearch.propose.engines import EngineCache
from kernelsearch.propose.mix import RunLimits
from kernelsearch.record import DEFAULT_DB
from kernelsearch.record.rows import Run, Structure
from kernelsearch.record.store import Store
from kernelsearch.report import findings as confirmed
from kernelsearch.report import kernel_file, progress, summary
from kernelsearch.search import Result, first_kernel, strategies
from kernelsearch.search.finalists import Finalist, choose_finalists, count_comparisons
from kernelsearch.search.planned_run import PlannedRun
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation
from kernelsearch.trial import bench as benches
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.trial.confirmation import Confirmation, ConfirmationPlan, Contestant
from kernelsearch.trial.pruning import PruningEvaluator
from kernelsearch.trial.reuse import ReuseTerms, ReusingEvaluator
from kernelsearch.trial.slow_steps import Say
from kernelsearch.verify import gate
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import ask_trusted

LEAST_WINDOW = 8
"""Candidates in flight where there are fewer cores; with more, one per core keeps the compilers busy."""

CONFIRM_SECONDS = 12.0
"""Sampling time of the finalists' confirmation, shared by the shapes: at least 2 and at most 5 seconds each."""


@dataclass(frozen=True)
class OptimizeOptions:
    """The command's options, as the command line names them."""

    trials: int = 200
    strategy: str = strategies.DEFAULT
    proposer: str = ""
    models: tuple[str, ...] = ()
    max_tokens: int | None = None
    max_usd: float | None = None
    price: tuple[float, float] | None = None
    record: str | None = None
    target: str = "auto"
    db: str = DEFAULT_DB
    seed: int = 0
    shapes: tuple[str, ...] = ()
    window: int | None = None
    budget_seconds: float | None = None
    resume: bool = False
    out: str | None = None
    as_json: bool = False
    quiet: bool = False
    confirm: bool = True
    confirm_seconds: float | None = None
    fresh: bool = False
    prune: float | None = None

    def model(self) -> proposers.ModelOptions:
        """Who proposes. Raises ModelError for a proposer that is unknown or not installed."""
        return proposers.ModelOptions(
            self.proposer, self.models, self.max_tokens, self.max_usd, self.price, self.record
        )


def main(path: str, options: OptimizeOptions) -> int:
    """Runs the search and prints its summary. Returns the exit code; raises KernelsearchError for misuse."""
    say = make_say(options.quiet)
    options.model()  # this and the next few lines raise now what would fail later
    strategies.load(options.strategy)
    if options.out and not Path(options.out).absolute().parent.is_dir():
        raise KernelsearchError(f"{options.out} cannot be written: its folder does not exist")
    benches.choose_target(options.target)
    note = nvml.check_busy()  # before anything of ours runs on it
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(options.db))
        engines = EngineCache()
        stack.callback(engines.close)
        bench, path, before = _open(path, options, stack, say, engines)
        facts = narrow_to_shapes(bench.facts, options.shapes)
        _introduce(bench, facts, say)
        if note and bench.device is not None:
            say(f"note: {note}")
        result, findings = Optimization(bench, facts, store, options, say, engines, before).run()
        again = f"kernelsearch optimize {shlex.quote(path)} {_format_options(options)}--resume"
        if options.as_json:
            print(json.dumps(summary.as_dict(store, facts, result, findings), indent=2))
        else:
            print(summary.as_text(store, facts, result, again, findings), end="")
        if options.out and result.best is not None:
            best = next((f["kernel"] for f in findings if not confirmed.is_champion(f)), result.best.kernel)
            files.write_user_file(options.out, kernel_file.render_kernel_file(store, best, run=result.run.id))
            say(f"wrote {options.out}")
        db = "" if options.db == DEFAULT_DB else f" --db {shlex.quote(options.db)}"
        commands = ", ".join(f"kernelsearch {name}{db}" for name in ("leaderboard", "lineage best", "show best"))
        say(f"stored in {options.db}; see: {commands}")
    return 0


def _open(
    path: str, options: OptimizeOptions, stack: ExitStack, say: Say, engines: EngineCache
) -> tuple[Bench, str, tuple[ModelCall, ...]]:
    """Opens the task; returns its file too, and the model calls that wrote the first kernel of a task without one."""
    before: tuple[ModelCall, ...] = ()
    try:
        bench = Bench.open(path, options.target, compiled=default_folder(), say=say)
    except NoKernelError:
        if not options.model().specs:
            raise
        path, before = first_kernel.write_first_kernel(path, options.model(), options.target, say, engines)
        bench = Bench.open(path, options.target, compiled=default_folder(), say=say)
    return stack.enter_context(bench), path, before


def _introduce(bench: Bench, facts: TaskFacts, say: Say) -> None:
    where = f"measuring on {bench.where}"
    if bench.device is None:
        where = f"no GPU here: times are estimated for {bench.where}, verdicts come from Triton's interpreter"
    shapes = "1 timed shape" if len(facts.shapes) == 1 else f"{len(facts.shapes)} timed shapes"
    tested = "1 test shape" if len(facts.test_shapes) == 1 else f"{len(facts.test_shapes)} test shapes"
    say(f"{facts.name}: {shapes}, {tested}; {where}")
    for note in facts.notes:
        say(f"note: {note}")
    if bench.device is None:
        say(f"note: estimates come from a static model; {KNOWN_ERROR.as_text()}")
    verdict = gate.check(facts.seed)
    if not verdict.accepted:
        say(f"note: the seed is tuned by its numbers but not rewritten, because the gate refuses it: {verdict.reason}")


def search_and_confirm(
    bench: Bench, facts: TaskFacts, store: Store, options: OptimizeOptions, say: Say
) -> tuple[Result, list[confirmed.Finding]]:
    """Searches an opened task and confirms its finalists, best first."""
    engines = EngineCache()
    try:
        return Optimization(bench, facts, store, options, say, engines).run()
    finally:
        engines.close()


@dataclass(frozen=True)
class Optimization:
    """The search of an opened task and the confirmation of its finalists; the caller closes the engines.

    before are the model calls that wrote the task's first kernel.
    """

    bench: Bench
    facts: TaskFacts
    store: Store
    options: OptimizeOptions
    say: Say
    engines: EngineCache
    before: tuple[ModelCall, ...] = ()

    def run(self) -> tuple[Result, list[confirmed.Finding]]:
        """The result of the search, and the findings on its finalists, best first."""
        bench, options, confirmation = self.bench, self.options, None
        with ExitStack() as stack:
            if bench.device is not None:
                bench.ceilings = self.store.load_ceilings(bench.device.name)
                if options.confirm:
                    seconds = options.confirm_seconds or max(2.0, min(5.0, CONFIRM_SECONDS / len(self.facts.shapes)))
                    confirmation = stack.enter_context(Confirmation(bench, ConfirmationPlan(seconds), self.say))
                    confirmation.prepare()  # beside the search
            if passing := ask_trusted(bench.judge, jobs.JudgeTask(), benches.JUDGE_LIMIT_S):
                raise TaskError(f"{bench.facts.name} cannot be judged: {'; '.join(passing)}")
            proposer = self._open_proposer()
            stack.callback(proposer.close)
            result = self._search(proposer)
            return result, self.confirm(result, confirmation) if confirmation else []

    def _open_proposer(self) -> Proposer:
        """The proposer of rewrites; one that proposes nothing for a seed that the gate refuses."""
        if not gate.check(self.facts.seed).accepted:
            return _Nobody()
        options, place = self.options, self._machine()
        limits = RunLimits(options.trials, options.budget_seconds)
        proposer = proposers.open_proposer(options.model(), place, limits, self.say, make=self.engines.engine)
        if estimate := proposers.estimate_cost(proposer, self.facts, options.trials):
            self.say(f"model: {estimate}")
        return proposer

    def _machine(self) -> proposers.MachineFacts:
        bench = self.bench
        return proposers.MachineFacts(bench.where, bench.target, bench.ceilings.get("copy_gbps"))

    def _search(self, proposer: Proposer) -> Result:
        facts, store, options = self.facts, self.store, self.options
        resumed = _find_unfinished(store, facts, options) if options.resume else None
        evaluation, name = Evaluation.of(self.bench, facts), options.strategy
        least = resumed.facts.window if resumed else max(LEAST_WINDOW, len(os.sched_getaffinity(0)))
        window, settings = options.window or least, {"prune": options.prune} if options.prune else {}
        plan = PlannedRun(
            evaluation, facts, name, name, options.model(), options.seed, window, options.trials, settings=settings
        )
        evaluator = ReusingEvaluator(evaluation, ReuseTerms.of(evaluation, facts), None if options.fresh else store)
        if options.prune and self.bench.device is not None:
            evaluator = PruningEvaluator(evaluator, evaluation, options.prune)
            if resumed and (trials := store.load_trials(resumed.id, 0, 1)) and trials[0].accepted:
                evaluator.begin(self.bench.seed, trials[0].config, trials[0].outcome.measurement)
        search = plan.set_up(proposer, evaluator, store, resumed, self.before, options.budget_seconds, waits=False)
        if options.quiet:
            result = search.run(ending=True)
        else:
            with progress.ProgressLine() as line:
                proposer.send_sentences_to(line.note)
                result = search.run(line, ending=True)
        proposer.end()
        return result

    def confirm(self, result: Result, confirmation: Confirmation) -> list[confirmed.Finding]:
        """Confirms the finalists; their findings, best first; empty where nothing can be, or need be, confirmed."""
        bench, facts = self.bench, self.facts
        chosen = [] if result.interrupted else self._choose_finalists(result)
        if not chosen:
            return []
        level = confirmed.level_for(count_comparisons([f for f, _ in chosen]))
        confirmation.plan = replace(confirmation.plan, level=level)
        seed = Contestant(SEED, bench.seed, dict(facts.config))
        findings: list[confirmed.Finding] = []
        try:
            ceilings = confirmation.find_ceilings(self.store)
            runs = {}
            for s in facts.shapes:
                runs[s.key] = confirmation.confirm_shape(s, [seed, *(c for f, c in chosen if s.key in f.shapes)])
            for finalist, contestant in chosen:
                own = [runs[shape] for shape in finalist.shapes]
                finding = confirmed.build_finding(
                    contestant, own, bench.device.name, ceilings, level, finalist.champion
                )
                findings.append(finding)
                structure = Structure(contestant.kernel, 0)
                self.store.add_confirmation(facts, structure, contestant.config, finding, benches.versions())
        except WorkerError as error:
            self.say(f"the finalists could not be confirmed: {error}")
        except KeyboardInterrupt:
            self.say("interrupted while the finalists were being confirmed: `kernelsearch measure` does that later")
        return sorted(findings, key=confirmed.rank_key)

    def _choose_finalists(self, result: Result) -> list[tuple[Finalist, Contestant]]:
        """The finalists, each under its own name: its digest's beginning, numbered where only the config differs."""
        structures, evaluation = self.store.load_structures(result.run.id), Evaluation.of(self.bench, self.facts)

        def accepted(trial: Trial) -> bool:
            return evaluation.verify(structures[trial.kernel].kernel, trial.config).accepted

        chosen: list[tuple[Finalist, Contestant]] = []
        for finalist in choose_finalists(self.facts, self.bench.seed.digest, result.trials, accepted):
            trial = finalist.trial
            same = sum(f.trial.kernel == trial.kernel for f, _ in chosen)
            name = trial.kernel[:8] + (f"-{same + 1}" if same else "")
            chosen.append((finalist, Contestant(name, structures[trial.kernel].kernel, dict(trial.config))))
        return chosen


class _Nobody(Proposer):
    """The proposer for a seed that the gate refuses: nothing is rewritten."""

    def propose(self, request: Request, rng: random.Random) -> None:
        return None


def _find_unfinished(store: Store, facts: TaskFacts, options: OptimizeOptions) -> Run:
    for run in store.load_runs(facts.digest):
        ours = (run.facts.strategy, run.facts.seed) == (options.strategy, options.seed)
        if ours and (run.finished is None or store.count_trials(run.id) < options.trials):
            return run
    raise StoreError(
        f"{options.db} has no unfinished run of {facts.name} with strategy {options.strategy} and "
        f"seed {options.seed} to resume"
    )


def _format_options(options: OptimizeOptions) -> str:
    """The options that a resumed run must repeat, as they would be typed."""
    parts = []
    for name in ("trials", "strategy", "proposer", "max_tokens", "max_usd", "target", "db", "seed", "window"):
        value = getattr(options, name)
        if value != getattr(OptimizeOptions(), name):
            parts.append(f"--{name.replace('_', '-')} {shlex.quote(str(value))}")
    parts += [f"--model {shlex.quote(s)}" for s in options.models]
    parts += ["--price {:g} {:g}".format(*options.price)] if options.price else []
    parts += [f"--shape {shlex.quote(s)}" for s in options.shapes]
    return "".join(f"{p} " for p in parts)
