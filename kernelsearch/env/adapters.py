"""The environment in the forms that trainers take: TRL's reward functions, `verifiers`' tasksets, OpenEnv's servers.

Each trainer's package is imported by the function that needs it. Rows are those of a dataset's `pages`: `task_file`,
`parent`, `form`, `system`, `page`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kernelsearch.core.errors import TaskError
from kernelsearch.env.environment import Environment, Question
from kernelsearch.env.levels import FASTER, LEVELS, SLOWER, Reward

Value = Callable[[Reward], float]


def _value_of(reward: Reward) -> float:
    return reward.value


def ignore_speed(reward: Reward) -> float:
    """The whole credit for any kernel that is right and new, as trainers reward it that know no times."""
    return 1.0 if reward.level in (SLOWER, FASTER) else reward.value


def make_trl_reward(
    environment: Environment, value: Value = _value_of, end: int | None = None
) -> Callable[..., list[float]]:
    """A reward function of TRL's trainers; the data has the columns `task_file`, `parent` and `form`.

    end is the tokenizer's token for the end of an answer: one without it was cut short. None takes all to be whole.

    Beside the rewards it logs the share of answers at each level, and each answer's level and reason.
    """

    def kernelsearch_reward(
        completions: Sequence[Any],
        task_file: Sequence[str],
        parent: Sequence[str],
        form: Sequence[str],
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **_: Any,
    ) -> list[float]:
        answers = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
        questions = list(map(Question, task_file, parent, form))
        rewards = environment.judge_all(questions, answers)
        if end is not None and completion_ids is not None:
            for place, ids in enumerate(completion_ids):
                if not ids or ids[-1] != end:
                    rewards[place] = environment.judge(questions[place], answers[place], stopped=False)
        if log_metric is not None:
            for level in LEVELS:
                log_metric(f"level/{level}", sum(r.level == level for r in rewards) / len(rewards))
        if log_extra is not None:
            log_extra("level", [r.level for r in rewards])
            log_extra("reason", [r.reason for r in rewards])
        return [value(r) for r in rewards]

    return kernelsearch_reward


def make_verifiers_taskset(environment: Environment, rows: Sequence[Mapping[str, str]]) -> Any:
    """A taskset of `verifiers` (v1) with one task a page, each rewarded by this environment. Raises TaskError."""
    import verifiers.v1 as vf

    _refuse_none(rows)

    class KernelPage(vf.TaskData):
        """A page with the question that it asks."""

        task_file: str
        parent: str
        form: str

    class KernelTask(vf.Task[KernelPage, vf.State, vf.TaskConfig]):
        """One page; the reward is the referee's."""

        @vf.reward
        async def kernelsearch(self, trace: Any) -> float:
            question = Question(self.data.task_file, self.data.parent, self.data.form)
            reward = await asyncio.to_thread(environment.judge, question, trace.last_reply, not trace.is_truncated)
            trace.info["kernelsearch"] = {"level": reward.level, "reason": reward.reason, "evidence": reward.evidence}
            return reward.value

    class KernelTaskset(vf.Taskset[KernelTask, vf.TasksetConfig]):
        """The pages of a dataset."""

        def load(self) -> Iterator[KernelTask]:
            for row in rows:
                asked = {name: row[name] for name in ("task_file", "parent", "form")}
                yield KernelTask(KernelPage(prompt=row["page"], system_prompt=row["system"], **asked), self.config.task)

    return KernelTaskset(vf.TasksetConfig())


def make_openenv(environment: Environment, rows: Sequence[Mapping[str, str]]) -> Any:
    """An environment of OpenEnv, one answer an episode: `reset(seed)` shows that row's page, `step` gives the reward.

    A server of it: `create_app(type(made), made.action, made.observation)`. Raises TaskError.
    """
    from openenv.core.env_server import interfaces, types

    _refuse_none(rows)

    class KernelAnswer(types.Action):
        """An answer's text."""

        text: str

    class KernelObservation(types.Observation):
        """The page, and after the answer the level at which it ended, and why."""

        system: str = ""
        page: str = ""
        level: str = ""
        reason: str = ""

    class KernelEnvironment(interfaces.Environment):
        """Pages in the order of their rows, or by seed."""

        action, observation = KernelAnswer, KernelObservation

        def __init__(self) -> None:
            super().__init__()
            self.number, self.steps = -1, 0

        def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> KernelObservation:
            self.number, self.steps = (self.number + 1 if seed is None else seed) % len(rows), 0
            row = rows[self.number]
            return KernelObservation(system=row["system"], page=row["page"])

        def step(self, action: KernelAnswer, timeout_s: float | None = None, **_: Any) -> KernelObservation:
            if self.number < 0:
                raise TaskError("an answer before the page: reset the environment first")
            self.steps += 1
            row = rows[self.number]
            reward = environment.judge(Question(row["task_file"], row["parent"], row["form"]), action.text)
            return KernelObservation(done=True, reward=reward.value, level=reward.level, reason=reward.reason)

        @property
        def state(self) -> Any:
            return types.State(episode_id=str(self.number), step_count=self.steps)

    return KernelEnvironment()


def _refuse_none(rows: Sequence[Mapping[str, str]]) -> None:
    if not rows:
        raise TaskError("no pages: give the rows of a dataset's `pages`")
