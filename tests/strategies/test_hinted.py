"""Hints are evolve's prior over the edits; what the edits then gain overrules it."""

from dataclasses import replace

from kernelsearch.core.types import Hint, Proposal, ProposalKind, Trial
from kernelsearch.measure.hints.changes import format_suggestion
from kernelsearch.search import strategies
from kernelsearch.search.contract import Start
from made_outcomes import accept


def trial(number, kernel, score, words=(), edit=None, parents=("seed",)):
    kind = ProposalKind.REWRITE if number else ProposalKind.SEED
    hints = tuple(Hint("issue", {"x": 1.0}, format_suggestion(w, "why")) for w in words)
    proposal = Proposal(kind, parents if number else ())
    return Trial(number, proposal, kernel, {}, accept(score, hints=hints), score, edit)


def evolve(*trials):
    strategy = strategies.make("evolve", Start("seed", {"num_warps": (4,)}, {"num_warps": 4}))
    for one in trials:
        strategy.tell(one)
    return strategy


def test_without_hints_nothing_is_preferred():
    assert evolve(trial(0, "seed", 1.0)).weights() == {}


def test_a_suggested_edit_gets_better_odds():
    weights = evolve(trial(0, "seed", 1.0, ("align_rows", "num_warps", "none"))).weights()
    assert set(weights) == {"align_rows"} and weights["align_rows"] > 2


def test_the_runs_own_gains_overrule_the_hint():
    tried = [trial(n, f"k{n}", 1.2, (), "align_rows") for n in range(1, 6)]
    gained = [trial(n, f"g{n}", 0.8, (), "exp2") for n in range(6, 9)]
    weights = evolve(trial(0, "seed", 1.0, ("align_rows",)), *tried, *gained).weights()
    assert weights["align_rows"] < 1 < weights["exp2"]


def test_only_the_leading_kernels_hints_count():
    slow = [trial(n, f"k{n}", 2.0 + n, ("lane_accumulator",), "exp2") for n in range(1, 4)]
    fast = trial(9, "fast", 0.5, ("online",), "exp2")
    weights = evolve(trial(0, "seed", 1.0, ("align_rows",)), fast, *slow).weights()
    assert weights["online"] > 1 and weights["align_rows"] > 1 and "lane_accumulator" not in weights


def first_asks(strategy, count=30):
    return [strategy.ask(n) for n in range(1, count)]


def test_a_hint_is_tried_outright_on_the_kernel_that_it_is_about_and_not_twice():
    strategy = evolve(trial(0, "seed", 1.0, ("align_rows",)))
    asked = [p.edit for p in first_asks(strategy) if p.kind is ProposalKind.REWRITE]
    assert asked.count("align_rows") > len(asked) / 5
    strategy.tell(trial(1, "k1", 1.2, (), "align_rows"))
    assert "align_rows" not in [p.edit for p in first_asks(strategy) if p.parents == ("seed",)]


def test_where_hints_name_no_edit_the_seed_is_tuned_first():
    def tuned(*words):
        return sum(p.kind is ProposalKind.RETUNE for p in first_asks(evolve(trial(0, "seed", 1.0, words))))

    assert tuned("num_warps") > 20 > tuned("align_rows")


def test_what_a_hint_asked_for_gets_more_patience():
    strategy = evolve(
        trial(0, "seed", 1.0, ("align_rows",)),
        trial(1, "wanted", 1.4, (), "align_rows"),
        trial(2, "other", 1.4, (), "exp2"),
    )
    for number in range(3, 5):
        for kernel in ("wanted", "other"):
            strategy.tell(replace(trial(number, kernel, 1.4), config={"num_warps": number}))
    assert "wanted" in strategy.young and "other" not in strategy.young


def test_edits_that_gained_are_composed_on_a_kernel_that_lacks_them():
    gained = [trial(n, f"k{n}", 0.9 + n / 100, (), e) for n, e in enumerate(("exp2", "online", "reciprocal"), start=1)]
    strategy = evolve(trial(0, "seed", 1.0), *gained)
    composed = [p for p in map(strategy.ask, range(40, 140)) if p.edit and "+" in p.edit]
    assert composed and all(len(set(p.edit.split("+"))) > 1 for p in composed)
    own = {f"k{n}": e for n, e in enumerate(("exp2", "online", "reciprocal"), start=1)}
    assert all(own.get(p.parents[0]) not in p.edit.split("+") for p in composed)
