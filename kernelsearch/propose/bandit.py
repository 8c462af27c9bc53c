"""A cost-aware bandit: who proposes next, by what each has gained for what it cost.

Discounted Thompson sampling (Thompson, 1933; discounted for arms that change: Raj and Kalyani, 2017) over the mean
reward of a pull, divided by its mean cost, as in budgeted bandits (Xia et al., 2015). An arm that was not tried yet is
expected to be as good as the others are on the whole, so that finding out costs little where little is to be had.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FULL_GAIN = 0.2
"""The log of a speed-up over the parent that counts as a whole reward."""
NOTICED = 0.005
"""A gain below this is noise, or the tuner's."""


@dataclass(frozen=True)
class Pull:
    """One proposal of an arm: the ask, the log gain over the parent (0 for a refused one), what it cost in trials."""

    number: int
    arm: str
    gain: float
    cost: float = 1.0

    @property
    def reward(self) -> float:
        return min(1.0, self.gain / FULL_GAIN) if self.gain >= NOTICED else 0.0


@dataclass(frozen=True)
class Cost:
    """What an arm cost beside the trials of its pulls, such as a model's call, in trials."""

    number: int
    arm: str
    trials: float


@dataclass(frozen=True)
class Params:
    """discount: how much a pull counts for each ask that has gone by. prior: what is known of an untried arm, in pulls.

    hope: the prior's mean over the pooled mean of all arms; ignorance: that mean before anything is known.
    """

    discount: float = 0.992
    prior: float = 1.5
    hope: float = 1.0
    ignorance: float = 0.1


@dataclass(frozen=True)
class Standing:
    """What is known of an arm now: discounted pulls and rewards, and the mean cost of a pull in trials."""

    arm: str
    pulls: float
    reward: float
    cost: float


def standings(
    arms: Sequence[str], pulls: Iterable[Pull], costs: Iterable[Cost], now: int, params: Params = Params()
) -> list[Standing]:
    """Each arm's standing at ask `now`; what is known of arms that are not asked for is left out."""
    count, reward, cost = (dict.fromkeys(arms, 0.0) for _ in range(3))
    for pull in pulls:
        if pull.arm in count:
            weight = params.discount ** max(0, now - pull.number)
            count[pull.arm] += weight
            reward[pull.arm] += weight * pull.reward
            cost[pull.arm] += weight * pull.cost
    for extra in costs:
        if extra.arm in count:
            cost[extra.arm] += params.discount ** max(0, now - extra.number) * extra.trials
    prior = params.prior
    return [Standing(a, count[a], reward[a], (prior + cost[a]) / (prior + count[a])) for a in arms]


def ranked(found: Sequence[Standing], rng: random.Random, params: Params = Params()) -> list[str]:
    """The arms, the one whose turn it is first: a draw from what is believed of its reward, over its cost."""
    pulls, rewards = sum(s.pulls for s in found), sum(s.reward for s in found)
    pooled = (params.prior * params.ignorance + rewards) / (params.prior + pulls)
    mean = min(0.9, max(0.005, params.hope * pooled))
    drawn = []
    for s in found:
        a = params.prior * mean + s.reward
        b = params.prior * (1 - mean) + max(0.0, s.pulls - s.reward)
        drawn.append((rng.betavariate(a, b) / max(1e-3, s.cost), s.arm))
    return [arm for _, arm in sorted(drawn, key=lambda d: -d[0])]
