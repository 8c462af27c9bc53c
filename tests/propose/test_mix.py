"""The mix inside a search: who is asked, what is stored, and that a resumed run asks and pays for nothing twice."""

import random
from dataclasses import replace

import pytest
from scripted import trial
from searching import BUDGET, SEED, mix, searched, story, task

from kernelsearch.core.model_calls import AnswerRecord, ModelCall
from kernelsearch.propose import mix as mix_module
from kernelsearch.propose.contract import Request
from kernelsearch.propose.edits import EDITS
from kernelsearch.propose.engines import Failure
from kernelsearch.propose.mix import EDITS as EDITS_ARM
from kernelsearch.propose.models.spending import Budget
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store


def test_a_search_with_a_model_stores_its_calls_and_says_what_it_spent():
    proposer, engine = mix()
    with Store.open_in_memory() as store:
        result, progress = searched(proposer, store, BUDGET)
        calls = store.load_calls(result.run.id)
        by_kernel = {s.kernel.digest: s for s in store.load_structures(result.run.id).values()}
    assert len(calls) == len(engine.asks) > 0 and calls == proposer.shared.ledger.calls
    made = [s for s in by_kernel.values() if s.edit and s.edit.startswith(("model:", "repair:"))]
    assert made and all(any(a.kernel == s.kernel.digest for c in calls for a in c.answers) for s in made)
    assert {s.edit for s in by_kernel.values()} - {None} > {"model:scripted"}  # typed edits were asked too
    assert progress[-1].spent.endswith("tokens") and progress[0].spent == ""


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 11])
def test_a_resumed_run_is_the_unbroken_one_and_asks_for_nothing_twice(tmp_path, stop):
    whole, engine = mix()
    with Store.open_in_memory() as store:
        unbroken, _ = searched(whole, store, BUDGET)
    with Store.open(tmp_path / "a.db") as store:
        first, early = mix()
        searched(first, store, stop)
        kept = store.load_calls(1)
        again, late = mix()
        resumed, _ = searched(again, store, BUDGET, store.load_runs()[0])
        calls = store.load_calls(1)
    assert story(resumed) == story(unbroken)
    assert len(early.asks) + len(late.asks) == len(engine.asks) == len(calls)
    assert calls[: len(kept)] == kept
    assert [(c.number, c.prompt, c.idea, c.answers) for c in calls] == [
        (c.number, c.prompt, c.idea, c.answers) for c in whole.shared.ledger.calls
    ]


def test_the_search_survives_a_model_that_only_fails():
    said = []
    proposer, engine = mix(lambda ask: Failure("500, out of order", "busy"), said.append)
    with Store.open_in_memory() as store:
        result, _ = searched(proposer, store, BUDGET)
        failures = {c.failure for c in store.load_calls(result.run.id)}
    assert len(result.trials) == BUDGET and failures == {"500, out of order"} and len(engine.asks) < 12
    assert [s for s in said if "out of order" in s] == ["model: 500, out of order"]


@pytest.mark.slow
def test_alone_the_model_is_asked_first_and_typed_edits_only_where_it_gives_nothing():
    proposer, _ = mix(alone=True)
    with Store.open_in_memory() as store:
        result, _ = searched(proposer, store, BUDGET)
        edits = [s.edit for s in store.load_structures(result.run.id).values() if s.edit]
    assert edits.count("model:scripted") + edits.count("repair:scripted") >= 0.7 * len(edits)
    silent, _ = mix(lambda ask: "nonsense", alone=True)
    with Store.open_in_memory() as store:
        result, _ = searched(silent, store, BUDGET)
        assert any(s.edit for s in store.load_structures(result.run.id).values())


def test_a_model_that_had_no_turn_is_named_at_the_end():
    proposer, _ = mix()
    assert proposer.list_failures() == ["scripted was not asked in these 0 trials: more trials leave it turns"]
    with Store.open_in_memory() as store:
        searched(proposer, store, BUDGET)
    assert proposer.list_failures() == []


def test_an_edit_that_is_asked_for_by_name_is_an_arm_of_its_own_and_a_model_is_asked_to_do_the_same():
    proposer, engine = mix()
    made = [
        proposer.propose(Request(SEED, task(), edit="lane_accumulator", number=n), random.Random(n))
        for n in range(1, 30)
    ]
    assert {m.edit for m in made} == {"lane_accumulator", "model:scripted"}
    (summary,) = (e.summary for e in EDITS if e.name == "lane_accumulator")
    assert engine.asks and all(f"Try this: {summary}." in ask.page for ask in engine.asks)


def test_typed_edits_are_one_arm_drawn_or_named():
    proposer, _ = mix()
    named = trial(1, "k1", 0.5, "lane_accumulator")
    named = replace(named, proposal=replace(named.proposal, edit="lane_accumulator"))
    proposer.tell(trial(0, SEED.digest, 1.0), SEED, None)
    proposer.tell(named, SEED, SEED.digest)
    proposer.tell(trial(2, "k2", 0.9, "exp2"), SEED, SEED.digest)
    assert [p.arm for p in proposer._pulls()] == [EDITS_ARM, EDITS_ARM]


def test_cost_is_in_trials_of_tuning_in_seconds_of_the_budget_and_in_dollars_where_a_price_is_known():
    proposer, _ = mix()
    model = proposer.models[0]
    model.name = "kernel:x"
    proposer.tell(trial(0, SEED.digest, 1.0), SEED, None)
    proposer.tell(trial(1, "e", 0.9, "exp2"), SEED, SEED.digest)
    for number in range(2, 13):  # at configs that its parent has not had
        tuned = replace(trial(number, "w", 1.5 - number / 10, "kernel:x"), config={"BLOCK": number})
        proposer.tell(tuned, SEED, SEED.digest)
    whole, edit = sorted(proposer._pulls(), key=lambda p: -p.trials)
    assert (whole.trials, whole.cost, edit.trials, edit.cost) == (8, 8, 1, 1) and whole.gain > 0.5
    proposer.limits = replace(proposer.limits, trials=100, seconds=50.0)  # each took one second
    assert [p.cost for p in sorted(proposer._pulls(), key=lambda p: -p.trials)] == [16.0, 2.0]
    call = ModelCall(3, "kernel:x", "e", SEED.digest, "i", "a", "s", "p", "g", usd=0.5, waited=5.0)
    assert proposer._in_trials(call) == pytest.approx(10.0 + 0.5 / mix_module.USD_A_TRIAL)
    proposer.shared.ledger.budget = Budget(max_usd=10.0)
    assert proposer._in_trials(call) == pytest.approx(10.0 + 100 * 0.5 / 10.0)


def test_a_call_comes_back_from_the_store_as_it_went_in():
    answers = (
        AnswerRecord("LINE 3", "stop", 9, "kernel", "", "k"),
        AnswerRecord("x", "length", 2, "stopped", "cut short"),
    )
    common = ("openai:u#m", SEED.digest, "id", "do it", "sys", "page", "g")
    call = ModelCall(3, "model:x", *common, answers, 5, 1, 7, 0.5, 0.01)
    failed = ModelCall(4, "repair:x", *common, seconds=1.0, failure="500", kind="busy", follows="k")
    with Store.open_in_memory() as store:
        run = store.add_run(task(), RunFacts("evolve"))
        from kernelsearch.record.rows import Structure

        store.add_trial(run, trial(0, SEED.digest, 1.0), Structure(SEED, 0))
        store.add_call(run, call)
        store.add_call(run, failed)
        assert store.load_calls(run.id) == [call, failed]
        assert len(store.query("SELECT * FROM prompt")) == 1
