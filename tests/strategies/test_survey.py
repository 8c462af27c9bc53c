"""Evolve tries each edit on the seed, keeps doors open, and spends nothing on machine code that it knows."""

from dataclasses import replace

from test_hinted import trial

from kernelsearch.core.types import Proposal, ProposalKind
from kernelsearch.search import strategies
from kernelsearch.search.contract import Start

EDITS = ("align_rows", "online", "peel_tail", "exp2")


def evolve(*trials):
    strategy = strategies.make("evolve", Start("seed", {"num_warps": (4,)}, {"num_warps": 4}, list_edits=lambda: EDITS))
    for one in trials:
        strategy.tell(one)
    return strategy


def rewritten(number, kernel, score, edit, asked, parent="seed", work=""):
    made = trial(number, kernel, score, (), edit, (parent,))
    return replace(
        made,
        proposal=Proposal(ProposalKind.REWRITE, (parent,), edit=asked),
        outcome=replace(made.outcome, work=work),
    )


def asked_of_seed(strategy, first=1, last=60):
    return [p.edit for n in range(first, last) if (p := strategy.ask(n)).edit and p.parents == ("seed",)]


def test_each_edit_is_tried_on_the_seed_and_none_twice():
    strategy, number = evolve(trial(0, "seed", 1.0)), 1
    while (left := [e for e in asked_of_seed(strategy, number, number + 60) if e in EDITS]) and number < 20:
        strategy.tell(rewritten(number, f"k{number}", 1.1, left[0], left[0]))
        number += 1
    assert number == 1 + len(EDITS)


def test_asks_that_are_in_flight_together_try_different_edits():
    together = asked_of_seed(evolve(trial(0, "seed", 1.0)), 1, 9)
    assert len(set(together)) >= 3


def test_the_edits_that_gain_most_on_other_tasks_are_tried_first():
    gains = dict.fromkeys(EDITS, 0.0) | {"exp2": 0.3, "online": 0.1}
    many = tuple(f"other{n}" for n in range(12))
    start = Start("seed", {"num_warps": (4,)}, {"num_warps": 4}, list_edits=lambda: many + EDITS, usual_gains=gains)
    strategy, order = strategies.make("evolve", start), []
    strategy.tell(trial(0, "seed", 1.0))
    for number in range(1, 200):
        asked = strategy.ask(number)
        if asked.edit in many + EDITS and asked.parents == ("seed",) and asked.edit not in order:
            order.append(asked.edit)
            strategy.tell(rewritten(number, f"k{number}", 1.1, asked.edit, asked.edit))
    assert max(order.index("exp2"), order.index("online")) < 6 and len(order) == 16, order
    assert strategy.weights()["exp2"] > strategy.weights()["online"] > strategy.weights()["peel_tail"]


def test_an_edit_whose_turn_a_model_took_is_tried_next():
    for edit in EDITS:
        strategy = evolve(trial(0, "seed", 1.0), rewritten(1, "whole", 0.5, "kernel:m", edit))
        assert {e for e in asked_of_seed(strategy, 40) if e in EDITS} == {edit}
        strategy.tell(rewritten(2, "child", 0.9, edit, edit))
        others = {e for e in asked_of_seed(strategy, 40) if e in EDITS}
        assert others and edit not in others


def test_an_edit_that_a_good_kernel_does_not_take_is_put_in_front_of_its_own_edits():
    strategy = evolve(
        trial(0, "seed", 1.0),
        rewritten(1, "aligned", 0.8, "align_rows", "align_rows"),
        rewritten(2, "peeled", 0.5, "peel_tail", "peel_tail"),
    )
    assert "align_rows+peel_tail" not in asked_of_seed(strategy)
    refused = trial(3, "peeled", 0.5, parents=("peeled",))  # it was asked for, and there was nothing but a retune
    strategy.tell(replace(refused, proposal=Proposal(ProposalKind.REWRITE, ("peeled",), edit="align_rows")))
    assert "align_rows+peel_tail" in asked_of_seed(strategy)
    strategy.tell(rewritten(4, "both", 0.45, "align_rows+peel_tail", "align_rows+peel_tail"))
    assert "align_rows+peel_tail" not in asked_of_seed(strategy)


def test_a_kernel_with_known_machine_code_is_neither_tuned_nor_a_parent():
    def others(work):
        seed = replace(trial(0, "seed", 1.0), outcome=replace(trial(0, "seed", 1.0).outcome, work="a"))
        strategy = evolve(seed, rewritten(1, "child", 0.999, "exp2", "exp2", work=work))
        return [p for n in range(40, 100) if "child" in (p := strategy.ask(n)).parents]

    assert others("b")
    assert not others("a")
