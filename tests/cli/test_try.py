"""`try`: one kernel of a person or an agent, judged, tuned, recorded under its parent; what is wrong is one line."""

import json
import subprocess
import sys

import pytest
from test_kernel_answers import RIGHT, WRONG
from test_propose import TASK

from kernelsearch.record.store import Store

OTHER = RIGHT.replace("One element a lane.", "Nothing is masked but the store.").replace(
    "x = tl.load(x_ptr + at, mask=at < n, other=0.0)", "x = tl.load(x_ptr + at, mask=at < n)"
)


@pytest.fixture
def task(tmp_path):
    (tmp_path / "gate.py").write_text(TASK)
    for name, text in (("right", RIGHT), ("wrong", WRONG), ("other", OTHER)):
        (tmp_path / f"{name}.py").write_text(text)
    return "gate.py"


def trials(tmp_path, run=1):
    with Store.open(tmp_path / "kernelsearch.db") as store:
        return store.load_trials(run), store.load_structures(run)


@pytest.mark.slow
def test_a_kernel_is_judged_timed_and_recorded_and_another_is_made_from_it(run, task, tmp_path):
    done = run("try", task, "right.py", "--parent", "best", "--json", "--quiet")  # as yet the task's own kernel
    assert done.code == 0, done.err
    tried = done.json
    assert tried["verdict"]["verdict"] == "accept" and tried["best"] is None and tried["vs_seed"] == tried["vs_parent"]
    (shape,) = tried["shapes"]
    assert shape["time_us"] > 0 and shape["seed_us"] > 0 and tried["hints"]
    rows, structures = trials(tmp_path)
    assert [t.kernel for t in rows] == [structures[rows[0].kernel].kernel.digest, tried["kernel"]]
    assert dict(rows[1].config) == {"BLOCK": 512, "num_warps": 2} and rows[1].rationale == "One element a lane."
    again = run(
        "try", task, "other.py", "--parent", tried["kernel"][:8], "--why", "Fewer masks", "--by", "anna", "--quiet"
    )
    assert (
        again.code == 0 and f"its parent {tried['kernel'][:8]}" in again.out and "the record's best before" in again.out
    )
    rows, structures = trials(tmp_path, 2)
    last = structures[rows[-1].kernel]
    assert (last.parent, last.edit, last.rationale) == (tried["kernel"], "kernel:anna", "Fewer masks")
    lineage = run("lineage", last.kernel.digest[:8]).out
    assert (
        "kernel:hand by try" in lineage
        and "kernel:anna by try" in lineage
        and "One element a lane." in lineage
        and "Fewer masks" in lineage
    )
    assert tried["kernel"][:8] in run("leaderboard").out
    page = run("page", task, "right.py", "--quiet").out
    assert "Fewer masks" in page


@pytest.mark.slow
def test_its_space_is_tuned_and_no_more_than_it_has(run, task, tmp_path):
    done = run("try", task, "right.py", "--tune", "50", "--json", "--quiet")
    assert done.json["configs"]["tried"] == 9 and done.json["config"] != {}
    rows, _ = trials(tmp_path)
    assert len(rows) == 10 and len({json.dumps(dict(t.config), sort_keys=True) for t in rows[1:]}) == 9


@pytest.mark.slow
def test_a_wrong_kernel_is_recorded_with_its_reason_and_not_tuned(run, task, tmp_path):
    done = run("try", task, "wrong.py", "--tune", "5", "--quiet")
    assert done.code == 1 and done.out.startswith("reject-wrong at ") and "(kernel " in done.out.split("\n")[0]
    assert "  first wrong element: " in done.out and "  values: " in done.out
    rows, _ = trials(tmp_path)
    assert len(rows) == 2 and rows[1].outcome.verdict.word.value == "reject-wrong"
    assert run("try", task, "right.py", "--parent", "best", "--quiet").code == 0


@pytest.mark.parametrize("text, said", [
    (RIGHT + "\nimport os\n", "at `import os`"), ("x = 1\n", "no @triton.jit function"),
    (RIGHT.replace("def gated(", "def gated("  ).replace(":\n    at", "\n    at"), "line 11"),
])  # fmt: skip
def test_what_is_no_kernel_file_is_one_line_and_not_recorded(run, task, tmp_path, text, said):
    (tmp_path / "bad.py").write_text(text)
    done = run("try", task, "bad.py", "--json", "--quiet")
    assert done.code == 1 and said in done.json["verdict"]["reason"] and "not recorded" in done.json["explained"]
    with Store.open(tmp_path / "kernelsearch.db") as store:
        assert store.load_runs() == []


def test_a_parent_that_is_not_there_is_one_line(run, task):
    done = run("try", task, "right.py", "--parent", "feedbeef", "--quiet")
    assert done.code == 2 and done.err.startswith("kernelsearch: ") and done.err.count("\n") == 1


@pytest.mark.slow
def test_the_tasks_own_kernel_with_another_config_is_the_seed_and_no_child_of_it(run, task, tmp_path):
    seed = TASK[TASK.index("@triton.jit") : TASK.index("def gate(")]
    text = f'import triton\nimport triton.language as tl\n\nCONFIG = {{"BLOCK": 512, "num_warps": 2}}\n\n\n{seed}'
    (tmp_path / "same.py").write_text(text)
    done = run("try", task, "same.py", "--json", "--quiet")
    assert done.code == 0 and done.json["parent"] is None and done.json["config"]["num_warps"] == 2
    rows, structures = trials(tmp_path)
    assert len(rows) == 2 and len(structures) == 1


@pytest.mark.slow
def test_a_search_and_an_agent_at_once_lose_and_double_nothing(task, tmp_path):
    commands = ["try", task, "right.py"], ["optimize", task, "--trials", "3", "--seed", "1"]
    both = [subprocess.Popen([sys.executable, "-m", "kernelsearch", *c, "--quiet"], cwd=tmp_path) for c in commands]
    assert [one.wait(300) for one in both] == [0, 0]
    with Store.open(tmp_path / "kernelsearch.db") as store:
        runs = store.load_runs()
        assert sorted([t.number for t in store.load_trials(r.id)] for r in runs) == [[0, 1], [0, 1, 2]]
        assert all(r.finished for r in runs) and not store.find_written_runs()
