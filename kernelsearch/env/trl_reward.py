"""The environment as a reward function of TRL's trainers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
) -> Callable[..., list[float | None]]:
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
    ) -> list[float | None]:
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
