"""Every way in which a database cannot be used is one clear sentence, and a killed writer leaves it usable."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import databases
from kernelsearch.core.errors import StoreError
from kernelsearch.record.rows import Structure
from kernelsearch.record.store import Store

NOBODY = 65534


def test_a_file_is_made_with_a_write_ahead_log_and_no_lock_stays(tmp_path):
    path = tmp_path / "a.db"
    with Store.open(path) as store:
        assert store.query("PRAGMA journal_mode") == [{"journal_mode": "wal"}]
        assert store.query("PRAGMA foreign_keys") == [{"foreign_keys": 1}]
    assert [p.name for p in tmp_path.iterdir()] == ["a.db"]


def test_a_reader_sees_what_a_writer_has_stored(tmp_path, task, facts, seed, make):
    with Store.open(tmp_path / "a.db") as store:
        run = store.add_run(task, facts)
        with Store.open(tmp_path / "a.db", write=False) as reader:
            store.add_trial(run, make.accepted(0, seed, {}, 1.0), Structure(seed, 0))
            assert len(reader.load_trials(run.id)) == 1
            with pytest.raises(StoreError, match="read-only"):
                reader.finish_run(run)


@pytest.mark.parametrize("write", [True, False])
def test_a_newer_schema_is_refused(tmp_path, write):
    databases.make_newer(tmp_path / "a.db", "m999_later")
    with pytest.raises(StoreError, match="newer kernelsearch.*m999_later"):
        Store.open(tmp_path / "a.db", write=write)
    assert not (tmp_path / "a.db-lock").exists()


def test_other_peoples_tables_are_left_alone(tmp_path):
    import sqlite3

    with sqlite3.connect(tmp_path / "a.db") as theirs:
        theirs.execute("CREATE TABLE studies (study_id INTEGER)")
    with Store.open(tmp_path / "a.db") as store:
        assert store.query("SELECT count(*) AS n FROM studies") == [{"n": 0}]


@pytest.mark.parametrize("write", [True, False])
def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path, write):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, " * 100)
    with pytest.raises(StoreError, match="not a SQLite database"):
        Store.open(path, write=write)
    assert path.read_text() == "not a database, " * 100


@pytest.mark.parametrize("name", ["missing/a.db", "."])
def test_a_path_that_cannot_be_a_file_is_refused(tmp_path, name):
    with pytest.raises(StoreError, match="folder"):
        Store.open(tmp_path / name)


def test_reading_needs_a_file(tmp_path):
    with pytest.raises(StoreError, match="no database"):
        Store.open(tmp_path / "a.db", write=False)


def test_no_disk_space_is_said_and_the_rows_before_it_are_kept(tmp_path, task, facts, seed, make):
    path = tmp_path / "a.db"
    with Store.open(path) as store:
        run = store.add_run(task, facts)
        store.add_trial(run, make.accepted(0, seed, {}, 1.0), Structure(seed, 0))
        pages = store.query("PRAGMA page_count")[0]["page_count"]
        store.query(f"PRAGMA max_page_count = {pages}")  # SQLite says of its own limit what it says of a full disk
        with pytest.raises(StoreError, match="no disk space"):
            for number in range(1, 500):
                store.add_trial(run, make.rejected(number, seed, {"BLOCK": number}, parents=(seed.digest,)))
    with Store.open(path, write=False) as store:
        kept = store.load_trials(run.id)
        assert [t.number for t in kept] == list(range(len(kept))) and len(kept) >= 1
        assert store.query("PRAGMA integrity_check") == [{"integrity_check": "ok"}]


def test_two_writers_in_one_process(tmp_path):
    with Store.open(tmp_path / "a.db"), pytest.raises(StoreError, match="already open for writing"):
        Store.open(tmp_path / "a.db")
    Store.open(tmp_path / "a.db").close()


def test_another_process_that_writes_is_named_and_its_death_frees_the_file(tmp_path):
    path = tmp_path / "a.db"
    code = f"""from kernelsearch.record.store import Store
store = Store.open({str(path)!r})
print("open", flush=True)
input()"""
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=f"being written by process {other.pid}"):
            Store.open(path)
        Store.open(path, write=False).close()
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    Store.open(path).close()


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    store = Store.open(tmp_path / "a.db")
    ready, wait = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(wait)
        os.read(ready, 1)
        os._exit(0)
    store.close()
    Store.open(tmp_path / "a.db").close()
    os.close(ready)
    os.close(wait)
    assert os.waitpid(child, 0)[1] == 0


def _as_nobody(call) -> str:
    """What call raises as StoreError in a child without the rights of root, or `done`."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            call()
            said = "done"
        except StoreError as error:
            said = str(error)
        except BaseException as error:  # a child of a test: whatever it is, the parent must see it
            said = repr(error)
        os.write(into, said.encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as reader:
        said = reader.read()
    os.waitpid(child, 0)
    return said


def test_a_read_only_folder_is_said_when_writing_and_no_matter_when_reading():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        Store.open(path).close()
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        assert "read-only" in _as_nobody(lambda: Store.open(path))
        assert "read-only" in _as_nobody(lambda: Store.open(Path(folder) / "new.db"))
        assert _as_nobody(lambda: Store.open(path, write=False).load_runs()) == "done"
        Path(folder).chmod(0o700)
