"""`optimize`: opens the task, runs the search, says how it goes and what it gained."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kernelsearch.core import files
from kernelsearch.core.errors import KernelsearchError, NoKernelError, StoreError, TaskError, WorkerError
from kernelsearch.core.model_calls import ModelCall
from kernelsearch.core.types import TaskFacts, Trial
from kernelsearch.kernel.space import known_constraints
from kernelsearch.measure.static_model.known_error import KNOWN_ERROR
from kernelsearch.measure.timing import nvml
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.propose import proposers
from kernelsearch.propose.contract import Proposer
from kernelsearch.propose.engines import Opened
from kernelsearch.propose.mixed import Limits
from kernelsearch.propose.typed_edits import TypedEdits
from kernelsearch.record.rows import Run, RunFacts, Structure
from kernelsearch.record.store import Store
from kernelsearch.report import confirmed, progress, show, summary
from kernelsearch.search import FirstAsks, Result, Search, Settings, first_kernel, start_for, strategies
from kernelsearch.search.finalists import Finalist, comparisons, finalists
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation
from kernelsearch.trial import bench as benches
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.trial.confirmation import Confirmation, Contestant, Plan
from kernelsearch.trial.pruning import Pruned, ordered
from kernelsearch.trial.reuse import Reusing, terms
from kernelsearch.verify import gate
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import trusted

LEAST_WINDOW = 8
"""Candidates in flight where there are fewer cores; with more, one per core keeps the compilers busy."""

CONFIRM_SECONDS = 12.0
"""Sampling time of the finalists' confirmation, shared by the shapes: at least 2 and at most 5 seconds each."""

PROPOSERS: dict[str, Callable[[], Proposer]] = {"edits": TypedEdits}


@dataclass(frozen=True)
class Options:
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
    db: str = "kernelsearch.db"
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
        """Who proposes. Raises ModelError for what is unknown or not installed."""
        return proposers.ModelOptions(
            self.proposer, self.models, self.max_tokens, self.max_usd, self.price, self.record
        )


def main(path: str, options: Options) -> int:
    """Runs the search and prints its summary. Returns the exit code; raises KernelsearchError for misuse."""
    say = (lambda text: None) if options.quiet else (lambda text: print(text, file=sys.stderr, flush=True))
    options.model()  # says now what is unknown or not installed
    strategies.load(options.strategy)
    if options.out and not Path(options.out).absolute().parent.is_dir():  # says now what would fail after the search
        raise KernelsearchError(f"{options.out} cannot be written: its folder does not exist")
    benches.choose_target(options.target)
    note = nvml.busy_now()  # before anything of ours runs on it
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(options.db))
        engines = Opened()
        stack.callback(engines.close)
        bench, path, before = _opened(path, options, stack, say, engines)
        facts = narrow_to_shapes(bench.facts, options.shapes)
        _introduce(bench, facts, say)
        if note and bench.device is not None:
            say(f"note: {note}")
        result, found = searched(bench, facts, store, options, say, before, engines)
        again = f"kernelsearch optimize {shlex.quote(path)} {_same(options)}--resume"
        if options.as_json:
            print(json.dumps(summary.as_dict(store, facts, result, found), indent=2))
        else:
            print(summary.as_text(store, facts, result, again, found), end="")
        if options.out and result.best is not None:
            whole = [f["kernel"] for f in found if not confirmed.is_champion(f)]
            best = whole[0] if whole else result.best.kernel
            files.write_user_file(options.out, show.kernel_file(store, best, run=result.run.id))
            say(f"wrote {options.out}")
        say(_next(options))
    return 0


def _opened(
    path: str, options: Options, stack: ExitStack, say: Callable[[str], None], engines: Opened
) -> tuple[Bench, str, tuple[ModelCall, ...]]:
    """The opened task with its file; that of a task without a kernel is the one for which a model wrote the first."""
    before: tuple[ModelCall, ...] = ()
    try:
        bench = Bench.open(path, options.target, compiled=default_folder(), say=say)
    except NoKernelError:
        if not options.model().specs:
            raise
        path, before = first_kernel.seeded(path, options.model(), options.target, say, engines)
        bench = Bench.open(path, options.target, compiled=default_folder(), say=say)
    return stack.enter_context(bench), path, before


def searched(
    bench: Bench,
    facts: TaskFacts,
    store: Store,
    options: Options,
    say: Callable[[str], None],
    before: tuple[ModelCall, ...] = (),
    engines: Opened | None = None,
) -> tuple[Result, list[confirmed.Finding]]:
    """The search of an opened task and the confirmation of its finalists, best first; who gives engines closes them."""
    with ExitStack() as stack:
        if engines is None:
            engines = Opened()
            stack.callback(engines.close)
        bench.ceilings = store.ceilings(bench.device.name) if bench.device else {}
        seconds = options.confirm_seconds or max(2.0, min(5.0, CONFIRM_SECONDS / len(facts.shapes)))
        confirmation = _confirmation(bench, stack, Plan(seconds), say) if options.confirm else None
        _refuse_unjudgeable(bench)
        proposer = _proposer(bench, facts, options.model(), options, stack, say, engines)
        result = _search(bench, facts, store, options, proposer, before)
        return result, _confirmed(bench, facts, store, result, confirmation, say)


def _introduce(bench: Bench, facts: TaskFacts, say: Callable[[str], None]) -> None:
    if bench.device is None:
        where = f"no GPU here: times are estimated for {bench.target.name}, verdicts come from Triton's interpreter"
    else:
        where = f"measuring on {bench.device.name}"
    shapes = "1 timed shape" if len(facts.shapes) == 1 else f"{len(facts.shapes)} timed shapes"
    tested = "1 test shape" if len(facts.test_shapes) == 1 else f"{len(facts.test_shapes)} test shapes"
    say(f"{facts.name}: {shapes}, {tested}; {where}")
    for note in facts.notes:
        say(f"note: {note}")
    if bench.device is None:
        say(f"note: estimates come from a static model; {KNOWN_ERROR.said()}")
    verdict = gate.check(facts.seed)
    if not verdict.accepted:
        say(f"note: the seed is tuned by its numbers but not rewritten, because the gate refuses it: {verdict.reason}")


def _refuse_unjudgeable(bench: Bench) -> None:
    passing = trusted(bench.judge, jobs.JudgeTask(), benches.JUDGE_LIMIT_S)
    if passing:
        raise TaskError(f"{bench.facts.name} cannot be judged: {'; '.join(passing)}")


def _proposer(
    bench: Bench,
    facts: TaskFacts,
    model: proposers.ModelOptions,
    options: Options,
    stack: ExitStack,
    say: Callable[[str], None],
    engines: Opened,
) -> Proposer:
    """Who writes rewrites; nobody for a seed that the gate refuses."""
    if not gate.check(facts.seed).accepted:
        return _Nobody()
    place = proposers.Place(bench.device.name if bench.device else bench.target.name, bench.target)
    proposer = proposers.opened(model, place, Limits(options.trials, options.budget_seconds), say, make=engines.engine)
    stack.callback(proposers.close, proposer)
    if estimate := proposers.estimate(proposer, facts, options.trials):
        say(f"model: {estimate}")
    return proposer


def _search(
    bench: Bench, facts: TaskFacts, store: Store, options: Options, proposer: Proposer, before: tuple[ModelCall, ...]
) -> Result:
    resumed = _unfinished(store, facts, options) if options.resume else None
    cores = len(os.sched_getaffinity(0))
    window = options.window or (resumed.facts.window if resumed else max(LEAST_WINDOW, cores))
    evaluation = Evaluation(bench, tuple(s.key for s in facts.shapes))
    first = None if bench.device is None else FirstAsks.of(partial(ordered, evaluation), window)
    told = RunFacts(
        strategy=options.strategy,
        proposer=options.model().name,
        seed=options.seed,
        window=window,
        trials=options.trials,
        target=bench.device.name if bench.device else bench.target.name,
        versions=benches.versions(),
        settings={
            "shapes": [s.key for s in facts.shapes],
            **proposers.as_facts(options.model()),
            **({"prune": options.prune} if options.prune else {}),
            **(first.as_facts() if first else {}),
        },
    )
    made = partial(strategies.make, options.strategy, start_for(facts, options.seed, options.trials))
    threads = min(window, 2 + cores) if bench.device is None else window  # on a GPU they wait for workers
    settings = Settings(told, threads, options.budget_seconds, known_constraints(facts), first, made)
    known = terms(evaluation, facts, told.target, told.versions)
    evaluator = Reusing(evaluation, known, None if options.fresh else store)
    if options.prune and bench.device is not None:
        evaluator = Pruned(evaluator, evaluation, options.prune)
        if resumed and (trials := store.trials(resumed.id, 0, 1)) and trials[0].accepted:
            evaluator.begin(bench.seed, trials[0].config, trials[0].outcome.measurement)
    search = Search(facts, made(), proposer, evaluator, store, settings, resumed)
    proposers.bind(proposer, store, search.run_row, resumed, before)
    if options.quiet:
        result = search.run(ending=True)
    else:
        with progress.ProgressLine() as shown:
            proposers.speak(proposer, shown.note)
            result = search.run(shown, ending=True)
    proposers.ended(proposer)
    return result


def _confirmation(bench: Bench, stack: ExitStack, plan: Plan, say: Callable[[str], None]) -> Confirmation | None:
    """The confirmation to come, its process getting ready beside the search; None without a GPU."""
    if bench.device is None:
        return None
    confirmation = stack.enter_context(Confirmation(bench, plan, say))
    confirmation.prepare()
    return confirmation


def _confirmed(
    bench: Bench,
    facts: TaskFacts,
    store: Store,
    result: Result,
    confirmation: Confirmation | None,
    say: Callable[[str], None],
) -> list[confirmed.Finding]:
    """The finalists by the confirmed protocol, best first; empty where nothing can be, or need be, confirmed."""
    if confirmation is None or result.interrupted:
        return []
    chosen = _finalists(bench, facts, store, result)
    if not chosen:
        return []
    plan = confirmation.plan = replace(
        confirmation.plan, level=confirmed.level_for(comparisons([f for f, _ in chosen]))
    )
    seed = Contestant(SEED, bench.seed, dict(facts.config))
    found: list[confirmed.Finding] = []
    try:
        ceilings = confirmation.known_ceilings(store)
        runs = {
            s.key: confirmation.shape(s, [seed, *(c for f, c in chosen if s.key in f.shapes)]) for s in facts.shapes
        }
        for finalist, one in chosen:
            own = [runs[shape] for shape in finalist.shapes]
            found.append(confirmed.finding(one, own, bench.device.name, ceilings, plan.level, finalist.champion))
            store.add_confirmation(facts, Structure(one.kernel, 0), one.config, found[-1], benches.versions())
    except WorkerError as error:
        say(f"the finalists could not be confirmed: {error}")
    except KeyboardInterrupt:
        say("interrupted while the finalists were being confirmed: `kernelsearch measure` does that later")
    return sorted(found, key=confirmed.rank)


def _finalists(bench: Bench, facts: TaskFacts, store: Store, result: Result) -> list[tuple[Finalist, Contestant]]:
    """What is to be confirmed, each under a name of its own: its digest's beginning, numbered where only the config differs."""
    structures, evaluation = store.structures(result.run.id), Evaluation(bench, tuple(s.key for s in facts.shapes))

    def accepted(trial: Trial) -> bool:
        return evaluation.verify(structures[trial.kernel].kernel, trial.config).accepted

    found: list[tuple[Finalist, Contestant]] = []
    for finalist in finalists(facts, bench.seed.digest, result.trials, accepted):
        same = sum(f.trial.kernel == finalist.trial.kernel for f, _ in found)
        name = finalist.trial.kernel[:8] + (f"-{same + 1}" if same else "")
        found.append(
            (finalist, Contestant(name, structures[finalist.trial.kernel].kernel, dict(finalist.trial.config)))
        )
    return found


class _Nobody:
    """The proposer for a seed that the gate refuses: nothing is rewritten."""

    def propose(self, request: Any, rng: Any) -> None:
        return None


def _unfinished(store: Store, facts: TaskFacts, options: Options) -> Run:
    for run in store.runs(facts.digest):
        if run.facts.strategy == options.strategy and run.facts.seed == options.seed:
            if run.finished is None or store.count(run.id) < options.trials:
                return run
    raise StoreError(
        f"{options.db} has no unfinished run of {facts.name} with strategy {options.strategy} and "
        f"seed {options.seed} to resume"
    )


def _next(options: Options) -> str:
    """Where the trials are, and the commands that look at them."""
    db = "" if options.db == Options().db else f" --db {shlex.quote(options.db)}"
    return f"stored in {options.db}; see: kernelsearch leaderboard{db}, kernelsearch lineage best{db}, kernelsearch show best{db}"


def _same(options: Options) -> str:
    """The options that a resumed run must repeat, as they would be typed."""
    parts = []
    for name in ("trials", "strategy", "proposer", "max_tokens", "max_usd", "target", "db", "seed", "window"):
        value = getattr(options, name)
        if value != getattr(Options(), name):
            parts.append(f"--{name.replace('_', '-')} {shlex.quote(str(value))}")
    parts += [f"--model {shlex.quote(s)}" for s in options.models]
    parts += ["--price {:g} {:g}".format(*options.price)] if options.price else []
    parts += [f"--shape {shlex.quote(s)}" for s in options.shapes]
    return "".join(f"{p} " for p in parts)
