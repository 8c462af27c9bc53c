"""`study`: bad input is one clear line; a cut study goes on; the report comes from the database alone."""

import json
import random
import shutil

import pytest
from good_task import GOOD

from kernelsearch.record.store import Store
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
    """A study of a small task with two timed shapes."""
    text = GOOD.replace("SHAPES = [dict(rows=8)]", "SHAPES = [dict(rows=8), dict(rows=6)]").replace(
        "[1, 2, 4]", "[1, 2, 4, 8, 16]"
    )
    (tmp_path / "softmax.py").write_text(text)
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


@pytest.mark.slow
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
    runs = {(r["arm"], r["seed"], r["trials"], r["finished"]) for r in found["runs"]}
    assert runs == {(arm, seed, 4, True) for arm in ("tpe", "walk") for seed in (0, 1)}
    file.unlink()
    (folder / "softmax.py").unlink()
    alone = run("study", folder / "study.db", "--report", "--json")
    assert alone.code == 0 and json.loads(alone.out) == found
    text = run("study", folder / "study.db", "--report").out
    assert "| softmax | tpe | 2 |" in text and "### walk" in text
    refused = run("study", folder / "study.db")
    assert refused.code == 2 and "--report" in refused.err


def test_what_one_run_measured_no_other_measures_again_and_it_still_counts(run, folder):
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


MODEL_ARMS = """
[[arm]]
name = "asked"
strategy = "evolve"
proposer = "replay:answers.jsonl"
max_tokens = 60
max_usd = 1
price = [1.0, 2.0]
[[arm]]
name = "mixed"
strategy = "evolve"
models = ["replay:answers.jsonl"]
"""


@pytest.fixture
def with_models(folder):
    """A study with two arms that ask a model: answers drawn from the seed's own grammar, recorded beside the study."""
    import drawing

    import simulated
    from kernelsearch.kernel.source import Kernel
    from kernelsearch.propose.grammar import build_grammar

    shutil.copy(shipped.path("softmax"), folder / "softmax.py")
    text = shipped.path("softmax").read_text()
    kernel = text[text.index("@triton.jit") : text.index("def softmax(x)")]
    kernel = f"import triton\nimport triton.language as tl\n\n\n{kernel}"
    grammar, rng = build_grammar(Kernel.parse(kernel), simulated.task()), random.Random(0)
    answers = [drawing.answer(grammar, rng) for _ in range(40)]
    rows = [{"samples": [{"text": text, "tokens": 10}], "tokens_in": 20} for text in answers]
    (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "study.toml").write_text(STUDY.replace("trials = 4\nseeds = 2", "trials = 8\nseeds = 1") + MODEL_ARMS)
    return folder


@pytest.mark.slow
def test_a_model_is_the_proposer_of_an_arm_and_its_report_says_the_spend(run, with_models):
    done = run("study", with_models / "study.toml", "--json")
    assert done.code == 0, done.err
    spent = done.json["spent"]
    assert spent["tpe"] == spent["walk"] == []
    asked = next(one for one in spent["asked"] if one["by"].startswith("model:"))
    total = sum(one["tokens_in"] + one["tokens_out"] for one in spent["asked"])
    assert asked["calls"] > 0 and asked["tokens_in"] == 20 * asked["calls"] and 0 < total <= 60 + 30  # a call costs 30
    paid = sum(one["tokens_in"] + 2 * one["tokens_out"] for one in spent["asked"]) / 1e6
    assert sum(one["usd"] for one in spent["asked"]) == pytest.approx(paid)
    text = run("study", with_models / "study.db", "--report").out
    assert "## What the models cost" in text and "| asked | model:replay | 1 |" in text
    (with_models / "answers.jsonl").unlink()
    again = run("study", with_models / "study.toml", "--json")  # done runs do not open their model
    assert again.code == 0 and again.json == done.json


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("price = [1.0, 2.0]", "", "max_usd needs price IN OUT"),
        ("price = [1.0, 2.0]", "price = 1.0", "price is two numbers"),
        ("max_tokens = 60", 'max_tokens = "60"', "max_tokens is a whole number above 0"),
        ('proposer = "replay:answers.jsonl"', 'models = "replay:answers.jsonl"', "models is a list of texts"),
        ('models = ["replay:answers.jsonl"]', 'models = ["gpt:5"]', "unknown model engine 'gpt'"),
        (
            'models = ["replay:answers.jsonl"]',
            'modle = "x"',
            "unknown key 'modle': the known ones are name, strategy, proposer",
        ),
        ('proposer = "replay:answers.jsonl"', 'proposer = "edits"', "max_usd and record speak of a model"),
    ],
)
def test_a_wrong_model_is_one_line(run, with_models, old, new, said):
    file = with_models / "study.toml"
    file.write_text(file.read_text().replace(old, new))
    done = run("study", file)
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1


@pytest.mark.slow
def test_runs_that_wait_for_a_model_on_threads_of_their_own_are_the_same_runs(run, with_models, monkeypatch):
    from kernelsearch.propose.mix import ProposerMix
    from kernelsearch.propose.typed_edits import TypedEdits

    def told(db):
        with Store.open(with_models / db, write=False) as store:
            return [
                (r.facts.settings["arm"], [(t.kernel, t.config, t.edit) for t in store.load_trials(r.id)])
                for r in store.load_runs()
            ]

    asked = []
    assert run("study", with_models / "study.toml", "--db", with_models / "here.db").code == 0
    for kind, waits in ((TypedEdits, False), (ProposerMix, True)):
        monkeypatch.setattr(kind, "may_wait", lambda self, waits=waits: asked.append(type(self).__name__) or waits)
    assert run("study", with_models / "study.toml", "--db", with_models / "there.db").code == 0
    assert asked.count("ProposerMix") == 2 and sorted(told("here.db"), key=str) == sorted(told("there.db"), key=str)


@pytest.mark.slow
def test_a_model_that_cannot_be_opened_fails_its_runs_only(run, with_models):
    (with_models / "answers.jsonl").unlink()
    done = run("study", with_models / "study.toml")
    assert done.code == 1 and "answers.jsonl cannot be read" in done.err and "| softmax | tpe | 1 |" in done.out
