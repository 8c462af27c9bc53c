"""A user's own autotuned kernel is compared with at its best, not at the first config of its list; everywhere."""

import json

import pytest
from good_task import GOOD

TUNED = GOOD.replace(
    "@triton.jit",
    "@triton.autotune([triton.Config({'BLOCK': b}, num_warps=w) for b, w in ((1, 1), (64, 2), (1024, 4))], key=['n'])\n"
    "@triton.jit",
).replace("double_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128, num_warps=4)",
          "double_kernel[lambda m: (triton.cdiv(x.numel(), m['BLOCK']),)](x, y, x.numel())"
).replace('SPACE = {"num_warps": [1, 2, 4]}\n', "").replace("dict(rows=8)", "dict(rows=4096)")  # fmt: skip
SAID = "the seed at the best of its 3 configs"


@pytest.fixture
def searched(tmp_path, run):
    (tmp_path / "tuned.py").write_text(TUNED)
    done = run("optimize", "tuned.py", "--trials", "6", "--target", "h100")
    assert done.code == 0, done.err
    return done


@pytest.mark.slow
def test_no_figure_is_against_the_first_of_its_configs(searched, run, tmp_path):
    """At a BLOCK of 1 the kernel is a hundred times slower than at its best, which a search cannot beat by much."""
    assert SAID in searched.out and "tuning the task's own kernel over the 3 configs" in searched.err
    board = run("leaderboard", "--json").json
    assert all(row["seed_configs"] == 3 for row in board) and max(row["speedup"] for row in board) < 2
    assert f"x seed: {SAID}" in run("leaderboard").out
    assert f"from {SAID} to" in run("lineage", "best").out
    assert SAID in run("show", "best").out
    assert run("leaderboard", "--html", "page.html").code == 0
    assert SAID in (tmp_path / "page.html").read_text()
    done = run("export", "--task", "tuned", "--out", "out", "--name", "tuned-double", "--evidence", "estimated")
    assert done.code == 0, done.err
    assert (
        "The task's own kernel is taken at the best of its own 3 configs." in (tmp_path / "out/README.md").read_text()
    )
    (evidence,) = (tmp_path / "out").rglob("evidence.json")
    assert json.loads(evidence.read_text())["tasks"]["tuned"]["task"]["seed_config"]["BLOCK"] > 1


@pytest.mark.slow
def test_the_list_is_tuned_once_and_measure_means_the_same_seed(searched, run):
    again = run("optimize", "tuned.py", "--trials", "6", "--target", "h100", "--seed", "1", "--json")
    assert "tuning the task's own kernel" not in again.err and again.json["seed"]["configs"] == 3
    assert again.json["seed"]["config"]["BLOCK"] > 1
    assert SAID in run("measure", "tuned.py", "--target", "h100").out
