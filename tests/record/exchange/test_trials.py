"""Every trial goes out, once."""

import csv
import io
import json

import pytest

import databases
from kernelsearch.record.exchange import trial_dump
from kernelsearch.record.store import Store


@pytest.fixture
def store():
    with Store.open_in_memory() as store:
        databases.search(store, "random_walk", 30, failing=0.3)
        yield store


def test_csv_has_a_row_for_every_trial(store):
    table = list(csv.DictReader(io.StringIO(trial_dump.as_csv(trial_dump.load_rows(store)))))
    stored = store.load_trials(1)
    assert [(int(r["number"]), r["verdict"], json.loads(r["config"])) for r in table] == [
        (t.number, t.outcome.verdict.word.value, dict(t.config)) for t in stored]  # fmt: skip
    assert trial_dump.load_rows(store, task="other") == [] == trial_dump.load_rows(store, device="other")
