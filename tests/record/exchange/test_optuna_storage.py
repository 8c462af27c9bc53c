"""A run and its Optuna study hold the same trials, however often the study is brought up to date."""

import pytest

import simulated
from kernelsearch.record.exchange import optuna_storage
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from simulated_search import LAND, make_search


@pytest.fixture
def store():
    with Store.open_in_memory() as store:
        make_search(store, evaluator=simulated.Failing(simulated.Simulated(LAND), 0.2)).run()
        yield store


def test_every_trial_is_there_once_with_its_config_value_and_verdict(store, tmp_path):
    url = f"sqlite:///{tmp_path}/o.db"
    ((run, study, added),) = optuna_storage.write(store, url)
    stored = store.load_trials(run.id)
    assert added == len(stored) == 40
    for trial, frozen in zip(stored, study.get_trials(), strict=True):
        assert frozen.number == trial.number and frozen.user_attrs["verdict"] == trial.outcome.verdict.word.value
        assert frozen.value == trial.score and (frozen.state.name == "FAIL") == (trial.score is None)
        assert {n: v for n, v in frozen.params.items() if n != "structure"} == dict(trial.config)
    assert [count for *_, count in optuna_storage.write(store, url)] == [0]
    best = min((t for t in stored if t.score is not None), key=lambda t: t.score)
    assert study.best_value == best.score


def test_it_may_live_in_the_databases_own_file(tmp_path):
    with Store.open(tmp_path / "k.db") as store:
        task = simulated.task()
        store.add_run(task, RunFacts("tpe", "", 0, 1, 1))
        ((_, study, added),) = optuna_storage.write(store, f"sqlite:///{tmp_path}/k.db")
        assert added == 0 and study.get_trials() == [] and len(store.load_runs()) == 1
