"""`study`: bad input is one clear line; a cut study goes on; the report comes from the database alone."""

import json
import shutil

import pytest

from kernelsearch.tasks import shipped

STUDY = """
trials = 4
seeds = 2
window = 2
[[task]]
path = "softmax.py"
shapes = ["1"]
[[arm]]
name = "tpe"
[[arm]]
name = "walk"
strategy = "random_walk"
params = { rewrite = 0.5 }
"""


@pytest.fixture
def folder(tmp_path):
    shutil.copy(shipped.path("softmax"), tmp_path / "softmax.py")
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("trials = 4", "trails = 4", "unknown key 'trails': the known ones are name, trials, seeds"),
        ("seeds = 2", "seeds = 0", "seeds is how many (above 0)"),
        ("seeds = 2", "seeds = [1, 1]", "different whole numbers"),
        ("seeds = 2", "seeds = []", "seeds is how many (above 0)"),
        ("softmax.py", "softmix.py", "there is no task file"),
        ('name = "tpe"', 'name = "tpo"', "unknown strategy 'tpo': one of autotune"),
        ('name = "tpe"', 'name = "walk"\nstrategy = "tpe"', "two arms named 'walk'"),
        ('name = "tpe"', 'name = "tpe"\nproposer = "oracle"', "unknown proposer 'oracle': one of edits"),
        ("rewrite = 0.5", "rewrote = 0.5", "no parameter 'rewrote': it has rewrite"),
        ("[[arm]]", "[[arms]]", "unknown key 'arms'"),
        ('shapes = ["1"]', 'shape = "1"', "unknown key 'shape': the known ones are path, shapes"),
        ('shapes = ["1"]', "shapes = [1]", "is a list of texts"),
        ("trials = 4", "trials = 0", "trials is a whole number above 0"),
        ("trials = 4", "trials = 4\ncheckpoints = [9]", "checkpoints is a list of trial counts up to 4"),
        ("trials = 4", 'trials = 4\nbaselines = ["cudnn"]', "baselines is a list of eager"),
        ("trials = 4", "trials = ", "is not TOML"),
    ],
)
def test_bad_input_is_one_line(run, folder, old, new, said):
    (folder / "study.toml").write_text(STUDY.replace(old, new))
    done = run("study", folder / "study.toml")
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1 and done.out == ""
    assert not (folder / "study.db").exists()


def test_missing_files_and_a_report_of_nothing(run, folder):
    assert "cannot be read" in run("study", "none.toml").err
    done = run("study", folder / "study.toml", "--report")
    assert done.code == 2 and "no database at" in done.err
    (folder / "study.toml").write_text(STUDY.split("[[arm]]")[0])
    assert "add at least one [[arm]] table" in run("study", folder / "study.toml").err


def test_a_study_is_run_resumed_and_reported_from_its_database(run, folder):
    file = folder / "study.toml"
    file.write_text(STUDY.replace("seeds = 2", "seeds = 1").replace("trials = 4", "trials = 3"))
    first = run("study", file)
    assert first.code == 0 and "estimated by the static model, not measured" in first.out
    file.write_text(STUDY)
    done = run("study", file)
    assert done.code == 0 and done.err.count("4 trials") == 5  # its first line, and four runs
    again = run("study", file, "--json")
    assert again.code == 0 and "trials (" not in again.err  # nothing was run again
    found = again.json
    assert {(r["arm"], r["seed"], r["trials"], r["finished"]) for r in found["runs"]} == {
        (arm, seed, 4, True) for arm in ("tpe", "walk") for seed in (0, 1)
    }
    file.unlink()
    (folder / "softmax.py").unlink()
    alone = run("study", folder / "study.db", "--report", "--json")
    assert alone.code == 0 and json.loads(alone.out) == found
    text = run("study", folder / "study.db", "--report").out
    assert "| softmax | tpe | 2 |" in text and "### walk" in text
    refused = run("study", folder / "study.db")
    assert refused.code == 2 and "--report" in refused.err


def test_what_one_run_measured_no_other_measures_again_and_it_still_counts(run, folder):
    from kernelsearch.record.store import Store

    assert run("study", folder / "study.toml", "--quiet").code == 0
    with Store.open(folder / "study.db", write=False) as store:
        rows = store.query("SELECT candidate, measured_by, seconds FROM trial ORDER BY run, number")
    own = [r["candidate"] for r in rows if not r["measured_by"]]
    assert len(rows) == 16 and len(own) == len(set(own)) < 16
    assert all(r["measured_by"] in own and r["seconds"] == 0.0 for r in rows if r["measured_by"])


def test_a_task_that_cannot_be_opened_does_not_end_the_study(run, folder):
    (folder / "broken.py").write_text("def reference(x): return x\n")
    text = STUDY.replace("seeds = 2", "seeds = 1").replace("[[task]]", '[[task]]\npath = "broken.py"\n[[task]]', 1)
    (folder / "study.toml").write_text(text)
    done = run("study", folder / "study.toml")
    assert done.code == 1 and "broken could not be run" in done.err and "| softmax | tpe | 1 |" in done.out
