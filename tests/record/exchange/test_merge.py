"""Merging keeps every row once, in whatever order and however often it is done."""

import pytest

from kernelsearch.core.errors import StoreError
from kernelsearch.record.exchange import merge
from kernelsearch.record.store import Store
from kernelsearch.report import leaderboard
from simulated_search import record_search


def searched(path, seed, trials=12):
    return record_search(path, seed=seed, trials=trials)


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
    return searched(tmp_path / "a.db", 1), searched(tmp_path / "b.db", 2)


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
    with Store.open(other) as store:
        table = next(t for t in store.database.table_names() if "migration" in t)
        row = dict(next(store.database[table].rows))
        store.database[table].insert({**row, "name": "m999_from_the_future", **({"id": 999} if "id" in row else {})})
    with Store.open_in_memory() as store, pytest.raises(StoreError) as refused:
        merge.merge(store, other)
    assert str(refused.value).startswith(f"{other} was written by a newer kernelsearch")
