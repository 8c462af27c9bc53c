"""Models asked ahead: the search goes on meanwhile, and resumed and replayed runs take answers in where the first did."""

import random
import threading
from dataclasses import replace

import pytest
from scripted import Scripted, sampling
from searching import BUDGET, SEED, mix, searched, story, task

from kernelsearch.propose import engines
from kernelsearch.propose.engines import Reply
from kernelsearch.propose.engines.recorded_answers import Recording
from kernelsearch.protocols import Request
from kernelsearch.record.store import Store


class Late(Scripted):
    """Answers at once, and says that its answers were taken in some asks later, as a recorded run does."""

    ahead = instant = True

    def __init__(self, lag):
        super().__init__(sampling)
        self.lag = lag

    def complete(self, ask):
        return replace(super().complete(ask), lag=self.lag)


class Threaded(Scripted):
    """Thinks on the search's thread pool until it is let go."""

    ahead = True

    def __init__(self, answer=sampling):
        super().__init__(answer)
        self.go, self.threads = threading.Event(), set()

    def complete(self, ask):
        self.threads.add(threading.get_ident())
        assert self.go.wait(60)
        return super().complete(ask)


def asked(proposer, number, **fields):
    return proposer.propose(Request(SEED, task(), number=number, **fields), random.Random(number))


def begun(proposer, first=1):
    """Asks until a model's call is under way; the ask at which it was begun."""
    for number in range(first, first + 60):
        made = asked(proposer, number)
        if proposer.models[0].underway:
            return number, made
        assert made.edit != "model:scripted"
    raise AssertionError("the model was never asked")


def test_typed_edits_go_on_while_a_model_thinks_and_its_answer_is_the_next_to_be_taken():
    engine = Threaded()
    proposer, _ = mix(engine)
    number, made = begun(proposer)
    assert ":" not in made.edit
    meanwhile = [asked(proposer, n).edit for n in range(number + 1, number + 6)]
    assert not any(":" in edit for edit in meanwhile) and len(proposer.shared.ledger.calls) == 0
    engine.go.set()
    proposer.models[0].underway.reply.result(60)
    assert asked(proposer, number + 6).edit == "model:scripted"
    (call,) = proposer.shared.ledger.calls
    assert (call.number, call.landed, call.waited) == (number, number + 6, 0.0)
    assert engine.threads and threading.get_ident() not in engine.threads


def test_where_typed_edits_are_used_up_the_search_waits_for_the_model():
    engine = Threaded()
    proposer, _ = mix(engine, edits=Nothing())
    threading.Timer(0.05, engine.go.set).start()
    made = [asked(proposer, n) for n in range(1, 4)]
    assert any(m and m.edit == "model:scripted" for m in made)
    assert proposer.shared.ledger.calls[0].waited > 0


class Nothing:
    def propose(self, request, rng):
        return None


def test_alone_a_model_is_waited_for_and_asked_again_before_it_is_needed():
    engine = Threaded()
    engine.go.set()
    proposer, _ = mix(engine, alone=True)
    seen, made = set(), []
    for number in range(1, 7):
        made.append(asked(proposer, number, seen=frozenset(seen)))
        seen.add(made[-1].kernel.digest)
    fruitless = [c for c in proposer.shared.ledger.calls if not any(a.kernel for a in c.answers)]
    assert sum(m.edit != "model:scripted" for m in made) <= len(fruitless) < 3
    ahead = [c for c in proposer.shared.ledger.calls if c.landed > c.number]
    assert ahead


@pytest.mark.parametrize("alone", [False, True])
def test_a_resumed_run_takes_answers_in_where_the_unbroken_one_did(tmp_path, alone):
    whole, engine = mix(Late(2), alone=alone)
    with Store.in_memory() as store:
        unbroken, _ = searched(whole, store, BUDGET)
        calls = store.calls(1)
    late = [c for c in calls if c.landed > c.number]
    for stop in (late[0].landed, late[-1].number):
        with Store.open(tmp_path / f"{stop}.db") as store:
            early, _ = mix(Late(2), alone=alone)
            searched(early, store, stop)
            lost = early.models[0].underway
            again, _ = mix(Late(2), alone=alone)
            resumed, _ = searched(again, store, BUDGET, store.runs()[0])
            stored = store.calls(1)
        assert len(resumed.trials) == BUDGET
        if lost is None or lost.asked.number >= stop:  # else its answers died with the process
            assert story(resumed) == story(unbroken)
            assert [(c.number, c.landed, c.page, c.answers) for c in stored] == [
                (c.number, c.landed, c.page, c.answers) for c in calls
            ]
    assert any(c.number < stop <= c.landed for c in stored for stop in (late[0].landed,))


@pytest.mark.parametrize("alone", [False, True])
def test_a_recorded_run_is_replayed_whatever_the_threads_did(tmp_path, alone):
    engine = Threaded()
    engine.go.set()
    recording, _ = mix(Recording(engine, str(tmp_path / "answers.jsonl")), alone=alone)
    with Store.in_memory() as store:
        first, _ = searched(recording, store, BUDGET)
        calls = store.calls(1)
    recording.close()
    replay = engines.make(f"replay:{tmp_path / 'answers.jsonl'}")
    replay.label = "scripted"  # a kernel's edit names the engine
    replayed, _ = mix(replay, alone=alone)
    with Store.in_memory() as store:
        second, _ = searched(replayed, store, BUDGET)
        again = store.calls(1)
    assert story(second) == story(first)
    assert [(c.number, c.landed, c.page) for c in again] == [(c.number, c.landed, c.page) for c in calls]


def test_an_engine_is_closed_after_its_last_answer():
    engine = Threaded()
    proposer, _ = mix(engine)
    begun(proposer)
    underway = proposer.models[0].underway
    proposer.close()
    assert not hasattr(engine, "closed")
    engine.go.set()
    underway.reply.result(60)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.daemon:
            thread.join(60)
    assert engine.closed


def test_an_engine_that_breaks_is_loud_and_the_search_goes_on(monkeypatch):
    said, shown = [], []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(args.exc_value))

    def broken(ask) -> Reply:
        raise RuntimeError("a bug of the engine")

    engine = Threaded(broken)
    engine.go.set()
    proposer, _ = mix(engine, said.append)
    with Store.in_memory() as store:
        result, _ = searched(proposer, store, BUDGET)
    assert len(result.trials) == BUDGET
    proposer.models[0].underway is None or proposer.models[0].underway.reply.result(60)
    assert all(str(e) == "a bug of the engine" for e in shown)
