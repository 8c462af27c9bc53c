"""What scripts and notebooks call: typed results, and the same work as the command line's."""

import html
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import triton
from good_task import GOOD

import kernelsearch
from kernelsearch.core.errors import StoreError, StrategyError
from kernelsearch.record.store import Store
from kernelsearch.report import leaderboard as leaderboard_rows
from kernelsearch.report import leaderboard_text
from kernelsearch.report.leaderboard import COLUMNS


def test_every_public_name_is_there_explained_and_imports_nothing_heavy():
    import kernelsearch.verify.gate  # rooms with a function's name do not take its place
    from kernelsearch.measure import timing

    assert timing
    for name in set(kernelsearch.__all__) - {"__version__"}:
        assert callable(getattr(kernelsearch, name)) and getattr(kernelsearch, name).__doc__, name
    assert set(kernelsearch.__all__) <= set(dir(kernelsearch))
    heavy = "import sys, kernelsearch; print([m for m in ('torch', 'triton', 'click', 'optuna') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True).stdout == "[]\n"
    assert tuple(f.name for f in fields(kernelsearch.LeaderboardRow)) == COLUMNS


@pytest.mark.slow
def test_a_script_searches_verifies_measures_and_reads_the_board(borrowing, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text(GOOD)
    found = kernelsearch.optimize(Path("good.py"), trials=4, params={"population": 5}, out="best.py", quiet=True)
    assert (found.task, found.trials, found.interrupted) == ("good", 4, False) and "4 trials of" in str(found)
    assert json.loads(json.dumps(found.facts))["best"]["evidence"] == found.best.evidence == "estimated"
    assert (tmp_path / "best.py").read_text() == found.best.source and "@triton.jit" in found.best.source
    verdict = kernelsearch.verify(Path("good.py"), Path("best.py"))
    assert verdict.accepted and kernelsearch.explain(verdict).startswith("accept\n")
    assert str(verdict) == kernelsearch.explain(verdict) and isinstance(verdict, kernelsearch.Verdict)
    measured = kernelsearch.measure("good.py", "best.py", quiet=True)
    assert measured.right_and_timed and measured.evidence == "estimated" and measured.verdict.accepted
    assert all(set(row) == {"seed", "kernel"} and min(row.values()) > 0 for row in measured.times.values())
    rows = kernelsearch.leaderboard(task="good")
    assert rows[0].speedup == pytest.approx(max(r.speedup for r in rows)) and rows[0].evidence == "estimated"
    with pytest.warns(UserWarning, match="the config of good is estimated for h100, and no GPU has timed it"):
        config = kernelsearch.best_config("good")
    assert config.evidence == "estimated"
    own = next(r for r in rows if r.parent is None)
    assert isinstance(config, triton.Config) and config.all_kwargs().items() >= dict(own.config).items()
    with pytest.raises(StoreError, match="no measured or confirmed config"):
        kernelsearch.best_config("good", evidence="measured")
    assert not capsys.readouterr().err
    assert str(rows) == leaderboard_text.as_text(leaderboard_rows.build_rows(Store.open("kernelsearch.db")))
    for result in (found, verdict, measured, rows, rows[:1]):  # what a notebook shows
        assert html.unescape(result._repr_html_()) == f"<pre>{result}</pre>"


def test_mistakes_are_errors_with_a_sentence(tmp_path):
    (tmp_path / "wrong.py").write_text("import os\n")
    with pytest.raises(StrategyError, match="evolve has no parameter 'populaton': it has .*population"):
        kernelsearch.optimize("none.py", params={"populaton": 5})
    with pytest.raises(StrategyError, match="evolve: population is of type int, and 'x' is not"):
        kernelsearch.optimize("none.py", params={"population": "x"})
    with pytest.raises(kernelsearch.KernelsearchError, match="none.py"):
        kernelsearch.verify("none.py")
    for call, message in (
        (lambda: kernelsearch.optimize("none.py", edits="x.py"), "no file x.py"),
        (lambda: kernelsearch.optimize("none.py", trials=0), "trials is a whole number of at least 1, not 0"),
        (lambda: kernelsearch.best_config("good", evidence="foo"), "evidence is one of estimated, .*, not 'foo'"),
    ):
        with pytest.raises(kernelsearch.KernelsearchError, match=message):
            call()
    (tmp_path / "good.py").write_text(GOOD)
    refused = kernelsearch.measure(str(tmp_path / "good.py"), str(tmp_path / "wrong.py"), quiet=True)
    assert refused.evidence is None and not refused.right_and_timed and refused.verdict.word == "reject-static"
