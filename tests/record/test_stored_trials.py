"""A run's stored trials as a sequence: equal to what was put in, whatever the page."""

import pytest

from kernelsearch.record import stored_trials
from kernelsearch.record.rows import Structure
from kernelsearch.record.stored_trials import StoredTrials


@pytest.fixture
def stored(store, task, facts, seed, make, monkeypatch):
    """A run of ten trials, read four at a time."""
    monkeypatch.setattr(stored_trials, "PAGE", 4)
    run = store.add_run(task, facts)
    put = [make.accepted(n, seed, {"BLOCK": n}, 1.0 + n, (seed.digest,) if n else ()) for n in range(10)]
    for n, trial in enumerate(put):
        store.add_trial(run, trial, None if n else Structure(seed, 0))
    return store, run.id, put


def test_it_is_the_list_of_the_trials(stored):
    store, run, put = stored
    trials = StoredTrials(store, run, store.count_trials(run))
    assert len(trials) == 10 and list(trials) == put and trials == tuple(put) and put == list(trials)
    assert [trials[n] for n in (9, 0, 4, 3, -1)] == [put[n] for n in (9, 0, 4, 3, -1)]
    assert trials[2:7] == tuple(put[2:7]) and trials != put[:9]
    assert store.load_trials(run, 3, 2) == put[3:5]


def test_it_ends_where_it_was_told_to(stored):
    store, run, put = stored
    trials = StoredTrials(store, run, 6)
    assert list(trials) == put[:6] and trials[-1] == put[5]
    with pytest.raises(IndexError, match="has 6 trials"):
        trials[6]


def test_one_page_at_a_time_is_held(stored):
    store, run, put = stored
    trials, asked = StoredTrials(store, run, 10), []
    read, store.load_trials = store.load_trials, lambda *of: asked.append(of) or read(*of)
    assert [trials[n] for n in range(10)] == put
    assert asked == [(run, 0, 4), (run, 4, 4), (run, 8, 4)]
