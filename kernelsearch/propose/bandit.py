"""A cost-aware bandit: chooses who proposes next, by gain and cost so far.

Discounted Thompson sampling (Thompson, 1933; discounted for arms that change: Raj and Kalyani, 2017) over the mean
reward of a pull, divided by its mean cost, as in budgeted bandits (Xia et al., 2015). The prior is the same for all
arms and says what is usual: one that sinks with a useless arm's many pulls keeps the others from being tried.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FULL_GAIN = 0.2
"""The log of a speed-up over the parent that counts as a whole reward."""
NOTICED = 0.005
"""A gain below this is noise, or due to the tuner."""


@dataclass(frozen=True)
class Pull:
    """One proposal of an arm: the ask, the log gain over the parent (0 if refused), the cost in trials.

    trials are those by which its gain is judged: the gain is shared among them.
    """

    number: int
    arm: str
    gain: float
    cost: float = 1.0
    trials: int = 1

    @property
    def reward(self) -> float:
        """The reward of each of its trials, from 0 to 1."""
        return min(1.0, self.gain / self.trials / FULL_GAIN) if self.gain >= NOTICED else 0.0


@dataclass(frozen=True)
class Cost:
    """A cost of an arm beside the trials of its pulls, such as a model's call, in trials."""

    number: int
    arm: str
    trials: float


@dataclass(frozen=True)
class BanditParams:
    """discount: weight of a pull, per ask since. prior: strength of the prior, in pulls; usual: its mean."""

    discount: float = 0.992
    prior: float = 1.5
    usual: float = 0.06


DEFAULTS = BanditParams()


@dataclass(frozen=True)
class Standing:
    """The state of an arm: discounted trials and rewards, and the mean cost of one in units of a usual trial."""

    arm: str
    pulls: float
    reward: float
    cost: float


def compute_standings(
    arms: Sequence[str], pulls: Iterable[Pull], costs: Iterable[Cost], now: int, params: BanditParams = DEFAULTS
) -> list[Standing]:
    """The standing of each of these arms at ask `now`; pulls and costs of other arms are ignored."""
    count, reward, cost = (dict.fromkeys(arms, 0.0) for _ in range(3))
    for pull in pulls:
        if pull.arm in count:
            weight = params.discount ** max(0, now - pull.number)
            count[pull.arm] += weight * pull.trials
            reward[pull.arm] += weight * pull.trials * pull.reward
            cost[pull.arm] += weight * pull.cost
    for extra in costs:
        if extra.arm in count:
            cost[extra.arm] += params.discount ** max(0, now - extra.number) * extra.trials
    prior = params.prior
    return [Standing(a, count[a], reward[a], (prior + cost[a]) / (prior + count[a])) for a in arms]


def rank_arms(every: Sequence[Standing], rng: random.Random, params: BanditParams = DEFAULTS) -> list[str]:
    """The arms, best first, by a draw from the posterior of their reward over their cost."""
    drawn = []
    for s in every:
        a = params.prior * params.usual + s.reward
        b = params.prior * (1 - params.usual) + max(0.0, s.pulls - s.reward)
        drawn.append((rng.betavariate(a, b) / max(1e-3, s.cost), s.arm))
    return [arm for _, arm in sorted(drawn, key=lambda d: -d[0])]
