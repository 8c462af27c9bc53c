"""`kernelsearch import` of what is no database, or the database itself: one line, and nothing is written."""

import pytest

import databases
from kernelsearch.record.store import Store


@pytest.mark.parametrize("text", [None, "", "{}", "SQLite"])
def test_any_other_file_is_one_line(run, tmp_path, text):
    if text is not None:
        (tmp_path / "odd.json").write_text(text)
    done = run("import", "odd.json")
    assert done.code == 2 and len(done.err.strip().splitlines()) == 1 and "odd.json" in done.err
    assert not (tmp_path / "kernelsearch.db").exists()


def test_a_database_is_not_merged_into_itself(run, tmp_path):
    with Store.open(tmp_path / "own.db") as store:
        databases.search(store, trials=2)
    done = run("import", "own.db", "--db", "own.db")
    assert done.code == 2 and "is the database itself" in done.err
    assert "1 new runs, 2 new trials" in run("import", "own.db").out
