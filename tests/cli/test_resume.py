"""`optimize --resume` goes on with the last unfinished run; the command that is printed repeats all that it needs."""

import json
import re
import shlex
from dataclasses import fields, replace

import click
import pytest
from good_task import GOOD, one_line

import simulated
from kernelsearch.api.optimize_options import OptimizeOptions, find_unfinished, format_options
from kernelsearch.cli.search import optimize_command as optimize
from kernelsearch.core.errors import StoreError
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store

OTHER = ("--strategy", "random_walk", "--seed", "7", "--window", "3", "--shape", "rows=16")


@pytest.fixture
def stopped(run, tmp_path):
    """Two runs of two trials, the second one of another strategy and seed; both are to have three."""
    (tmp_path / "good.py").write_text(
        GOOD.replace("SHAPES = [dict(rows=8)]", "SHAPES = [dict(rows=8), dict(rows=16)]", 1)
    )
    for options in ((), OTHER):
        assert run("optimize", "good.py", "--trials", 2, "--quiet", *options).code == 0
    stop(tmp_path, "trials = 3, finished = NULL")


def stop(folder, change):
    with Store.open(folder / "kernelsearch.db") as store:
        store.database.conn.execute(f"UPDATE run SET {change}")
        store.database.conn.commit()


@pytest.mark.slow
def test_the_last_unfinished_run_goes_on_by_its_own_options(run, stopped):
    done = run("optimize", "good.py", "--resume", "--json")
    assert done.code == 0, done.err
    assert (done.json["run"], done.json["trials"]) == (2, 3)
    assert "going on with run 2, good random_walk seed 7" in done.err
    assert re.findall(r"trial \d/3", done.err) == ["trial 3/3"], "what was stored is not shown once more"
    done = run("optimize", "good.py", "--resume", "--json", "--quiet")  # that one is done: the one before it
    assert done.code == 0 and (done.json["run"], done.json["trials"]) == (1, 3), done.err
    one_line(run("optimize", "good.py", "--resume", "--quiet"), "no unfinished run of good to resume")


@pytest.mark.slow
def test_what_is_given_chooses_the_run(run, stopped):
    done = run("optimize", "good.py", "--resume", "--json", "--quiet", "--seed", 0)
    assert done.code == 0 and done.json["run"] == 1, done.err
    one_line(run("optimize", "good.py", "--resume", "--quiet", "--strategy", "tpe", "--seed", 1),
             "no unfinished run of good with strategy tpe and seed 1 to resume")  # fmt: skip
    done = run("optimize", "good.py", "--resume", "--json", "--quiet", "--trials", 4, "--strategy", "random_walk")
    assert done.code == 0 and (done.json["run"], done.json["trials"]) == (2, 4), done.err


@pytest.mark.slow
def test_a_run_of_a_study_or_of_try_is_not_meant(run, stopped, tmp_path):
    stop(tmp_path, """settings = '{"study":"s"}' WHERE id = 2""")
    done = run("optimize", "good.py", "--resume", "--json", "--quiet")
    assert done.code == 0 and done.json["run"] == 1, done.err
    stop(tmp_path, "finished = NULL, strategy = 'try' WHERE id = 1")
    one_line(run("optimize", "good.py", "--resume", "--quiet"), "no unfinished run of good to resume")


@pytest.mark.slow
def test_other_versions_are_said_and_another_triton_is_refused(run, stopped, tmp_path):
    with Store.open(tmp_path / "kernelsearch.db") as store:
        versions = dict(store.load_run(2).facts.versions)
    stop(tmp_path, f"versions = '{json.dumps(versions | {'numpy': '1.0'})}'")
    done = run("optimize", "good.py", "--resume", "--json")
    assert done.code == 0 and f"it began with numpy 1.0 (now {versions['numpy']})" in done.err
    stop(tmp_path, f"versions = '{json.dumps(versions | {'triton': '3.0.0'})}'")
    one_line(
        run("optimize", "good.py", "--resume", "--quiet"), "run 1 cannot be resumed with triton .* of triton 3.0.0"
    )


def test_what_cannot_be_resumed_is_said_and_makes_no_file(run, good, tmp_path):
    one_line(run("optimize", "good.py", "--resume", "--db", "none.db"), "no database none.db")
    assert not (tmp_path / "none.db").exists()
    store, task = Store.open_in_memory(), simulated.task()
    store.add_run(task, RunFacts("evolve", "edits", 0, 1, 3, "h100", {}))
    edited = replace(task, digest="0123", path="folder/edited.py")
    changed = "to resume: edited.py has changed since run 1 began; bring its text back, or leave out --resume$"
    with pytest.raises(StoreError, match=changed):
        find_unfinished(store, edited, OptimizeOptions())
    with pytest.raises(StoreError, match="no unfinished run of new to resume$"):
        find_unfinished(store, replace(edited, name="new"), OptimizeOptions())


NOT_OF_THE_RUN = {"resume", "as_json", "quiet", "budget_seconds", "confirm_seconds", "given", "ending"}
VALUES = {"models": ("replay:a b", "replay:c"), "price": (0.5, 2.0), "shapes": ("rows=8 cols=2", "1"), "target": "a100",
          "starts": ("a b.py", "c.py"), "params": {"population": 8, "name": "a b"}, "edits": ("a b.py",)}  # fmt: skip


@pytest.mark.parametrize("name", sorted({f.name for f in fields(OptimizeOptions)} - NOT_OF_THE_RUN))
def test_the_printed_command_repeats_every_option(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    default = getattr(OptimizeOptions(), name)
    (param,) = (p for p in optimize.params if p.name == name)
    number = 3 if isinstance(param.type, click.types.IntParamType | click.IntRange) or name == "seed" else 2.5
    plain = (
        number
        if isinstance(default, int | float) or isinstance(param.type, click.FloatRange | click.IntRange)
        else "a b"
    )
    value = not default if isinstance(default, bool) else VALUES.get(name, plain)
    typed = shlex.split(format_options(replace(OptimizeOptions(), **{name: value})))
    parsed = optimize.make_context("optimize", ["task.py", *typed]).params
    assert parsed[name] == value and typed


def test_every_option_of_the_command_is_an_option_of_the_run_or_not():
    options = {p.name for p in optimize.params} - {"task", "as_json", "call", "hours"}
    assert options == {f.name for f in fields(OptimizeOptions)} - {"given", "confirm_seconds", "ending"}
