"""The commands that read a database, as a stranger uses them: every wrong question gets an answer that helps."""

import sqlite3
import subprocess
import sys

import pytest
from good_task import GOOD, KERNEL, one_line

import databases
from kernelsearch.record.store import Store


@pytest.fixture
def database(tmp_path):
    """A finished simulated run of 12 trials in kernelsearch.db, in the command's folder."""
    with Store.open(tmp_path / "kernelsearch.db") as store:
        databases.search(store, trials=12)
    return tmp_path / "kernelsearch.db"


@pytest.mark.parametrize("command, said", [
    (["leaderboard", "--task", "nothing"], "has no task 'nothing': it has simulated"),
    (["leaderboard", "--task", "late"], "has no task 'late': did you mean simulated?"),
    (["lineage", "best", "--task", "simulate.py"], "has no task 'simulate.py': did you mean simulated?"),
    (["leaderboard", "--device", "abacus"], "has nothing of device 'abacus': it has "),
    (["leaderboard", "--json", "--csv"], "choose one"),
    (["leaderboard", "--json", "--html", "page.html"], "choose one"),
    (["leaderboard", "--html", "no/such/folder/t.html"], "t.html cannot be written: its folder does not exist"),
    (["show", "best", "--task", "nothing"], "has no task 'nothing': it has simulated"),
])  # fmt: skip
def test_a_wrong_question_is_answered_in_one_line(run, database, command, said):
    one_line(run(*command), said)


@pytest.mark.parametrize("command", ["show", "lineage"])
def test_best_may_be_of_a_task(run, database, command):
    assert run(command, "best", "--task", "simulated").out == run(command, "best").out != ""


def test_reading_changes_no_file_of_somebody_else(run, tmp_path):
    """An empty file stays empty; another program's database gets no table."""
    empty, other = tmp_path / "empty.db", tmp_path / "other.db"
    empty.touch()
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE places (name TEXT)")
    before = other.read_bytes()
    for path in (empty, other):
        one_line(run("leaderboard", "--db", path), "is not a kernelsearch database")
    assert empty.read_bytes() == b"" and other.read_bytes() == before


def test_a_full_output_is_one_line(database):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "kernelsearch", "leaderboard"], cwd=database.parent, stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=120)  # fmt: skip
    said = "kernelsearch: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.slow
def test_verify_takes_the_tasks_own_kernel_and_refuses_one_that_would_not_run(run, tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    for own in (["good.py"], ["good.py", "good.py"]):
        assert run("verify", *own).json["verdict"] == "accept"
    head = "import triton\nimport triton.language as tl\n"
    (tmp_path / "other.py").write_text(head + KERNEL.replace("double_kernel", "triple_kernel"))
    done = run("verify", "good.py", "other.py")
    assert done.code == 1 and done.json["verdict"] == "reject-static"
    assert "launches double_kernel, but this file has triple_kernel" in done.json["reason"]
    (tmp_path / "whole.py").write_text(GOOD)
    done = run("verify", "good.py", "whole.py", "--explain")
    assert done.code == 1 and "looks like a task file" in done.err
