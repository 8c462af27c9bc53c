"""Merging keeps every row once, in whatever order and however often it is done."""

import shutil

import pytest

import databases
from kernelsearch.core.errors import StoreError
from kernelsearch.core.model_calls import AnswerRecord, ModelCall
from kernelsearch.record import merge
from kernelsearch.record.store import Store
from kernelsearch.report import leaderboard


def searched(path, seed, trials=12):
    with Store.open(path) as store:
        databases.search(store, trials=trials, seed=seed)
    return path


def told(store):
    """All that a reader sees, without the numbers of runs."""
    trials = store.query(
        """SELECT run.name, t.number, t.candidate, t.kernel, t.verdict, t.score
           FROM trial AS t JOIN run ON run.id = t.run
           ORDER BY 1, 2"""
    )
    kernels = store.query("SELECT digest, source FROM kernel ORDER BY digest")
    board = [{k: v for k, v in r.items() if k != "run"} for r in leaderboard.build_rows(store)]
    return trials, kernels, sorted(board, key=lambda r: (r["score"], r["kernel"]))


@pytest.fixture
def two(tmp_path):
    return searched(tmp_path / "a.db", 1), searched(tmp_path / "b?%20.db", 2)


def test_both_files_rows_are_there_and_a_second_time_adds_nothing(two, tmp_path):
    with Store.open(tmp_path / "c.db") as store:
        came = [merge.merge(store, path) for path in two]
        assert [m.runs for m in came] == [1, 1] and [m.trials for m in came] == [12, 12]
        whole = told(store)
        for path in two:
            again = merge.merge(store, path)
            assert again.runs == 0 and not any(again.rows.values())
        assert told(store) == whole and store.query("PRAGMA foreign_key_check") == []
        assert store.query("SELECT count(*) AS n FROM kernel_fts WHERE kernel_fts MATCH 'simulated_kernel'")[0]["n"] > 0


def test_the_order_does_not_matter(two, tmp_path):
    seen = []
    for name, order in (("c.db", two), ("d.db", two[::-1])):
        with Store.open(tmp_path / name) as store:
            for path in order:
                merge.merge(store, path)
            seen.append(told(store))
    assert seen[0] == seen[1]


def test_a_run_that_has_grown_brings_only_its_new_trials(tmp_path):
    whole = searched(tmp_path / "whole.db", 3, 12)
    with Store.open(whole) as store:
        trials = store.load_trials(1)
    with Store.open(tmp_path / "c.db") as store:
        merge.merge(store, whole)
        store.database.conn.execute("DELETE FROM hint")
        store.database.conn.execute("DELETE FROM trial WHERE number >= 7")
        store.database.conn.commit()
        assert merge.merge(store, whole).trials == 5
        assert store.load_trials(1) == trials


def test_the_other_file_is_not_changed(two, tmp_path):
    before = two[0].read_bytes()
    with Store.open(tmp_path / "c.db") as store:
        merge.merge(store, two[0])
    assert two[0].read_bytes() == before


def test_a_file_that_is_no_database_leaves_this_one_as_it_was(two, tmp_path):
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"SQLite format 3\0" + b"x" * 4096)
    with Store.open(two[0]) as store:
        whole = told(store)
        with pytest.raises(StoreError, match="damaged"):
            merge.merge(store, bad)
        assert told(store) == whole


def test_a_newer_database_is_named_as_the_user_named_it(tmp_path):
    other = tmp_path / "newer.db"
    databases.make_newer(other)
    with Store.open_in_memory() as store, pytest.raises(StoreError) as refused:
        merge.merge(store, other)
    assert str(refused.value).startswith(f"{other} was written by a newer kernelsearch")


def asked(path, seed, words):
    """A searched database whose run also asked a model once for each word."""
    searched(path, seed)
    with Store.open(path) as store:
        (run,) = store.load_runs()
        parent = next(iter(store.load_structures(run.id)))
        for number, word in enumerate(words):
            answers = tuple(AnswerRecord(f"{word} {i}", "stop", 5, "gate") for i in range(2))
            store.add_call(run, ModelCall(number, "model:x", "x", parent, "idea", word, "system", word, "g", answers))
        return store.load_calls(run.id)


def calls_of(store):
    return {run.name: store.load_calls(run.id) for run in store.load_runs()}


def test_calls_of_models_stay_with_their_runs(tmp_path):
    """Each file numbers its calls from 1, so the numbers of one mean other calls in another."""
    one, two = asked(tmp_path / "a.db", 1, ["left", "lost"]), asked(tmp_path / "b.db", 2, ["right", "again", "again"])
    for order in (("a.db", "b.db"), ("b.db", "a.db")):
        with Store.open(tmp_path / f"of-{order[0]}") as store:
            for path in (*order, *order):
                merge.merge(store, tmp_path / path)
            told = calls_of(store)
            assert sorted(told.values(), key=len) == [one, two]
            assert store.query("SELECT count(*) AS n FROM answer")[0]["n"] == 10
            assert store.query("PRAGMA foreign_key_check") == []


def test_every_number_that_a_file_gives_is_given_anew(store):
    """Whatever refers to a table that is numbered by its file is mapped; so is each such table."""
    tables = [row["name"] for row in store.query("SELECT name FROM sqlite_master WHERE sql LIKE '%STRICT%'")]
    numbered = {
        table for table in tables for column in store.query(f"PRAGMA table_info({table})")
        if column["pk"] and column["type"] == "INTEGER" and column["name"] == "id"
    }  # fmt: skip
    refers = {
        (key["from"], key["table"])
        for table in tables for key in store.query(f"PRAGMA foreign_key_list({table})") if key["table"] in numbered
    }  # fmt: skip
    assert numbered == set(merge.NUMBERED.values()) and refers == set(merge.NUMBERED.items())


def test_a_run_that_went_on_in_both_files_becomes_two(tmp_path):
    """Their later trials bear the same numbers; mixed, they would be a run that never was."""
    searched(tmp_path / "a.db", 3, 12)
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    with Store.open(tmp_path / "b.db") as store:
        store.database.conn.execute("UPDATE trial SET finished = finished || '1' WHERE number >= 8")
        store.database.conn.commit()
        theirs = store.load_trials(1)
    with Store.open(tmp_path / "a.db") as store:
        ours = store.load_trials(1)
        for again in (1, 0, 0):
            assert merge.merge(store, tmp_path / "b.db").runs == again
        assert store.load_trials(1) == ours and store.load_trials(2) == theirs
        assert [len(store.load_trials(run.id)) for run in store.load_runs()] == [12, 12]
