"""`optimize`: opens the task, runs the search, says its progress, confirms its finalists."""

from __future__ import annotations

import os
import random
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from kernelsearch.api import optimize_options
from kernelsearch.api.optimize_options import OptimizeOptions
from kernelsearch.api.results import FoundKernel, OptimizeResult
from kernelsearch.cluster.machines import open_machines
from kernelsearch.cluster.remote_bench import RemoteBench, make_confirmation, make_evaluation
from kernelsearch.core import files, formats
from kernelsearch.core.errors import KernelsearchError, NoKernelError, StoreError, WorkerError
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import Evidence, ShapeFact, TaskFacts, Trial, is_gain
from kernelsearch.measure.static_model.known_error import describe_error
from kernelsearch.measure.timing import nvml
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.measure.timing.finalists import Finalist, count_comparisons
from kernelsearch.measure.timing.paired_statistics import level_for_comparisons
from kernelsearch.propose import proposers
from kernelsearch.propose.contract import Proposer, Request, Rewrite
from kernelsearch.propose.edits import add_edit
from kernelsearch.propose.mix import RunLimits
from kernelsearch.record.confirmation_rows import count_gain
from kernelsearch.record.rows import KERNELS, KERNELS_SETTING, Run, Structure
from kernelsearch.record.steps import PlacedStep, add_steps
from kernelsearch.record.store import Store
from kernelsearch.report import findings as confirmed
from kernelsearch.report import kernel_file, progress, summary
from kernelsearch.report.tables import describe_place, load_table, measurement_of
from kernelsearch.report.terminal import make_say
from kernelsearch.search import Progress, Result, population, strategies
from kernelsearch.search.between import time_between
from kernelsearch.search.first_kernel import list_starts, write_first_kernel
from kernelsearch.search.history import score_of
from kernelsearch.search.loop import OnTrial
from kernelsearch.search.planned_run import PlannedRun
from kernelsearch.search.settling import settle_finalists
from kernelsearch.search.steps import list_beside, place_steps, read_confirmed, time_steps
from kernelsearch.tasks.named_function import blame_original, find_task_file
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import bench as benches
from kernelsearch.trial import own_configs
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.confirmation import Confirmation, ConfirmationPlan, Contestant
from kernelsearch.trial.referee import must_be_judgeable
from kernelsearch.trial.reuse import ReuseTerms, ReusingEvaluator
from kernelsearch.verify import gate

LEAST_WINDOW = 8
"""Candidates in flight at least."""

TRIALS_AHEAD = 12
"""The window grows with the workers up to one candidate for so many trials; beyond, asks that have not seen what is in
flight cost more than 5 % of the result (studies/scale).
"""

TRIALS_AHEAD_ALONE = 24
"""The same for the cores of one machine, which nobody added to be fast: at 200 trials a window of 8 costs nothing that
can be seen, 16 costs 5 % and 32 costs 13 % (studies/scale).
"""

CONFIRM_SECONDS = 12.0
"""Sampling time of the finalists' confirmation, shared by the shapes: at least 2 and at most 5 seconds each."""


def optimize(task: str | os.PathLike[str], options: OptimizeOptions | None = None, **changes: Any) -> OptimizeResult:
    """Searches for a faster kernel than the task's own, and confirms the best where there is a GPU.

    task is the path of a task file. What is not given in options is given by name: `optimize("softmax.py", trials=100,
    strategy="evolve", params={"population": 8}, shapes=("rows=8192",), db="runs.db")`; the fields of `OptimizeOptions`
    are the options of the command. Progress goes to stderr unless `quiet=True`. Every trial is kept in the database.
    Ctrl-C finishes what is in flight and returns what there is. Raises KernelsearchError for the user's mistakes.
    """
    options = replace(options or OptimizeOptions(), **{"given": frozenset(changes), **changes})
    task, say = os.fspath(task), make_say(options.quiet)
    options.model()  # this and the next few lines raise now what would fail later
    for edit in options.edits:
        add_edit(edit)
    strategies.check_params(options.strategy, options.params)
    path = find_task_file(task)
    if not options.resume:
        optimize_options.read_starts(options)
    if options.out and os.path.exists(options.out) and os.path.exists(path) and os.path.samefile(options.out, path):
        raise KernelsearchError(f"{options.out} is the task itself: name another file for --out")
    options.machines()
    benches.choose_target(options.target)
    note = nvml.check_busy()  # before anything of ours runs on it
    if options.resume and not os.path.exists(options.db):  # else one would be made
        raise StoreError(f"there is no database {options.db}, and no unfinished run of {task} to resume")
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(options.db, say=say))
        with blame_original(task, path):
            bench, path = _open(path, options, stack, say)
        bench.check_isolation(say, options.require_isolation)
        options = replace(options, starts=tuple(dict.fromkeys((*options.starts, *list_starts(path)))))
        resumed = optimize_options.find_unfinished(store, bench.facts, options) if options.resume else None
        if resumed:
            say(optimize_options.describe(store, resumed))
        starts = optimize_options.read_starts(options, resumed)
        if resumed:
            options = optimize_options.take_over(resumed, bench.facts, options)
        facts = narrow_to_shapes(bench.facts, options.shapes)
        if len(facts.shapes) < len(bench.facts.shapes) and not options.shapes:
            some = f"{len(facts.shapes)} of its {len(bench.facts.shapes)} shapes, which lie apart, are timed"
            say(f"note: {some}: a tree over these serves the others")
        introduce(bench, facts, say, first=not store.load_runs())
        if note and bench.device is not None:
            say(f"note: {note}")
        optimization = Optimization(bench, facts, store, options, say, resumed, starts)
        result, findings = optimization.run()
        again = f"kernelsearch optimize {shlex.quote(path)} {optimize_options.format_options(options)}--resume"
        best = _describe_best(store, result, findings)
        if options.out and best:
            files.write_user_file(options.out, best.source)
            own = f": the task's own kernel{', tuned' if best.gained else ''}"
            say(f"wrote {options.out}{own if best.digest == result.trials[0].kernel else ''}")
            if place := describe_place(load_table(store, result.run.id), best.digest, best.config):
                say(f"note: {place}")
        ended = result.run.id, len(result.trials), result.seconds, result.interrupted
        told = summary.as_dict(store, facts, result, findings, optimization.failures)
        text = summary.as_text(store, facts, result, again, findings, optimization.failures)
        return OptimizeResult(facts.name, options.db, *ended, best, again, told, text)


def _describe_best(store: Store, result: Result, findings: Sequence[confirmed.Finding]) -> FoundKernel | None:
    """The kernel that `--out` writes, with the strongest evidence there is for it."""
    digest, best = summary.choose_kernel(result, findings), result.best
    if digest is None or best is None:
        return None
    seed, gained = result.trials[0], digest != result.trials[0].kernel
    source = kernel_file.render_kernel_file(store, digest, run=result.run.id)
    finding = next((f for f in findings if f["kernel"] == digest and not confirmed.is_champion(f)), None)
    if finding and finding["vs_seed"]:
        return FoundKernel(digest, finding["config"], count_gain(finding), Evidence.CONFIRMED, gained, source)
    trial = best if digest == best.kernel and is_gain(1 / score_of(best)) else seed
    speedup, evidence = 1 / score_of(trial), measurement_of(trial).evidence
    return FoundKernel(digest, dict(trial.config), speedup, evidence, gained or is_gain(speedup), source)


def _open(path: str, options: OptimizeOptions, stack: ExitStack, say: Say) -> tuple[Bench | RemoteBench, str]:
    """Opens the task; returns its file too, which is another one where the task had no kernel."""
    try:
        return _open_bench(path, options, stack, say), path
    except NoKernelError:
        path = write_first_kernel(path, options.target, say)
        return _open_bench(path, options, stack, say), path


def _open_bench(path: str, options: OptimizeOptions, stack: ExitStack, say: Say) -> Bench | RemoteBench:
    with ExitStack() as own:
        bench = own.enter_context(open_machines(options.machines(), [path], say)).open_bench(path, options.target, say)
        stack.enter_context(own.pop_all())
    stack.callback(bench.close)
    return bench


def introduce(bench: Bench | RemoteBench, facts: TaskFacts, say: Say, first: bool = False) -> None:
    """Says what is known of an opened task: its shapes, where it is timed, what to mind; more where it is the first."""
    workers = f"{formats.format_count(len(bench.crew.posts), 'worker')}, " if isinstance(bench, RemoteBench) else ""
    where = f"measuring on {bench.where}"
    if bench.device is None:
        where = f"no GPU here: times are estimated for {bench.where}, verdicts come from an evaluation on the CPU"
    shapes = formats.format_count(len(facts.shapes), "timed shape")
    tested = formats.format_count(len(facts.test_shapes), "test shape")
    say(f"{facts.name}: {shapes}, {tested}; {workers}{where}")
    for note in facts.notes:
        say(f"note: {note}")
    if bench.device is None:
        say(f"note: estimates come from a static model; {describe_error(bench.target, short=not first)}")
    verdict = gate.check(facts.seed)
    if not verdict.accepted:
        say(f"note: the seed is tuned by its numbers but not rewritten, because the gate refuses it: {verdict.reason}")


@dataclass
class Optimization:
    """The search of an opened task and the confirmation of its finalists.

    resumed is the run that goes on; starts are the files that it begins with, each a name and a text. The search puts
    the seed's best config into facts, and into steps the ancestors of its best candidate with that one's config;
    failures are sentences on the user's own edits that failed.
    """

    bench: Bench | RemoteBench
    facts: TaskFacts
    store: Store
    options: OptimizeOptions
    say: Say
    resumed: Run | None = None
    starts: Sequence[Sequence[str]] = ()
    steps: list[PlacedStep] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    finalists: list[tuple[Finalist, Contestant]] = field(default_factory=list)

    def run(self) -> tuple[Result, list[confirmed.Finding]]:
        """The result of the search, and the findings on its finalists, best first."""
        bench, options, confirmation = self.bench, self.options, None
        with ExitStack() as stack:
            if bench.device is not None:
                bench.ceilings = self.store.load_ceilings(bench.device.name)
                if options.confirm:
                    seconds = options.confirm_seconds or max(2.0, min(5.0, CONFIRM_SECONDS / len(self.facts.shapes)))
                    confirmation = stack.enter_context(make_confirmation(bench, ConfirmationPlan(seconds), self.say))
                    confirmation.prepare()  # beside the search
            must_be_judgeable(bench)
            proposer = self._open_proposer()
            stack.callback(proposer.close)
            result = self._search(proposer)
            return result, self.confirm(result, confirmation) if confirmation else []

    def _open_proposer(self) -> Proposer:
        """The proposer of rewrites; one that proposes nothing for a seed that the gate refuses."""
        if not gate.check(self.facts.seed).accepted:
            return _Nobody()
        options = self.options
        place = proposers.load_machine_facts(self.store, self.facts, self.bench.where, self.bench.target)
        limits = RunLimits(options.trials, options.budget_seconds)
        proposer = proposers.open_proposer(options.model(), place, limits, self.say)
        if estimate := proposers.estimate_cost(proposer, self.facts, options.trials):
            self.say(f"model: {estimate}")
        return proposer

    def _search(self, proposer: Proposer) -> Result:
        bench, facts, store, options, resumed = self.bench, self.facts, self.store, self.options, self.resumed
        evaluation, name = make_evaluation(bench, facts), options.strategy
        evaluator = ReusingEvaluator(evaluation, ReuseTerms.of(evaluation, facts), None if options.fresh else store)
        runs = [resumed] if resumed else [] if options.fresh else store.load_runs(facts.digest)
        facts = self.facts = own_configs.tune_seed(bench, facts, evaluator, runs, self.say)
        window = options.window or choose_window(bench, options.trials, self.say)
        settings: dict[str, Any] = {population.SETTING: self.starts} if self.starts else {}
        settings |= {KERNELS_SETTING: options.kernels} if options.kernels != KERNELS else {}
        params = dict(options.params)
        settings |= {optimize_options.PARAMS: params} if params else {}
        starts = population.read_population([(name, text) for name, text in self.starts], bench.seed, facts, self.say)
        how = options.model(), options.seed, window, options.trials
        plan = PlannedRun(evaluation, facts, name, name, *how, params, settings, starts)
        if resumed and isinstance(bench, RemoteBench):
            bench.go_on(store.load_trials(resumed.id, 0, 1))
        search = plan.set_up(proposer, evaluator, store, resumed, options.budget_seconds, waits=False)
        if options.quiet:
            result = search.run(ending=options.ending)
        else:
            aside = bench.crew.describe_pace if isinstance(bench, RemoteBench) else str
            with progress.ProgressLine(aside=aside) as line:
                proposer.send_sentences_to(line.note)
                result = search.run(
                    _note_refused(starts, line),
                    ending=options.ending,
                    on_landed=line.tell_landed,
                    say=line.tell_interrupted,
                )
        proposer.end()
        self.failures = proposer.list_failures()
        again = bench.device is not None and options.confirm
        if (again or len(facts.shapes) > 1) and not result.interrupted:
            evaluation = make_evaluation(bench, facts)
            result, self.finalists = settle_finalists(facts, store, result, evaluation, self.say, again)
            if isinstance(bench, Bench) and len(facts.shapes) > 1 and not options.shapes and result.best:
                try:
                    result = time_between(bench, facts, store, result, self.say)
                except (KernelsearchError, KeyboardInterrupt) as error:
                    self.say(f"note: the table was not timed between its shapes: {str(error) or 'interrupted'}")
        if result.best and not result.interrupted:
            seed = result.trials[0]
            self.steps = place_steps(store, result.run.id, seed, result.best)
            self.steps = time_steps(self.steps, evaluator, measurement_of(seed))
            add_steps(store, result.run, self.steps)
        return result

    def confirm(self, result: Result, confirmation: Confirmation) -> list[confirmed.Finding]:
        """Confirms the finalists; their findings, best first; empty where nothing can be, or need be, confirmed."""
        bench, facts = self.bench, self.facts
        chosen = self.finalists
        if not chosen or bench.device is None:
            return []
        level = level_for_comparisons(count_comparisons([f for f, _ in chosen]))
        confirmation.plan = replace(confirmation.plan, level=level)
        seed = Contestant(SEED, bench.seed, dict(facts.config))
        steps = self.steps if any(is_gain(1 / score_of(f.trial)) for f, _ in chosen) else []
        findings: list[confirmed.Finding] = []
        try:
            ceilings = confirmation.find_ceilings(self.store)

            def choose(shape: ShapeFact) -> list[Contestant]:
                here = [seed, *(c for f, c in chosen if shape.key in f.shapes)]
                timed = [s for s in steps if s.measurement and shape.key in s.measurement.by_shape]
                return [*here, *list_beside(timed, here)]

            runs = confirmation.confirm_shapes(facts.shapes, choose)
            for finalist, contestant in chosen:
                own = [runs[shape] for shape in finalist.shapes]
                finding = confirmed.build_finding(
                    contestant, own, bench.device.name, ceilings, level, finalist.champion, facts.tuned
                )
                findings.append(finding)
                structure = Structure(contestant.kernel, 0)
                self.store.add_confirmation(facts, structure, contestant.config, finding, benches.versions())
            steps = read_confirmed(steps, list(runs.values()), [seed, *(c for _, c in chosen)], bench.device.name)
            add_steps(self.store, result.run, steps)
        except WorkerError as error:
            self.say(f"the finalists could not be confirmed: {error}")
        except KeyboardInterrupt:
            self.say("interrupted while the finalists were being confirmed: `kernelsearch measure` does that later")
        return sorted(findings, key=confirmed.rank_key)


def _note_refused(starts: Sequence[Rewrite], line: progress.ProgressLine) -> OnTrial:
    """The progress line, which also says of each kernel that the run begins with why it is refused."""

    def on_trial(trial: Trial, done: Progress) -> None:
        verdict = trial.outcome.verdict
        if 0 < trial.number <= len(starts) and not verdict.accepted:
            line.note(f"{starts[trial.number - 1].edit}: {verdict.word.value} at {verdict.stage}, {verdict.reason}")
        line(trial, done)

    return on_trial


def choose_window(bench: Bench | RemoteBench, trials: int, say: Say) -> int:
    """Candidates in flight where nothing is said: as many as workers take, within a share of the budget."""
    if not isinstance(bench, RemoteBench):
        return max(LEAST_WINDOW, min(len(os.sched_getaffinity(0)), trials // TRIALS_AHEAD_ALONE))
    room, most = max(LEAST_WINDOW, bench.crew.room), max(LEAST_WINDOW, trials // TRIALS_AHEAD)
    if room > most:
        ahead = f"the workers take {room} candidates at a time, and {trials} trials are too few to ask so far ahead"
        say(f"note: {ahead}: {most} are in flight; with more --trials all workers are used, or with --window")
    return min(room, most)


class _Nobody(Proposer):
    """The proposer for a seed that the gate refuses: nothing is rewritten."""

    def propose(self, request: Request, rng: random.Random) -> None:
        return None
