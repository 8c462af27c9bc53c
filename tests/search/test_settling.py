"""A trial that was accepted, and is refused as a finalist when its search has ended, counts no more."""

import pytest

import simulated
from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.store import Store
from kernelsearch.report import leaderboard
from kernelsearch.search.settling import settle_finalists
from simulated_search import EXACT, make_search, story

SEED = Kernel.parse(simulated.task().seed).digest
RACE = Verdict(Word.RACE, "judge", "one run of many differs", "full")


def settle(store, result, refuses):
    """(The settled result, the finalists' digests, what was said); refuses says which trials are refused."""
    said, asked = [], []

    def verify(kernel, config):
        asked.append((kernel.digest, dict(config)))
        return RACE if refuses(kernel.digest) else Verdict(Word.ACCEPT, "judge", depth="full")

    settled, finalists = settle_finalists(simulated.task(), store, result, verify, said.append)
    assert len(asked) == len({str(one) for one in asked})  # each once, whatever is chosen again
    return settled, [c.kernel.digest for _, c in finalists], said


@pytest.mark.parametrize("name", ["evolve", "best_of_n"])
def test_a_best_that_is_refused_gives_way_to_the_next(name):
    store = Store.open_in_memory()
    result = make_search(store, name).run()
    wrong = result.best.kernel
    settled, finalists, said = settle(store, result, lambda digest: digest == wrong)
    stored = store.load_trials(1)
    assert settled.best.kernel != wrong and settled.best.accepted and wrong not in finalists
    assert settled.best == min((t for t in stored if t.accepted), key=lambda t: (t.score, t.number))
    refused = [t for t in stored if t.outcome.verdict.reason == RACE.reason]
    assert refused and all(t.kernel == wrong and t.score is None and not t.outcome.hints for t in refused)
    assert said[0] == f"trial {result.best.number} was accepted, and is refused now: reject-race, {RACE.reason}"
    assert len(said) == len(refused)
    assert settled.best.kernel == leaderboard.build_rows(store)[0]["kernel"]
    candidate = store.query("SELECT candidate FROM trial WHERE number = ?", [result.best.number])[0]["candidate"]
    assert next(store.load_evaluations(candidate))[2].verdict.word is Word.RACE
    longer = make_search(store, name, EXACT, trials=60, resume=store.load_run(1)).run()
    assert len(longer.trials) == 60 and story(longer.trials)[:40] == story(stored)


def test_what_a_busy_machine_may_have_decided_refuses_nothing():
    store = Store.open_in_memory()
    result = make_search(store).run()
    slow = Verdict(Word.TIMEOUT, "run", "took too long", "full")
    told = simulated.task(), store, result, lambda kernel, config: slow, lambda text: None
    before = store.load_trials(1)
    assert settle_finalists(*told) == (result, []) and store.load_trials(1) == before
