"""A trial that was accepted, and is refused as a finalist when its search has ended, counts no more."""

from dataclasses import replace

import pytest

import simulated
from kernelsearch.core.types import Verdict, Word, config_key
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.store import Store
from kernelsearch.record.stored_trials import StoredTrials
from kernelsearch.report import leaderboard
from kernelsearch.search.settling import settle_finalists
from simulated_search import EXACT, make_search, story

SEED = Kernel.parse(simulated.task().seed).digest
RACE = Verdict(Word.RACE, "judge", "one run of many differs", "full")

FULL = Verdict(Word.ACCEPT, "judge", depth="full", detail={"claims": {}})


class Referee:
    """Judges again by `verify`; complete gives its verdict too, and both note which trials they were asked for."""

    def __init__(self, verify):
        self.verify, self.completed = verify, []

    def complete(self, kernel, config, outcome):
        self.completed.append((kernel.digest, config_key(config)))
        return replace(outcome, verdict=FULL)


def settle(store, result, refuses):
    """(The settled result, the finalists' digests, what was said); refuses says which trials are refused."""
    said, asked = [], []

    def verify(kernel, config):
        asked.append((kernel.digest, dict(config)))
        return RACE if refuses(kernel.digest) else FULL

    settled, finalists = settle_finalists(simulated.task(), store, result, Referee(verify), said.append)
    assert len(asked) == len({str(one) for one in asked})  # each once, whatever is chosen again
    return settled, [c.kernel.digest for _, c in finalists], said


@pytest.mark.parametrize("name, seed", [("evolve", 0), ("best_of_n", 0), ("evolve", 1), ("evolve", 2), ("evolve", 3)])
def test_a_best_that_is_refused_gives_way_to_the_next(name, seed):
    store = Store.open_in_memory()
    result = make_search(store, name, seed=seed).run()
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
    longer = make_search(store, name, EXACT, trials=60, seed=seed, resume=store.load_run(1)).run()
    assert len(longer.trials) == 60 and story(longer.trials)[:40] == story(stored)


def test_what_a_busy_machine_may_have_decided_refuses_nothing():
    store = Store.open_in_memory()
    result = make_search(store).run()
    slow = Verdict(Word.TIMEOUT, "run", "took too long", "full")
    told = simulated.task(), store, result, Referee(lambda kernel, config: slow), lambda text: None
    before = store.load_trials(1)
    assert settle_finalists(*told) == (result, []) and store.load_trials(1) == before


@pytest.mark.parametrize("again", [True, False])
def test_what_serves_a_shape_has_a_verdict_at_full_depth_which_is_stored(again):
    """Each that passed `screen` alone is judged once; what has been judged is verified again where that is asked."""
    store, verified = Store.open_in_memory(), []
    result = make_search(store).run()
    with store.database.conn as rows:
        rows.execute("UPDATE trial SET depth = 'screen', detail = '{}' WHERE number % 2 = 0")
    result = replace(result, trials=StoredTrials(store, 1, 40))
    referee = Referee(lambda kernel, config: verified.append((kernel.digest, config_key(config))) or FULL)
    before, said = store.load_trials(1), []
    _, finalists = settle_finalists(simulated.task(), store, result, referee, said.append, again)
    serving = {(f.trial.kernel, config_key(f.trial.config)) for f, _ in finalists}
    screened = {(t.kernel, config_key(t.config)) for t in before if t.outcome.verdict.depth == "screen"}
    assert serving & screened and set(referee.completed) == serving & screened
    assert set(verified) == (serving if again else set())
    for old, new in zip(before, store.load_trials(1)):
        proved = old.outcome.verdict.depth == "screen" and (old.kernel, config_key(old.config)) in referee.completed
        assert new == (replace(old, outcome=replace(old.outcome, verdict=FULL)) if proved else old)
