"""A database that somebody else wrote: nothing of it is run, shown or shipped as code that was not judged."""

import ast
import shutil
import sqlite3
import tomllib
from contextlib import closing

import pytest
from gated_record import H100

from kernelsearch.core.errors import StoreError
from kernelsearch.export import ExportError, quote, quote_text
from kernelsearch.kernel.source import Kernel
from kernelsearch.record import merge
from kernelsearch.record.store import Store
from kernelsearch.report.kernel_file import render_kernel_file
from kernelsearch.report.leaderboard import build_rows
from kernelsearch.verify import gate

HOSTILE = 'H100" """\\\n__import__("os").system("x")\n\'\'\'\x1b[31m{{ 7 }}'
CODE = "BLOCK: tl.constexpr = __import__('os').system('touch executed')\n"


@pytest.fixture
def forged(database, tmp_path):
    """`forged(sql, *values)`: the record with a statement run on it."""

    def make(*statements, **options):
        path = database(**options)
        with closing(sqlite3.connect(path)) as connection:
            for sql, *values in statements:
                connection.execute(sql, values)
            connection.commit()
        return path

    return make


def refused_import(path, tmp_path):
    with Store.open(tmp_path / "ours.db") as store:
        with pytest.raises(StoreError) as error:
            merge.merge(store, path, gate.check_stored)
        assert store.load_runs() == [] and store.query("SELECT * FROM kernel") == []
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    return str(error.value)


def insert_code(path, which="parent IS NOT NULL"):
    """Puts code into every kernel that is not the seed, with the digest that belongs to it."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(f"SELECT digest, source FROM kernel WHERE {which}").fetchall()
        connection.execute("PRAGMA foreign_keys = OFF")
        for digest, source in rows:
            text = source.replace("import triton.language as tl\n", f"import triton.language as tl\n\n{CODE}", 1)
            new = Kernel.parse(text).digest
            connection.execute("UPDATE kernel SET source = ?, digest = ? WHERE digest = ?", [text, new, digest])
            for table in ("structure", "candidate", "trial"):
                connection.execute(f"UPDATE {table} SET kernel = ? WHERE kernel = ?", [new, digest])
        connection.commit()
    return new


def test_a_kernel_with_another_source_is_refused_everywhere(forged, exported, tmp_path):
    path = forged(["UPDATE kernel SET source = replace(source, 'SPLIT)', 'SPLIT + 0)')"])
    assert "was changed: its source has another digest" in refused_import(path, tmp_path)
    with Store.open(path, write=False) as store, pytest.raises(StoreError, match="was changed: its source has another"):
        render_kernel_file(store)
    with pytest.raises(ExportError, match="was changed: its source has another digest"):
        exported(dbs=(str(path),))


def test_a_kernel_that_the_gate_refuses_is_refused_everywhere(forged, exported, tmp_path):
    path = forged()
    digest = insert_code(path)
    assert "is refused by the gate: line 4" in refused_import(path, tmp_path)
    with Store.open(path, write=False) as store, pytest.raises(StoreError, match="is refused by the gate"):
        render_kernel_file(store, digest)
    with pytest.raises(ExportError, match="is refused by the gate"):
        exported(dbs=(str(path),))


def test_no_code_comes_in_as_a_tasks_own_kernel(forged, tmp_path):
    """A kernel is the task's own because a row says so: what runs when its file is imported is refused all the same."""
    path = forged()
    digest = insert_code(path, "digest IN (SELECT kernel FROM trial WHERE kind = 'seed')")
    assert "is refused by the gate: line 4" in refused_import(path, tmp_path)
    with Store.open(path, write=False) as store, pytest.raises(StoreError, match="is refused by the gate"):
        render_kernel_file(store, digest)


def test_a_tasks_own_kernel_may_hold_what_runs_only_with_it():
    own = "import triton\nimport triton.language as tl\n\nMODE = tl.constexpr('fast')\n\n\n"
    own += "@triton.jit\ndef own_kernel(x_ptr, MORE: tl.constexpr):\n    tl.device_print('x', tl.load(x_ptr))\n"
    digest = Kernel.parse(own).digest
    assert gate.check_stored(own, digest) and not gate.check_stored(own, digest, True)
    act = own.replace("MODE", f"{CODE}\nMODE")
    assert gate.check_stored(act, Kernel.parse(act).digest, True)
    for act in ("x_ptr=print(7)", "x_ptr: print(7)", "x_ptr=lambda: 7"):
        text = own.replace("x_ptr, MORE: tl.constexpr", f"MORE: tl.constexpr, {act}")
        assert gate.check_stored(text, Kernel.parse(text).digest, True)


def test_another_kernel_than_the_files_is_not_exported_as_the_tasks_own(forged, exported):
    """Its trial needs no verdict to count as the seed, whose times others' findings give."""
    other = (
        "(SELECT candidate.digest FROM candidate JOIN trial ON trial.kernel = candidate.kernel WHERE kind <> 'seed')"
    )
    path = forged([f"UPDATE trial SET candidate = {other} WHERE kind = 'seed'"], times=(12.0, 14.0))
    with pytest.raises(ExportError, match="another kernel for the task's own"):
        exported(dbs=(str(path),))


def test_a_candidate_under_anothers_digest_is_refused(forged, tmp_path):
    path = forged(["UPDATE candidate SET config = replace(config, '16', '32')"])
    assert "has another digest" in refused_import(path, tmp_path)


def test_what_was_reached_here_stays_and_what_a_file_adds_to_it_is_marked(forged, tmp_path):
    newer = [f"UPDATE {t} SET measured = '2999', time_us = 0.5" for t in ("measurement", "confirmation")]
    ours, theirs = forged(), tmp_path / "theirs.db"
    shutil.copy(ours, theirs)
    with closing(sqlite3.connect(theirs)) as connection:
        for sql in newer:
            connection.execute(sql)
        connection.execute("UPDATE trial SET number = 99 WHERE number = (SELECT max(number) FROM trial)")
        connection.commit()
    with Store.open(ours) as store:
        assert not any(run.name.endswith("(imported)") for run in store.load_runs())
        merge.merge(store, theirs, gate.check_stored)
        assert all(run.name.endswith("(imported)") for run in store.load_runs())  # one of its trials is not ours
        for table in ("measurement", "confirmation"):
            assert store.query(f"SELECT * FROM {table} WHERE time_us = 0.5 OR measured = '2999'") == []


def test_an_imported_confirmation_of_a_kernel_that_was_tried_here_says_so(forged, exported, tmp_path):
    theirs = forged()
    ours = tmp_path / "ours.db"
    shutil.copy(theirs, ours)
    with Store.open(ours) as store:
        for table in ("confirmation", "measurement"):
            store.database.conn.execute(f"DELETE FROM {table}")
        store.database.conn.commit()
        merge.merge(store, theirs, gate.check_stored)
        rows = {row["evidence"]: row["proposer"] for row in build_rows(store)}
    assert rows["confirmed"].endswith("(imported)") and not rows["measured"].endswith("(imported)")
    assert "(imported)." in (exported(dbs=(str(ours),)).out / "README.md").read_text()


def test_a_name_that_hides_the_mark_is_refused(forged, tmp_path):
    path = forged(["UPDATE run SET name = name || char(0)"])
    assert "a name that nobody can read" in refused_import(path, tmp_path)


@pytest.mark.parametrize("time", ["9e999", "-5.0", "0.0"])
@pytest.mark.parametrize(
    ("table", "column"),
    [("trial", "score"), ("trial", "time_us"), ("measurement", "time_us"), ("confirmation", "time_us")],
)
def test_times_that_no_clock_gives_are_refused(forged, tmp_path, table, column, time):
    path = forged([f"UPDATE {table} SET {column} = {time} WHERE rowid = (SELECT max(rowid) FROM {table})"])
    assert f"is not imported: {table} has the time" in refused_import(path, tmp_path)


@pytest.mark.parametrize("time", ["NaN", "Infinity", "-1.0", '"fast"'])
@pytest.mark.parametrize(("table", "column"), [("trial", "times"), ("confirmation", "detail")])
def test_times_in_json_are_held_to_the_same(forged, tmp_path, table, column, time):
    path = forged([f"UPDATE {table} SET {column} = replace({column}, '\"time_us\":5.0', '\"time_us\":{time}')"])
    assert f"is not imported: {table} has the time" in refused_import(path, tmp_path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE trial SET verdict = 'accepted', times = NULL",
        "UPDATE trial SET proposal = '[]'",
        "UPDATE trial SET layers = 'x'",
        "UPDATE trial SET times = '[{}]'",
        "UPDATE run SET settings = '{'",
        "UPDATE candidate SET config = config || 'x'",
        "UPDATE confirmation SET detail = '[]'",
        "UPDATE kernel SET source = 'x = = 3'",
    ],
)
def test_rows_of_other_forms_are_one_sentence(forged, exported, tmp_path, statement):
    path = forged([statement])
    refused_import(path, tmp_path)
    for act in (lambda store: render_kernel_file(store), lambda store: build_rows(store)):
        try:
            with Store.open(path, write=False) as store:
                act(store)
        except StoreError as error:
            assert "\n" not in str(error)


def test_what_is_imported_says_so(database, tmp_path):
    path = database()
    with Store.open(tmp_path / "ours.db") as store:
        for _ in range(2):
            merge.merge(store, path, gate.check_stored)
        assert [run.name.count("(imported)") for run in store.load_runs()] == [1]
        assert all(row["proposer"].endswith("(imported)") for row in build_rows(store))
        shown = render_kernel_file(store)
        assert "(imported)), trial" not in shown and shown.count("(imported)") >= 2
        candidate = store.query("SELECT candidate FROM trial ORDER BY number DESC")[0]["candidate"]
        assert list(store.load_evaluations(candidate)) == []  # nobody here has judged it
    with Store.open(path, write=False) as store:
        assert list(store.load_evaluations(candidate)) and "(imported)" not in render_kernel_file(store)


def test_texts_that_somebody_wrote_stay_texts_in_what_is_exported(forged, exported):
    path = forged(
        ["UPDATE trial SET device = ?", HOSTILE],
        ["UPDATE run SET name = ?, target = ?", HOSTILE, HOSTILE],
        ["UPDATE structure SET edit = ? WHERE edit IS NOT NULL", HOSTILE],
        ["UPDATE structure SET rationale = ?", HOSTILE],
        confirmed=False,
    )
    from kernelsearch.core.types import Evidence

    done = exported(dbs=(str(path),), evidence=Evidence.MEASURED)
    for file in done.out.rglob("*.py"):
        tree = ast.parse(file.read_text())
        calls = [n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        assert "__import__" not in calls, file
    for file in done.out.rglob("*.toml"):
        tomllib.loads(file.read_text())
    assert "\x1b" not in (done.out / "README.md").read_text()
    assert H100 not in (done.out / "README.md").read_text()


@pytest.mark.parametrize("text", [HOSTILE, "\\", '"""', "a\nb", "\x7f\u2028", "café", "\\x41", "\\N{DIGIT ONE}"])
def test_a_quoted_text_is_one_text_in_python_and_in_toml(text):
    assert ast.literal_eval(quote(text)) == tomllib.loads(f"a = {quote(text)}")["a"]
    (only,) = ast.parse(f'"""{quote_text(text)}"""').body
    assert isinstance(only, ast.Expr) and isinstance(only.value, ast.Constant)
