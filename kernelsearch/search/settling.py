"""Judges the finalists of a search at full depth; one that is refused has no time any more, and another is chosen.

A finalist may have passed `screen` alone, and a race may show in one run of many: what is fastest but wrong must not
stay the best.
"""

from __future__ import annotations

from dataclasses import replace

from kernelsearch.core.slow_steps import Say, report_progress
from kernelsearch.core.types import TaskFacts, Trial, Verdict
from kernelsearch.measure.timing.finalists import Finalist, choose_finalists
from kernelsearch.record.store import Store
from kernelsearch.record.stored_trials import StoredTrials
from kernelsearch.search.facts import Result
from kernelsearch.search.history import RunState
from kernelsearch.trial.confirmation import Contestant
from kernelsearch.trial.evaluator import TaskEvaluator
from kernelsearch.trial.rejection import is_by_chance

MOST_REFUSED = 8
"""Times that the finalists are chosen again because some were refused."""


def settle_finalists(
    task: TaskFacts, store: Store, result: Result, evaluation: TaskEvaluator, say: Say, again: bool = True
) -> tuple[Result, list[tuple[Finalist, Contestant]]]:
    """The result without the trials that are refused, and the finalists.

    again: those that have a verdict at full depth are verified too. A finalist's name is its digest's beginning,
    numbered where only the config differs.
    """
    structures, verdicts = store.load_structures(result.run.id), dict[int, Verdict]()

    def accepted(trial: Trial) -> bool:
        if trial.number not in verdicts:
            kernel, verdict = structures[trial.kernel].kernel, trial.outcome.verdict
            screened = verdict.depth != "full"
            with report_progress(say, f"judging trial {trial.number} at full depth"):
                if screened:
                    verdict = evaluation.complete(kernel, trial.config, trial.outcome).verdict
                if again and verdict.accepted:
                    verdict = evaluation.verify(kernel, trial.config)
            verdicts[trial.number] = verdict
            if screened and verdict.accepted:
                store.prove_trial(result.run, trial, verdict)
        return verdicts[trial.number].accepted

    finalists: tuple[Finalist, ...] = ()
    for _ in range(MOST_REFUSED):
        finalists = choose_finalists([s.key for s in task.shapes], result.trials, accepted, result.run.facts.kernels)
        refused = {n: v for n, v in verdicts.items() if not v.accepted and not is_by_chance(v)}
        now = [trial for n in refused if (trial := result.trials[n]).accepted]
        if not now:
            break
        for trial in now:
            verdict = refused[trial.number]
            store.refuse_trial(result.run, trial, verdict)
            say(f"trial {trial.number} was accepted, and is refused now: {verdict.word.value}, {verdict.reason}")
        result = _tell_again(task, store, result)
    result = _tell_again(task, store, result) if verdicts else result  # some were proved since
    chosen: list[tuple[Finalist, Contestant]] = []
    for finalist in finalists:
        trial = finalist.trial
        same = sum(f.trial.kernel == trial.kernel for f, _ in chosen)
        name = trial.kernel[:8] + (f"-{same + 1}" if same else "")
        chosen.append((finalist, Contestant(name, structures[trial.kernel].kernel, dict(trial.config))))
    return result, chosen


def _tell_again(task: TaskFacts, store: Store, result: Result) -> Result:
    """The result by what the store has now."""
    state, trials = RunState(task), StoredTrials(store, result.run.id, len(result.trials))
    for trial in trials:
        state.tell(trial)
    return replace(result, trials=trials, best=state.best, per_shape=state.per_shape)
