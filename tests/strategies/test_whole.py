"""Evolve and kernels that were written whole: how many trials they have before they are judged like any other."""

from dataclasses import replace

from test_hinted import evolve, trial

SEED = [trial(0, "seed", 1.0), trial(1, "seed", 0.8)]
SEED = [replace(t, config={"num_warps": n}) for t, n in zip(SEED, (4, 8), strict=True)]


def told(*scores, configs):
    tried = [trial(n, "whole", s, edit="kernel:x") for n, s in enumerate(scores, 2)]
    return evolve(*SEED, *(replace(t, config=c) for t, c in zip(tried, configs, strict=True)))


def count_tuned(strategy, asks=60):
    """Of the asks in the middle of a run those that tune the whole kernel, and their configs."""
    found = [
        p for n in range(40, 40 + asks) if (p := strategy.ask(n)).parents == ("whole",) and p.kind.value == "retune"
    ]
    return len(found), [p.config for p in found]


def test_one_with_its_parents_names_has_its_parents_best_config_second_and_is_judged_by_it():
    count, configs = count_tuned(told(1.5, configs=[{"num_warps": 4}]))
    assert count > 25 and configs.count({"num_warps": 8}) > 25
    count, _ = count_tuned(told(1.5, 1.4, configs=[{"num_warps": 4}, {"num_warps": 8}]))
    assert count < 15


def test_one_with_names_of_its_own_is_tuned_first():
    own = [{"OWN": n} for n in range(8)]
    for tried, tuned in ((1, True), (7, True), (8, False)):
        count, configs = count_tuned(told(*[1.5] * tried, configs=own[:tried]))
        assert (count > 25) == tuned and (not tuned or configs.count(None) > 25)
