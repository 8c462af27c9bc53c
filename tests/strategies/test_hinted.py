"""Hints are evolve's prior over the edits; what the edits then gain overrules it."""

from kernelsearch import strategies
from kernelsearch.measure.changes import suggestion
from kernelsearch.protocols import Start
from kernelsearch.types import (
    Evidence, Hint, Measurement, Outcome, Proposal, ProposalKind, ShapeTime, Trial, Verdict, Word,
)  # fmt: skip


def trial(number, kernel, score, words=(), edit=None, parents=("seed",)):
    kind = ProposalKind.REWRITE if number else ProposalKind.SEED
    measured = Measurement(Evidence.ESTIMATED, "h100", "p", (ShapeTime("timed:0", score),))
    hints = tuple(Hint("issue", {"x": 1.0}, suggestion(w, "why")) for w in words)
    outcome = Outcome(Verdict(Word.ACCEPT, "done"), measured, hints)
    return Trial(number, Proposal(kind, parents if number else ()), kernel, {}, outcome, score, edit)


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
    slow = [trial(n, f"k{n}", 2.0 + n, ("tile_loop",), "exp2") for n in range(1, 4)]
    fast = trial(9, "fast", 0.5, ("online",), "exp2")
    weights = evolve(trial(0, "seed", 1.0, ("align_rows",)), fast, *slow).weights()
    assert weights["online"] > 1 and weights["align_rows"] > 1 and "tile_loop" not in weights
