"""What a tuner promises: nothing twice, nothing impossible, its own start first, the same answers for the same past."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelsearch import tune
from kernelsearch.core.types import Outcome, Proposal, ProposalKind, Trial, Verdict, Word, config_key
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import Space
from kernelsearch.tune import Tuner
from made_outcomes import accept

KERNEL = Kernel.parse(
    """
import triton
import triton.language as tl

@triton.jit
def k(x, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
"""
)
SMALL = {"BM": (16, 32, 64), "num_warps": (2, 3, 4)}
LARGE = {
    "BM": (16, 32, 64, 128, 256),
    "BN": (16, 32, 64, 128, 256),
    "BK": (16, 32, 64),
    "GROUP": (1, 4, 8),
    "num_warps": (1, 2, 4, 8),
    "num_stages": (1, 2, 3, 4, 5),
}
START = {"BM": 32, "BN": 64, "num_warps": 4}


def told(number, config, score):
    refused = Outcome(Verdict(Word.COMPILE, "compile", "too much shared memory"))
    outcome = refused if score is None else accept()
    return Trial(number, Proposal(ProposalKind.RETUNE, (KERNEL.digest,)), KERNEL.digest, config, outcome, score)


def tuners(space, start=START, seed=0, **kwargs):
    made = tune.Tuners(seed, **kwargs)
    made.add(KERNEL, space, start)
    return made


def drive(made, score, trials, window=4, sampler="tpe"):
    """Asks with up to window in flight, tells in ask order; all configs asked."""
    asked, flight = [], []
    for number in range(trials):
        if len(flight) == window:
            made.tell(told(*flight.pop(0)))
        config = made.ask(KERNEL.digest, number, sampler)
        if config is None:
            break
        asked.append(config)
        flight.append((number, config, score(config)))
    for one in flight:
        made.tell(told(*one))
    return asked


@pytest.mark.parametrize("sampler", tune.SAMPLERS)
def test_a_space_is_used_up_once_each_and_then_none(sampler):
    made = tuners(SMALL)
    asked = drive(made, lambda c: c["BM"] * 0.01, 50, sampler=sampler)
    assert len(asked) == 6 and len({config_key(c) for c in asked}) == 6  # num_warps=3 is impossible
    assert all(c["num_warps"] != 3 and c["BN"] == 64 for c in asked)
    assert made.ask(KERNEL.digest, 99, "random") is None and made.ask(KERNEL.digest, 99, "tpe") is None


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(tune.SAMPLERS), max_size=30), st.integers(1, 6), st.integers(0, 3))
def test_never_twice_never_impossible_and_repeatable(samplers, window, seed):
    def run():
        made, flight, asked = tuners(SMALL | {"GROUP": (1, 4, 8)}, START | {"GROUP": 4}, seed), [], []
        for number, sampler in enumerate(samplers):
            if len(flight) == window:
                made.tell(told(*flight.pop(0)))
            config = made.ask(KERNEL.digest, number, sampler)
            if config is not None:
                asked.append(config)
                flight.append((number, config, None if config["BM"] == 16 else config["BM"] / 64))
        return asked

    asked = run()
    keys = [config_key(c) for c in asked]
    assert len(keys) == len(set(keys)) and not any(c["num_warps"] == 3 for c in asked)
    assert len(asked) == min(len(samplers), 18)
    assert run() == asked


def test_the_kernels_own_config_comes_first_even_from_outside_the_space():
    assert tuners(SMALL).ask(KERNEL.digest, 0) == START
    outside = {"BM": 48, "BN": 64, "num_warps": 4}
    assert tuners(SMALL, outside).ask(KERNEL.digest, 0) == outside


def test_an_impossible_start_gives_way_to_the_nearest_possible_config():
    got = tuners({"BM": (64, 128), "num_warps": (1, 2, 4, 8)}, {"BM": 128, "BN": 128, "num_warps": 1}).ask(
        KERNEL.digest, 0
    )
    assert got in ({"BM": 64, "BN": 128, "num_warps": 2}, {"BM": 128, "BN": 128, "num_warps": 4})


def test_an_injected_predicate_is_kept_and_a_wholly_impossible_space_gives_none():
    made = tuners(SMALL, possible=lambda kernel, config: False)
    assert made.ask(KERNEL.digest, 0) is None
    made = tuners(SMALL, possible=lambda kernel, config: config["BM"] == 16)
    assert {c["BM"] for c in drive(made, lambda c: 1.0, 20)} == {16}


def test_a_reserved_config_is_not_asked():
    made = tuners(SMALL)
    assert made.reserve(KERNEL.digest, START)
    assert not made.reserve(KERNEL.digest, START)
    assert config_key(START) not in {config_key(c) for c in drive(made, lambda c: 1.0, 20)}


def test_neighbours_are_one_step_from_the_best():
    made = tuners(LARGE, {"BM": 64, "BN": 64, "BK": 32, "GROUP": 4, "num_warps": 4, "num_stages": 3})
    start = made.ask(KERNEL.digest, 0)
    made.tell(told(0, start, 1.0))
    for number in range(1, 9):
        config = made.ask(KERNEL.digest, number, "neighbour")
        assert sum(config[n] != start[n] for n in LARGE) == 1
        made.tell(told(number, config, 2.0))


def bowl(config):
    """A smooth landscape with one best config and a forbidden corner."""
    if config["BM"] * config["BN"] * config["num_stages"] > 90_000:
        return None
    target = {"BM": 128, "BN": 64, "BK": 32, "GROUP": 8, "num_warps": 8, "num_stages": 4}
    return 1.0 + sum(abs(LARGE[n].index(config[n]) - LARGE[n].index(v)) ** 1.5 * 0.1 for n, v in target.items())


def best_after(sampler, trials, seeds):
    start = {n: v[0] for n, v in LARGE.items()}
    runs = [[bowl(c) for c in drive(tuners(LARGE, start, s), bowl, trials, sampler=sampler)] for s in seeds]
    return sum(min(x for x in run if x is not None) for run in runs) / len(runs), sum(r.count(None) for r in runs)


def test_tpe_learns_where_random_does_not_and_moves_away_from_failures():
    tpe, failures = best_after("tpe", 60, range(3))
    random_, random_failures = best_after("random", 60, range(3))
    assert tpe < random_
    assert failures < random_failures


def test_spaces_and_starts_follow_the_names_that_still_exist():
    child = KERNEL.with_changes(space={"BK": (64,)}, config={"BK": 64, "num_warps": 8})
    inherited = {
        "BM": (1, 2),
        "SPLIT": (1, 2),
        "BK": (16, 32),
        "num_warps": (4, 8),
        "k.num_stages": (1,),
        "gone.BM": (1,),
    }
    space = tune.space_of(child, inherited)
    assert space == {"BM": (1, 2), "BK": (64,), "num_warps": (4, 8), "k.num_stages": (1,)}
    start = tune.start_of(child, {"BM": 2, "SPLIT": 2, "num_warps": 4, "BN": 32}, space)
    assert start == {"BM": 2, "BK": 64, "num_warps": 8, "k.num_stages": 1, "BN": 32}


def test_a_kernel_in_gluon_inherits_no_stages():
    gluon = Kernel.parse((Path(__file__).parents[1] / "gluon" / "softmax_kernel.py").read_text())
    assert tune.space_of(gluon.with_changes(space={}), {"num_warps": (4, 8), "num_stages": (1, 2)}) == {
        "num_warps": (4, 8)
    }


def test_a_start_keeps_what_tuning_has_found_over_values_that_a_rewrite_only_repeats():
    child = KERNEL.with_changes(
        space={"BM": (16, 32), "BK": (8, 16), "ROWS": (1, 2), "num_warps": (4, 8)},
        config={"BM": 64, "BK": 8, "ROWS": 2, "num_warps": 4},
    )
    written_over, tuned = (
        {"BM": 64, "BK": 32, "ROWS": 2, "num_warps": 4},
        {"BM": 128, "BK": 64, "ROWS": 1, "num_warps": 8},
    )
    # BK is the rewrite's own; ROWS lives on only in its launch spec; BM must fit the rewrite's space.
    assert tune.start_of(child, tuned, child.space, written_over) == {"BM": 32, "BK": 8, "ROWS": 1, "num_warps": 8}


@pytest.mark.parametrize(
    ("values", "value", "got"),
    [((), 3, 3), ((1, 2), 2, 2), ((16, 64), 40, 64), ((16, 64), 20, 16), ((16, 64), "n", 16), ((True, False), 3, True)],
)
def test_the_nearest_value(values, value, got):
    assert tune.nearest_value(values, value) is got or tune.nearest_value(values, value) == got


@pytest.mark.parametrize("sampler", ["surrogate", "tpe"])
def test_a_forgotten_model_is_made_again_and_suggests_the_same(sampler):
    def asked(forgetting):
        tuner, rng = (
            Tuner(Space({"a": tuple(range(12)), "b": (1, 2, 4, 8)}), {"a": 0, "b": 1}, lambda config: True),
            random.Random(3),
        )
        found = []
        for number in range(40):
            if forgetting and number % 3 == 0:
                tuner.forget()
            config = tuner.ask(random.Random(number), "neighbour" if number % 4 == 0 else sampler)
            found.append(config)
            if number >= 2:  # two configs are in flight all the time
                late = found[number - 2]
                tuner.tell(late, None if late["a"] == 5 else 1.0 + abs(late["a"] - 7) / late["b"] + rng.random() / 100)
        return found

    assert asked(True) == asked(False)
