"""`export` as a user meets it: what it says, and that misuse is one line, exit 2, and nothing on disk."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import databases

sys.path.insert(0, str(Path(__file__).parents[1] / "export"))
from gated_record import CONFIG, H100, SPLIT, TASK, finding, trial

from kernelsearch.core.types import Evidence
from kernelsearch.export.examine import examine
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import RunFacts, Structure
from kernelsearch.record.store import Store


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a task and a record of it that has a confirmed kernel."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "gated_sum.py").write_text(TASK)
    facts = examine(folder / "gated_sum.py").facts
    seed, split = Kernel.parse(facts.seed), Kernel.parse(SPLIT)
    with Store.open(folder / "kernelsearch.db") as store:
        run = store.add_run(facts, RunFacts("evolve", "edits", 0, 1, 2, H100, {}))
        store.add_trial(run, trial(0, seed, facts.config, (10.0, 10.0), Evidence.MEASURED, H100), Structure(seed, 0))
        structure = Structure(split, 1, seed.digest, "split_reduction", "why")
        store.add_trial(run, trial(1, split, CONFIG, (5.0, 6.0), Evidence.MEASURED, H100, seed.digest), structure)
        store.add_confirmation(facts, structure, CONFIG, finding(split, CONFIG, (5.0, 6.0), H100), {})
    return folder


@pytest.fixture
def command(place, monkeypatch, tmp_path):
    from click.testing import CliRunner

    from kernelsearch.cli import main

    monkeypatch.chdir(place)

    def command(*args, out=tmp_path / "out"):
        whole = ["export", "--out", str(out), *args]
        for option, value in (("--task", "gated_sum"), ("--name", "fast-sum")):
            if option not in args:
                whole += [option, value]
        done = CliRunner().invoke(main, whole)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    command.out = tmp_path / "out"
    return command


@pytest.mark.slow
def test_it_says_what_it_wrote_and_what_comes_next(command):
    done = command()
    assert done.exit_code == 0, done.stderr
    assert (
        "it holds gated_sum, reference, the kernels and what they use of gated_sum.py: under no licence" in done.stdout
    )
    assert f"confirmed on {H100}" in done.stdout and "next: pip install" in done.stdout
    assert (command.out / "dist" / "fast_sum-0.1.0-py3-none-any.whl").is_file()
    again = command()
    assert again.exit_code == 2 and "exists already" in again.stderr
    assert command("--force", "--version", "1.0").exit_code == 0
    assert (command.out / "dist" / "fast_sum-1.0-py3-none-any.whl").is_file()
    assert not (command.out / "dist" / "fast_sum-0.1.0-py3-none-any.whl").exists()


@pytest.mark.slow
def test_json(command, monkeypatch):
    steps = []

    @contextmanager
    def record_steps(doing):
        steps.append(doing())
        yield
        steps.append(doing())

    monkeypatch.setattr(sys.modules["kernelsearch.cli.export"], "say_what_takes_long", record_steps)
    done = command("--json", "--license", "BSD-3-Clause", "--author", "Ada")
    told = json.loads(done.stdout)
    assert told["kernels"][0]["device"] == H100 and told["wheel"].endswith(".whl")
    assert "Ada" in (command.out / "LICENSE").read_text()
    assert steps[0] == "choosing kernels and reading their tasks"
    assert re.search("compiling for the package, ([0-9]+) of \\1 binaries$", steps[-1])
    assert told["without_binaries"] == []
    assert 'license = "BSD-3-Clause AND MIT"' in (command.out / "pyproject.toml").read_text()


MISUSE = {
    "no such task": (["--task", "nothing"], "no database has a task 'nothing'"),
    "the beginning of a name": (["--task", "gated"], "no database has a task 'gated': did you mean gated_sum?"),
    "no such device": (["--device", "B200"], "has no accepted kernel on B200 yet: nothing to export"),
    "name with a space": (["--name", "fast sum"], "is not a package name"),
    "a word of Python": (["--name", "class"], "cannot be imported as 'class'"),
    "no such target": (["--target", "h100", "--target", "h101"], "unknown target 'h101'; known are h100"),
    "a digit first": (["--name", "3sum"], "cannot be imported as '3sum'"),
    "a module of others": (["--name", "torch"], "would hide the module torch"),
    "no version": (["--version", "one"], "is not a package version"),
    "no licence": (["--license", "nothing.txt"], "is neither MIT, BSD-3-Clause, ISC nor a file"),
    "no database": (["--db", "nothing.db"], "no database at nothing.db"),
    "no such file": (["--task", "nothing.py"], "no such file: nothing.py"),
}


@pytest.mark.parametrize("args, said", MISUSE.values(), ids=MISUSE)
def test_misuse_is_one_line_and_nothing_is_written(command, args, said):
    done = command(*args)
    assert done.exit_code == 2 and said in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not done.stdout and not command.out.exists()


def test_a_folder_of_somebody_else_is_never_replaced(command):
    command.out.mkdir()
    (command.out / "thesis.txt").write_text("years")
    done = command("--force")
    assert done.exit_code == 2 and "was not written by an export" in done.stderr
    assert (command.out / "thesis.txt").read_text() == "years"


@pytest.mark.slow
def test_a_disk_that_fails_leaves_the_old_folder_and_no_half_one(command, monkeypatch):
    assert command().exit_code == 0
    before = sorted(p.name for p in command.out.iterdir())
    real, count = Path.write_bytes, [0]

    def failing(self, data):
        count[0] += 1
        if count[0] > 5:
            raise OSError(28, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", failing)
    done = command("--force", "--version", "2.0")
    assert done.exit_code == 2 and "cannot be written: No space left on device" in done.stderr
    assert sorted(p.name for p in command.out.iterdir()) == before
    assert [p.name for p in command.out.parent.iterdir()] == [command.out.name]


@pytest.mark.slow
def test_a_task_file_that_was_changed_is_refused(command, place, tmp_path):
    changed = tmp_path / "gated_sum.py"
    changed.write_text(TASK + "\n# another thought\n")
    done = command("--task", str(changed))
    assert done.exit_code == 2 and "is not the file that was searched" in done.stderr
    same = tmp_path / "elsewhere" / "gated_sum.py"
    same.parent.mkdir()
    same.write_text(TASK)
    assert command("--task", str(same)).exit_code == 0


def test_a_newer_database_is_refused(command, place, tmp_path):
    newer = tmp_path / "newer.db"
    newer.write_bytes((place / "kernelsearch.db").read_bytes())
    databases.make_newer(newer)
    done = command("--db", str(newer))
    assert done.exit_code == 2 and "was written by a newer kernelsearch" in done.stderr


@pytest.mark.slow
def test_only_confirmed_kernels_unless_said_otherwise(command, place, tmp_path):
    weak = tmp_path / "weak.db"
    with sqlite3.connect(place / "kernelsearch.db") as database, sqlite3.connect(weak) as copy:
        database.backup(copy)
        copy.execute("DELETE FROM confirmation")
    done = command("--db", str(weak))
    assert done.exit_code == 2 and "has no confirmed kernel, only measured ones" in done.stderr
    assert command("--db", str(weak), "--evidence", "measured").exit_code == 0


def test_a_launcher_that_cannot_be_shipped_is_refused_with_its_line(command, place, tmp_path):
    text = TASK.replace('"""Sums', 'import numpy\n"""Sums')
    text = text.replace("torch.empty_like(sums)", "torch.empty_like(sums, dtype=None if numpy else None)")
    path = tmp_path / "numeric.py"
    path.write_text(text)
    facts = examine(path).facts
    split = Kernel.parse(SPLIT)
    with Store.open(tmp_path / "numeric.db") as store:
        store.add_confirmation(facts, Structure(split, 0), CONFIG, finding(split, CONFIG, (5.0, 6.0), H100), {})
    done = command("--task", str(path), "--db", str(tmp_path / "numeric.db"))
    assert done.exit_code == 2 and "numeric.py cannot be shipped: line 3 imports numpy" in done.stderr
    assert not command.out.exists()


STOPPING = """
import signal, sys, time
from kernelsearch.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started the suite may have it ignored
seen = []


def step(event, args):
    texts = event == "open" and isinstance(args[0], str) and isinstance(args[1], str)
    if texts and sys.argv[1] in args[0] and args[1][0] in "wx":
        seen.append(args[0])
        if len(seen) == int(sys.argv[2]):
            print("writing", flush=True)
            while True:
                time.sleep(1)


sys.addaudithook(step)
main(sys.argv[3:])
"""


def stopped(folder, place, files, number, *arguments):
    """Kills a command as it begins to write its n-th file beside `place`; returns (exit code, stderr)."""
    process = subprocess.Popen([sys.executable, "-c", STOPPING, f".{place}-", str(files), *arguments], cwd=folder,
                               text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    assert process.stdout.readline() == "writing\n", process.communicate()
    process.send_signal(number)
    return process.wait(), process.communicate()[1]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "number"), [("pip", signal.SIGKILL), ("configs", signal.SIGINT)])
def test_an_export_that_is_killed_while_it_writes_leaves_the_old_folder_whole(command, place, form, number):
    assert command("--format", form).exit_code == 0
    before = {p: p.read_bytes() for p in command.out.rglob("*") if p.is_file()}
    arguments = "export --task gated_sum --name fast-sum --force".split()
    arguments += ["--out", str(command.out), "--format", form]
    code, said = stopped(place, command.out.name, 2, number, *arguments, "--version", "2.0")
    assert code != 0 and "Traceback" not in said
    assert {p: p.read_bytes() for p in command.out.rglob("*") if p.is_file()} == before
    if number == signal.SIGINT:
        assert [p.name for p in command.out.parent.iterdir()] == [command.out.name]
    assert command("--force", "--format", form, "--version", "2.0").exit_code == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_page_that_is_killed_while_it_is_written_leaves_the_old_one_whole(place, tmp_path, number):
    page = tmp_path / "board.html"
    page.write_text("old")
    code, said = stopped(place, page.name, 1, number, "leaderboard", "--html", str(page))
    assert code != 0 and "Traceback" not in said and page.read_text() == "old"
