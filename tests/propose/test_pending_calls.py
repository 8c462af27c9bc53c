"""Models asked ahead: the search goes on, and resumed and replayed runs take answers in where the first did."""

import random
import threading
import time
from dataclasses import replace

import pytest
from scripted import Scripted, sampling
from searching import BUDGET, SEED, mix, searched, story, task

from kernelsearch.propose import engines
from kernelsearch.propose import mix as mix_module
from kernelsearch.propose.contract import Request
from kernelsearch.propose.engines import Reply
from kernelsearch.propose.engines.recorded_answers import RecordingEngine
from kernelsearch.propose.models.pending_calls import PendingCall
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


def test_where_typed_edits_are_used_up_the_search_waits_for_the_model(monkeypatch):
    engine, waited, plain = Threaded(), [], PendingCall.wait

    def wait(underway):
        waited.append(underway.reply.done())
        engine.go.set()
        plain(underway)

    monkeypatch.setattr(PendingCall, "wait", wait)
    proposer, _ = mix(engine, edits=Nothing())
    made = [asked(proposer, n) for n in range(1, 4)]
    assert any(m and m.edit == "model:scripted" for m in made)
    assert waited[0] is False and proposer.shared.ledger.calls[0].landed == proposer.shared.ledger.calls[0].number


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


@pytest.mark.slow
@pytest.mark.parametrize("alone", [False, True])
def test_a_resumed_run_takes_answers_in_where_the_unbroken_one_did(tmp_path, alone):
    whole, _ = mix(Late(2), alone=alone)
    with Store.open_in_memory() as store:
        unbroken, _ = searched(whole, store, BUDGET)
        calls = store.load_calls(1)
    late = [c for c in calls if c.landed > c.number]
    for stop in (late[0].landed, late[-1].number):
        with Store.open(tmp_path / f"{stop}.db") as store:
            early, _ = mix(Late(2), alone=alone)
            searched(early, store, stop)
            lost = early.models[0].underway
            again, _ = mix(Late(2), alone=alone)
            resumed, _ = searched(again, store, BUDGET, store.load_runs()[0])
            stored = store.load_calls(1)
        assert len(resumed.trials) == BUDGET
        if lost is None or lost.asked.number >= stop:  # else its answers died with the process
            assert story(resumed) == story(unbroken)
            assert [(c.number, c.landed, c.page, c.answers) for c in stored] == [
                (c.number, c.landed, c.page, c.answers) for c in calls
            ]
    assert any(c.number < stop <= c.landed for c in stored for stop in (late[0].landed,))


@pytest.mark.slow
@pytest.mark.parametrize("alone", [False, True])
def test_a_recorded_run_is_replayed_whatever_the_threads_did(tmp_path, alone):
    engine = Threaded()
    engine.go.set()
    recording, _ = mix(RecordingEngine(engine, str(tmp_path / "answers.jsonl")), alone=alone)
    with Store.open_in_memory() as store:
        first, _ = searched(recording, store, BUDGET)
        calls = store.load_calls(1)
    recording.close()
    replay = engines.open_engine(f"replay:{tmp_path / 'answers.jsonl'}")
    replay.label = "scripted"  # a kernel's edit names the engine
    replayed, _ = mix(replay, alone=alone)
    with Store.open_in_memory() as store:
        second, _ = searched(replayed, store, BUDGET)
        again = store.load_calls(1)
    assert story(second) == story(first)
    assert [(c.number, c.landed, c.page) for c in again] == [(c.number, c.landed, c.page) for c in calls]


class Local(Threaded):
    """An engine in this process: its answers are taken in three asks later, however fast it is."""

    after = 3

    def complete(self, ask):
        said = super().complete(ask)
        if self.slow:
            self.go.clear()
        return said


def local_search(monkeypatch, slow, alone):
    """A search with a local engine that answers at once, or not before the search stands still for it."""
    engine, plain, stood = Local(), PendingCall.wait, []
    engine.slow = slow
    if not slow:
        engine.go.set()

    def wait(underway):
        stood.append(underway.reply is not None and not underway.reply.done())
        engine.go.set()
        plain(underway)

    with monkeypatch.context() as patched, Store.open_in_memory() as store:
        patched.setattr(PendingCall, "wait", wait)
        patched.setattr(mix_module, "PATIENCE", 1e9)  # however long this machine really takes
        proposer, _ = mix(engine, alone=alone)
        result, _ = searched(proposer, store, BUDGET)
        engine.go.set()
        proposer.close()
        return story(result), [(c.number, c.landed, c.page, c.answers) for c in store.load_calls(1)], stood


@pytest.mark.slow
@pytest.mark.parametrize("alone", [False, True])
def test_a_run_with_an_engine_in_this_process_is_the_same_run_however_fast_it_answers(monkeypatch, alone):
    quick = local_search(monkeypatch, False, alone)
    slow = local_search(monkeypatch, True, alone)
    assert quick[:2] == slow[:2]
    late = [landed - number for number, landed, _, _ in quick[1]]
    assert late and (alone or min(late) >= 3)  # asks for no rewrite take nothing in
    assert all(slow[2])


def test_a_thread_that_computes_here_is_told_to_stop_and_does_not_outlive_its_engine():
    class Stopping(Local):
        slow = False

        def stop(self, ask):
            self.stopped = ask
            self.go.set()

        def close(self):
            self.open_calls = proposer.models[0].underway.reply.done()

    engine = Stopping()
    proposer, _ = mix(engine)
    begun(proposer)
    proposer.close()
    assert engine.stopped is engine.asks[0] and engine.open_calls is True


def test_answers_that_come_after_the_last_trial_are_paid_for_and_stored_and_silence_is_said():
    said, kept = [], []
    engine = Threaded()
    engine.trouble = "nothing answers at http://h"
    proposer, _ = mix(engine, said.append)
    proposer.shared.ledger.keep = kept.append
    number, _ = begun(proposer)
    proposer.end()
    assert kept == [] and said == [
        "model: scripted was still being asked when the search ended: nothing answers at http://h"
    ]
    engine.go.set()
    proposer.models[0].underway.reply.result(60)
    proposer.end()
    (call,) = kept
    assert call.number == number and call.answers and proposer.shared.ledger.calls == [call]
    proposer.end()
    assert len(kept) == 1


def test_a_failure_after_the_last_trial_is_said():
    said, engine = [], Threaded(lambda ask: engines.Failure("nothing answers at http://h", "busy"))
    proposer, _ = mix(engine, said.append)
    begun(proposer)
    engine.go.set()
    proposer.models[0].underway.reply.result(60)
    proposer.end()
    assert said == ["model: nothing answers at http://h"]


def test_an_engine_is_closed_after_its_last_answer():
    engine = Threaded()
    proposer, _ = mix(engine)
    begun(proposer)
    underway = proposer.models[0].underway
    proposer.close()
    assert not hasattr(engine, "closed")
    engine.go.set()
    underway.reply.result(60)
    deadline = time.monotonic() + 60
    while not hasattr(engine, "closed") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.closed


def test_an_engine_that_breaks_is_loud_and_the_search_goes_on(monkeypatch):
    said, shown = [], []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(args.exc_value))

    def broken(ask) -> Reply:
        raise RuntimeError("a bug of the engine")

    engine = Threaded(broken)
    engine.go.set()
    proposer, _ = mix(engine, said.append)
    with Store.open_in_memory() as store:
        result, _ = searched(proposer, store, BUDGET)
    assert len(result.trials) == BUDGET
    proposer.models[0].underway is None or proposer.models[0].underway.reply.result(60)
    assert all(str(e) == "a bug of the engine" for e in shown)
