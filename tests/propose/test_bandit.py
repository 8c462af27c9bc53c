"""The bandit: who gains is asked more, who costs is asked less, nobody is forgotten."""

import random
from collections import Counter

import pytest

from kernelsearch.propose.bandit import BanditParams, Cost, Pull, compute_standings, rank_arms


def played(gains, costs=None, rounds=200, seed=0, lag=8):
    """How often each arm is asked when arm a gains by gains[a](rng); results come `lag` asks later."""
    rng, pulls, costly, asked = random.Random(seed), [], [], []
    for number in range(rounds):
        seen = [p for p in pulls if p.number <= number - lag]
        arm = rank_arms(compute_standings(list(gains), seen, costly, number), rng)[0]
        pulls.append(Pull(number, arm, gains[arm](rng)))
        if costs and costs.get(arm):
            costly.append(Cost(number, arm, costs[arm]))
        asked.append(arm)
    return asked


def rare(rng):
    return 0.1 if rng.random() < 0.1 else 0.0


@pytest.mark.parametrize("seed", range(6))
def test_an_arm_that_never_gains_gets_a_small_share(seed):
    asked = played({"edits": rare, "useless": lambda rng: 0.0}, seed=seed)
    assert asked.count("useless") < 0.3 * len(asked)


@pytest.mark.parametrize("seed", range(6))
def test_an_arm_that_always_gains_is_found_out_and_used(seed):
    asked = played({"edits": rare, "knows": lambda rng: 0.2}, seed=seed)
    assert "knows" in asked[:30] and asked[30:130].count("knows") > 50


def test_a_useless_arm_with_many_pulls_does_not_keep_a_hardly_tried_one_from_being_asked():
    pulls = [Pull(n, "useless", 0.02 if n < 2 else 0.0) for n in range(30)] + [Pull(30, "hardly", 0.0)]
    standings = compute_standings(["useless", "hardly"], pulls, [], 31)
    first = Counter(rank_arms(standings, random.Random(n))[0] for n in range(400))
    assert first["hardly"] > 120


def test_of_equal_gains_the_cheaper_one_is_asked_more():
    counts = Counter()
    for seed in range(5):
        counts.update(played({"cheap": rare, "dear": rare}, {"dear": 4.0}, seed=seed))
    assert counts["cheap"] > 2 * counts["dear"] > 0


def test_a_gain_that_took_many_trials_is_worth_less_than_one_that_took_one():
    quick, slow = [Pull(n, "a", 0.1) for n in range(8)], [Pull(0, "b", 0.1, 8.0, 8)]
    a, b = compute_standings(["a", "b"], [*quick, *slow], [], 8)
    assert a.cost == pytest.approx(b.cost) == 1.0 and a.reward > 5 * b.reward > 0
    large = compute_standings(["b"], [Pull(0, "b", 0.8, 8.0, 8)], [], 0)[0]
    assert large.reward == pytest.approx(4.0) and large.pulls == 8  # a gain of 2.2x in eight trials, half a reward each


def test_what_was_good_long_ago_counts_less():
    old = [Pull(n, "a", 0.2) for n in range(20)]
    early, late = (compute_standings(["a"], old, [], now)[0] for now in (20, 400))
    assert late.reward < 0.1 * early.reward


def test_a_gain_within_noise_is_no_reward_and_a_large_one_is_one():
    assert [Pull(0, "a", g).reward for g in (-1.0, 0.0, 0.004, 0.1, 9.0)] == [0.0, 0.0, 0.0, 0.5, 1.0]


def test_the_order_is_a_function_of_what_was_told_and_the_draw():
    found = compute_standings(["a", "b", "c"], [Pull(1, "a", 0.1)], [Cost(1, "b", 2.0)], 5, BanditParams())
    assert rank_arms(found, random.Random(3)) == rank_arms(found, random.Random(3))
    assert sorted(rank_arms(found, random.Random(4))) == ["a", "b", "c"]
