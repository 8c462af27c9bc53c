"""Every way in which a database cannot be used is one clear sentence, and a killed writer leaves it usable."""

import os
import signal
import sqlite3
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlite_utils

import databases
from kernelsearch.core.errors import RunBusy, StoreError
from kernelsearch.record import database_file, merge
from kernelsearch.record.migrations import migrations
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


@pytest.mark.parametrize("write", [True, False])
def test_an_older_schema_is_refused(tmp_path, write):
    Store.open(tmp_path / "a.db").close()
    databases.make_older(tmp_path / "a.db", 9)
    with pytest.raises(StoreError, match=r"older kernelsearch \(its schema ends at m009_step\): open it once with"):
        Store.open(tmp_path / "a.db", write=write)


def test_a_database_that_came_to_the_schema_in_steps_is_read_written_and_merged(tmp_path):
    with Store.open(tmp_path / "a.db") as store:
        databases.search(store, trials=4)
    databases.make_older(tmp_path / "a.db", 12)
    with Store.open(tmp_path / "a.db") as store, Store.open(tmp_path / "b.db") as other:
        assert merge.merge(other, tmp_path / "a.db").trials == 4 and len(other.load_trials(1)) == 4
        databases.search(store, trials=5)
    with Store.open(tmp_path / "a.db", write=False) as store:
        assert len(store.load_runs()) == 2


def test_other_peoples_tables_in_our_file_are_left_alone(tmp_path):
    Store.open(tmp_path / "a.db").close()
    with sqlite3.connect(tmp_path / "a.db") as theirs:
        theirs.execute("CREATE TABLE studies (study_id INTEGER)")
    with Store.open(tmp_path / "a.db") as store:
        assert store.query("SELECT count(*) AS n FROM studies") == [{"n": 0}]


@pytest.mark.parametrize("theirs", [
    "CREATE TABLE studies (study_id INTEGER)",
    "CREATE TABLE run (id INTEGER PRIMARY KEY)",
    "CREATE TABLE _sqlite_migrations (id INTEGER PRIMARY KEY, migration_set TEXT, name TEXT, applied_at TEXT); "
    "INSERT INTO _sqlite_migrations VALUES (1, 'llm', 'm001_initial', '')",
])  # fmt: skip
def test_another_programs_database_is_refused_and_not_a_byte_of_it_changes(tmp_path, theirs):
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(theirs)
    connection.close()
    before = path.read_bytes()
    for write in (True, False):
        with pytest.raises(StoreError, match="--db"):
            Store.open(path, write=write)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["a.db"]


@pytest.mark.parametrize("begun", ["", "_sqlite_migrations"])
def test_a_file_that_was_only_begun_is_finished(tmp_path, begun):
    """A kill may come before the first table is made."""
    with sqlite3.connect(tmp_path / "a.db") as connection:
        if begun:
            migrations.ensure_migrations_table(sqlite_utils.Database(connection))
    with Store.open(tmp_path / "a.db") as store:
        assert store.load_runs() == []


def held(path, seconds):
    """Holds the write lock of a database from a thread of its own, which ends after so many seconds."""
    holding = threading.Event()

    def hold():
        with closing(sqlite3.connect(path)) as theirs:
            theirs.execute("BEGIN IMMEDIATE")
            holding.set()
            time.sleep(seconds)
            theirs.rollback()

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    return thread


def test_a_run_waits_for_a_program_that_keeps_the_file_locked(tmp_path, monkeypatch, task, facts, seed, make):
    monkeypatch.setattr(database_file, "WAIT_SECONDS", 0.05)
    said = []
    with Store.open(tmp_path / "a.db", say=said.append) as store:
        run = store.add_run(task, facts)
        thread = held(tmp_path / "a.db", 1.0)
        store.add_trial(run, make.accepted(0, seed, {}, 1.0), Structure(seed, 0))
        thread.join()
        assert len(store.load_trials(run.id)) == 1
    (sentence,) = said
    assert sentence.startswith(f"{tmp_path / 'a.db'} is locked by another program: waiting for it")


def test_a_file_that_stays_locked_is_said_at_last(tmp_path, monkeypatch, task, facts):
    monkeypatch.setattr(database_file, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(database_file, "PATIENCE_SECONDS", 0.2)
    with Store.open(tmp_path / "a.db") as store:
        thread = held(tmp_path / "a.db", 1.0)
        with pytest.raises(StoreError, match="is locked by another program: close it"):
            store.add_run(task, facts)
        thread.join()
        assert store.load_runs() == []
        store.add_run(task, facts)  # the connection is none the worse


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


def in_children(*acts):
    """What each act printed or raised, run in forked children that all begin at once."""
    ready, go = os.pipe()
    pipes = []
    for act in acts:
        out, into = os.pipe()
        if not os.fork():
            os.close(go)
            os.read(ready, 1)
            try:
                said = str(act())
            except BaseException as error:  # a child of a test: whatever it is, the parent must see it
                said = repr(error)
            os.write(into, said.encode())
            os._exit(0)
        os.close(into)
        pipes.append(out)
    os.close(ready)
    os.close(go)
    said = [os.fdopen(out).read() for out in pipes]
    for _ in acts:
        os.wait()
    return said


def test_processes_and_threads_write_one_new_file_and_nothing_is_lost_or_doubled(tmp_path, task, facts, seed, make):
    """All open it at once, so they race for its creation too; each writes a run of its own."""
    path, count = tmp_path / "a.db", 30

    def write():
        with Store.open(path) as store:
            run = store.add_run(task, facts)
            for number in range(count):
                structure = Structure(seed, 0) if not number else None
                store.add_trial(run, make.accepted(number, seed, {"BLOCK": number}, 1.0), structure)
            return run.id

    def write_in_threads():
        with ThreadPoolExecutor(2) as pool:
            return "\n".join(map(str, pool.map(lambda _: write(), range(2))))

    said = in_children(*[write] * 4, write_in_threads)
    assert sorted("\n".join(said).split()) == ["1", "2", "3", "4", "5", "6"]
    with Store.open(path, write=False) as store:
        assert [[t.number for t in store.load_trials(r)] for r in range(1, 7)] == [list(range(count))] * 6
        assert store.query("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
        assert store.query("PRAGMA foreign_key_check") == []
    assert not (tmp_path / "a.db-lock").exists()


def test_a_run_has_one_writer_who_is_named_and_whose_death_frees_it(tmp_path, task, facts):
    path = tmp_path / "a.db"
    with Store.open(path) as store:
        run = store.add_run(task, facts).id
        with Store.open(path) as other, pytest.raises(RunBusy, match=f"process {os.getpid()}"):
            other.claim_run(run)
        assert in_children(lambda: Store.open(path).add_run(task, facts).id) == ["2"]
    (holding, held), (ready, go) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        mine = Store.open(path)
        mine.claim_run(run)
        mine.claim_study("widths")
        os.write(held, b"x")
        os.read(ready, 1)
        os._exit(0)
    os.read(holding, 1)
    with Store.open(path) as store:
        assert store.find_written_runs() == {run}
        with pytest.raises(RunBusy, match=f"^run {run} of {path} is being written by process {child}: "):
            store.claim_run(run)
        with pytest.raises(RunBusy, match=f"the study widths of {path} is being written by process {child}"):
            store.claim_study("widths")
        store.claim_study("heights")
        mine = store.add_run(task, facts)
        assert store.find_written_runs() == {run, mine.id}
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert store.find_written_runs() == {mine.id}
        store.claim_run(run)
        store.finish_run(mine)
        assert store.find_written_runs() == {run}
        assert in_children(lambda: store.find_written_runs() and Store.open(path).claim_run(run))[0].startswith("RunB")
    for end in (holding, held, ready, go):
        os.close(end)
    assert [p.name for p in tmp_path.iterdir()] == ["a.db"]


def test_a_forked_child_does_not_keep_a_run(tmp_path, task, facts):
    store = Store.open(tmp_path / "a.db")
    run = store.add_run(task, facts).id
    ready, wait = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(wait)
        os.read(ready, 1)
        os._exit(0)
    store.close()
    with Store.open(tmp_path / "a.db") as again:
        again.claim_run(run)
    os.close(ready)
    os.close(wait)
    assert os.waitpid(child, 0)[1] == 0


def _as_nobody(call) -> str:
    """What call raises as StoreError in a child without the rights of root, or `done`."""

    def act():
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        try:
            call()
            return "done"
        except StoreError as error:
            return error

    return in_children(act)[0]


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
