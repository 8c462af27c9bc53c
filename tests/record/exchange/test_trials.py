"""Every trial goes out, once, with its verdict in the words of the format."""

import csv
import io
import json

import pytest

import simulated
from kernelsearch.record.exchange import trial_dump, tuner_files
from kernelsearch.record.store import Store
from simulated_search import LAND, make_search


@pytest.fixture
def store():
    with Store.open_in_memory() as store:
        make_search(store, "random_walk", simulated.Failing(simulated.Simulated(LAND), 0.3), trials=30).run()
        yield store


def test_csv_has_a_row_for_every_trial(store):
    table = list(csv.DictReader(io.StringIO(trial_dump.as_csv(trial_dump.load_rows(store)))))
    stored = store.load_trials(1)
    assert [(int(r["number"]), r["verdict"], json.loads(r["config"])) for r in table] == [
        (t.number, t.outcome.verdict.word.value, dict(t.config)) for t in stored]  # fmt: skip
    assert trial_dump.load_rows(store, task="other") == [] == trial_dump.load_rows(store, device="other")


def test_t4_is_read_back_by_readers_of_t4(store, tmp_path):
    path = tmp_path / "t4.json"
    path.write_text(trial_dump.as_t4(trial_dump.load_rows(store)))
    space = tuner_files.read(path)
    stored = store.load_trials(1)
    assert any(t.score is None for t in stored)
    best = min(r["time_us"] for r in trial_dump.load_rows(store) if r["time_us"])
    assert space.optimum_us == pytest.approx(best)
    words = {r["invalidity"] for r in json.loads(path.read_text())["results"]}
    assert words <= {"timeout", "compile", "runtime", "correctness", "constraints", "correct"} and len(words) > 1
