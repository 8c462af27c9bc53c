"""Answers to pages, judged: from the reader of the form to the referee at full depth and the clock.

With a GPU times are measured; without one they are the static model's estimates, and each reward says which.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from kernelsearch.core.errors import SpaceError, TaskError
from kernelsearch.env.judging import Parent, compare_with_config, judge_kernel, judge_parent
from kernelsearch.env.levels import (
    COMPILES,
    GATE,
    GRAMMAR,
    NOTHING,
    RIGHT,
    SLOWER,
    STOPPED,
    Reward,
    reward_end,
    reward_time,
)
from kernelsearch.propose.engines.base import ANSWERS, CUT, STOP, Sample
from kernelsearch.propose.grammar import Answer, NoGrammar, WholeKernel
from kernelsearch.propose.models.answers import SEEN, Form, check_answer
from kernelsearch.propose.models.prompt import PromptDevice
from kernelsearch.propose.models.shared import Models
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.trial.estimate import explain_extrapolation, find_unseen
from kernelsearch.trial.reuse import ReuseTerms, ReusingEvaluator
from kernelsearch.verify import gate

OPEN = 3
"""Tasks whose workers are kept; the one that was used least lately is closed first."""
_ENDS = {"stopped": STOPPED, "grammar": GRAMMAR, "parses": GRAMMAR, "names": GRAMMAR, "gate": GATE, SEEN: NOTHING}
"""The level of each stage of the local checks."""


@dataclass(frozen=True)
class Question:
    """What an answer is about: a task's file, a kernel file of it ("": the task's own), and the form of answers."""

    task_file: str
    parent: str = ""
    form: str = "edit"

    def __post_init__(self) -> None:
        if self.form not in ANSWERS[:2]:
            raise TaskError(f"the form of answers is kernel or edit, not {self.form!r}")


@dataclass
class _OpenTask:
    """A task with its workers, and the parents that were judged."""

    bench: Bench
    evaluation: Evaluation
    reusing: ReusingEvaluator
    models: Models
    parents: dict[str, Parent] = field(default_factory=dict)

    def parent_of(self, question: Question) -> Parent:
        if question.parent not in self.parents:
            judged = judge_parent(self.evaluation, self.evaluation.facts, question.parent or None)
            self.parents[question.parent] = judged
        return self.parents[question.parent]

    def form_of(self, question: Question) -> Form | NoGrammar:
        kernel, facts = self.parent_of(question).kernel, self.evaluation.facts
        return WholeKernel.of_task(kernel, facts) if question.form == "kernel" else self.models.grammar(kernel, facts)


class Environment(AbstractContextManager):
    """Judges answers to questions; a context manager, because it keeps workers.

    target is the machine; limit_s is how long one run of a candidate may take; say prints progress of slow steps.
    """

    def __init__(
        self,
        target: str = "auto",
        limit_s: float | None = None,
        say: Callable[[str], None] | None = None,
        open_bench: Callable[..., Bench] = Bench.open,
    ) -> None:
        self.target, self.limit_s, self.say, self.open_bench = target, limit_s, say, open_bench
        self._open: OrderedDict[str, _OpenTask] = OrderedDict()
        self._known: dict[tuple[Question, str, bool], Reward] = {}
        self._one_call = threading.RLock()  # trainers ask from many threads; a call has its own

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.popitem()[1].bench.close()

    def judge(self, question: Question, answer: str, stopped: bool = True) -> Reward:
        """The reward of one answer; stopped: it was not cut short. Raises TaskError for a task that cannot be read."""
        return self.judge_all([question], [answer], stopped)[0]

    def judge_all(self, questions: Sequence[Question], answers: Sequence[str], stopped: bool = True) -> list[Reward]:
        """The reward of each answer to the question beside it; equal ones are judged once."""
        keys = [(q, a, stopped) for q, a in zip(questions, answers, strict=True)]
        with self._one_call:
            new = [key for key in dict.fromkeys(keys) if key not in self._known]
            for task in dict.fromkeys(q.task_file for q, _, _ in new):
                of_task = [key for key in new if key[0].task_file == task]
                self._known |= zip(of_task, self._judge_task(self._open_task(task), of_task))
        return [self._known[key] for key in keys]

    def remember(self, question: Question, answer: str, reward: Reward) -> None:
        """Takes a reward from the record: this answer is not judged again."""
        self._known[question, answer, True] = reward

    def make_form(self, question: Question) -> Form | NoGrammar:
        """What answers to a question are read as, with the grammar that an engine may be held to."""
        with self._one_call:
            return self._open_task(question.task_file).form_of(question)

    def _open_task(self, path: str) -> _OpenTask:
        if path not in self._open:
            while len(self._open) >= OPEN:
                self._open.popitem(last=False)[1].bench.close()
            bench = self.open_bench(path, self.target, compiled=default_folder(), say=self.say)
            evaluation = Evaluation(bench, limit_s=self.limit_s)
            reusing = ReusingEvaluator(evaluation, ReuseTerms.of(evaluation, bench.facts))
            models = Models(gate.check, PromptDevice(bench.where, bench.target))
            self._open[path] = _OpenTask(bench, evaluation, reusing, models)
        self._open.move_to_end(path)
        return self._open[path]

    def _judge_task(self, task: _OpenTask, keys: Iterable[tuple[Question, str, bool]]) -> list[Reward]:
        keys = list(keys)
        for question, _, _ in keys:  # parents and their forms first, in this thread
            task.form_of(question)
        with ThreadPoolExecutor(2 + len(os.sched_getaffinity(0))) as pool:
            return list(pool.map(lambda key: self._judge_one(task, *key), keys))

    def _judge_one(self, task: _OpenTask, question: Question, text: str, stopped: bool) -> Reward:
        parent, form = task.parent_of(question), task.form_of(question)
        if not parent.outcome.verdict.accepted:
            return reward_end(NOTHING, f"the parent itself is refused: {parent.outcome.verdict.reason}")
        if isinstance(form, NoGrammar):
            return reward_end(NOTHING, f"no edit is possible: {form}")
        checked = check_answer(Sample(text, STOP if stopped else CUT), form, gate.check)
        if not checked.good or checked.answer is None:
            return reward_end(_ENDS[checked.stage], checked.reason)
        return _reward_kernel(task, parent, checked.answer)


def _reward_kernel(task: _OpenTask, parent: Parent, answer: Answer) -> Reward:
    """The reward of a well-formed answer: the referee judges at full depth what seems to be faster."""
    kernel = answer.kernel
    try:
        config = parent.config_for(kernel, answer.edit, task.evaluation.facts)
    except SpaceError as error:
        return reward_end(COMPILES, str(error), kernel.digest)
    judged = judge_kernel(task.evaluation, parent, kernel, config)
    if judged.outcome is None:
        return reward_end(COMPILES if judged.refused == "compiles" else RIGHT, judged.reason, kernel.digest)
    ratio = compare_with_config(task.reusing, parent, judged.outcome, kernel, config, task.evaluation.facts)
    measured, before = judged.outcome.measurement, parent.outcome.measurement
    assert measured is not None and before is not None  # both were accepted
    reward = reward_time(ratio, measured.evidence.value, explain_extrapolation(measured), kernel.digest)
    if unseen := find_unseen(measured) or find_unseen(before):
        return reward_end(SLOWER, f"no estimate can be compared: {unseen}", kernel.digest)
    if reward.level == SLOWER:
        return reward
    verdict = task.evaluation.complete(kernel, config, judged.outcome).verdict
    if not verdict.accepted:
        return reward_end(RIGHT, f"{verdict.word.value}: {verdict.reason}", kernel.digest)
    return reward
