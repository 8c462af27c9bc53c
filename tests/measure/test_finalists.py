"""Who is handed to the confirmed protocol: of one shape the best structures, of several a table, the seed never."""

from dataclasses import replace

import pytest

import simulated
from kernelsearch.core.types import Proposal, ProposalKind, Trial
from kernelsearch.measure.timing.by_shape import LOOKED_AT
from kernelsearch.measure.timing.finalists import OVERALL, choose_finalists, count_comparisons
from kernelsearch.record.rows import KERNELS
from made_outcomes import accept

SEED = "5eed"


def keys(shapes=3):
    return [f"timed:{i}" for i in range(shapes)]


def trial(number, kernel, times, config=None, abandoned=False):
    """A trial with these times; every time of the seed is 100 us."""
    score = 1.0
    for t in times:
        score *= (t / 100.0 if len(times) == 1 else min(1.0, t / 100.0)) ** (1 / len(times))
    config = dict(simulated.CONFIG) if config is None else config
    return Trial(number, Proposal(ProposalKind.SEED), kernel, config, accept(*times, abandoned=abandoned), score)


def chosen(trials, shapes=3, accepted=lambda t: True):
    found = choose_finalists(keys(shapes), [trial(0, SEED, [100.0] * shapes), *trials], accepted)
    return [(f.trial.kernel, f.shapes, f.champion) for f in found]


WHOLE = ("timed:0", "timed:1", "timed:2")


def test_the_first_of_a_table_runs_everywhere_and_the_others_where_they_serve():
    found = chosen([trial(1, "a", (90, 90, 101)), trial(2, "b", (95, 95, 95)), trial(3, "c", (150, 150, 80))])
    assert found == [("c", WHOLE, False), ("a", ("timed:0", "timed:1"), True)]


def test_what_serves_a_wide_shape_alone_is_found_though_it_loses_at_all_others():
    slow = trial(2, "wide", [300] * 10 + [7])
    assert [kernel for kernel, *_ in chosen([trial(1, "a", [95] * 11), slow], 11)] == ["wide", "a"]


def test_of_equal_kernels_the_table_has_one():
    assert chosen([trial(i, f"k{i}", (80 + i / 10, 80, 80)) for i in range(6)]) == [("k0", WHOLE, False)]


def test_a_shape_that_was_not_timed_is_served_by_another():
    known = trial(2, "b", (150, 150, 80))
    times = known.outcome.measurement.times[2:]
    partial = replace(
        known, outcome=replace(known.outcome, measurement=replace(known.outcome.measurement, times=times))
    )
    assert chosen([trial(1, "a", (60, 60, 95)), partial]) == [("a", WHOLE, False), ("b", ("timed:2",), True)]


def test_one_champion_of_two_shapes_is_one_finalist():
    assert chosen([trial(1, "a", (60, 99, 99)), trial(2, "c", (190, 80, 80))]) == [
        ("a", WHOLE, False), ("c", ("timed:1", "timed:2"), True),
    ]  # fmt: skip


def test_a_champion_may_be_a_finalists_own_kernel_with_another_config():
    other = {"BLOCK": 512}
    trials = [trial(0, SEED, [100] * 3), trial(1, "a", (60, 60, 99)), trial(2, "a", (120, 120, 70), other)]
    found = choose_finalists(keys(), trials, lambda t: True)
    assert [(f.trial.kernel, dict(f.trial.config), f.champion) for f in found] == [
        ("a", dict(simulated.CONFIG), False), ("a", other, True),
    ]  # fmt: skip


def test_what_is_ahead_by_less_than_a_percent_is_no_champion():
    assert chosen([trial(1, "a", (90, 90, 90)), trial(2, "b", (130, 130, 89.2))]) == [("a", WHOLE, False)]
    assert chosen([trial(1, "b", (130, 130, 99.5))]) == []  # nor is what the seed all but equals


def test_a_single_shape_has_no_champions():
    one = ("timed:0",)
    assert chosen([trial(1, "a", (90,)), trial(2, "b", (95,))], 1) == [("a", one, False), ("b", one, False)]


def test_where_nothing_gains_overall_what_gains_most_somewhere_runs_everywhere():
    found = chosen([trial(1, "a", (80, 130, 130)), trial(2, "b", (190, 190, 70))])
    assert sorted(found) == [("a", ("timed:0",), True), ("b", WHOLE, False)]


def test_the_seed_with_its_own_config_is_a_baseline_but_retuned_it_may_win():
    assert chosen([]) == []
    trials = [trial(0, SEED, [100] * 3), trial(1, SEED, [90] * 3, {"BLOCK": 512})]
    found = choose_finalists(keys(), trials, lambda t: True)
    assert [(f.trial.kernel, f.trial.number) for f in found] == [(SEED, 1)]


def test_of_kernels_that_gain_next_to_nothing_one_is_confirmed():
    near = [trial(i, f"k{i}", [99.2 + i / 10]) for i in range(5)]
    assert chosen(near, 1) == [("k0", ("timed:0",), False)]
    assert [kernel for kernel, *_ in chosen([trial(9, "w", [80]), *near, trial(8, "v", [98])], 1)] == ["w", "v"]


@pytest.mark.parametrize("kernels", [1, KERNELS, 9])
def test_the_number_of_finalists_and_of_full_verdicts_is_bounded(kernels):
    many = [trial(i, f"k{i}", [500 if s != i % 12 else 50 - i for s in range(12)]) for i in range(1, 40)]
    seed, asked = trial(0, SEED, [100] * 12), []
    found = choose_finalists(keys(12), [seed, *many], lambda t: not asked.append(t), kernels)
    assert len(found) == len(asked) == kernels and sum(not f.champion for f in found) == 1
    alike = [trial(i, f"k{i}", [90 + i]) for i in range(1, 9)]
    assert len(chosen(alike, 1)) == OVERALL
    refused = []
    assert chosen(many, 12, lambda t: bool(refused.append(t))) == []
    assert len(refused) == LOOKED_AT


def test_rejected_and_abandoned_candidates_are_passed_over():
    trials = [trial(1, "a", (90, 90, 90)), trial(2, "b", (120, 120, 60)), trial(3, "c", (120, 120, 70)),
              trial(4, "d", (10, 10, 10), abandoned=True)]  # fmt: skip
    expected = [("c", WHOLE, False), ("a", ("timed:0", "timed:1"), True)]
    assert chosen(trials, accepted=lambda t: t.kernel != "b") == expected


@pytest.mark.parametrize(("trials", "count"), [
    ([trial(1, "a", (90, 90, 90))], 4),  # three shapes and their mean
    ([trial(1, "a", (90, 90, 90)), trial(2, "b", (95, 95, 95)), trial(3, "c", (150, 150, 80))], 5),
])  # fmt: skip
def test_every_interval_that_is_looked_at_is_counted(trials, count):
    trials = [trial(0, SEED, [100] * 3), *trials]
    assert count_comparisons(choose_finalists(keys(), trials, lambda t: True)) == count


def test_of_one_shape_only_the_finalists_are_counted():
    trials = [trial(0, SEED, [100]), trial(1, "a", [90]), trial(2, "b", [95])]
    assert count_comparisons(choose_finalists(keys(1), trials, lambda t: True)) == 2
