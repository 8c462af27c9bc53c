"""A search process killed at random moments leaves a whole database and resumes to the same run."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import kills  # (beside this file, since scripts/bench runs it too)


@pytest.mark.slow
def test_killed_and_resumed(tmp_path):
    report = kills.kill_and_resume(str(tmp_path / "a.db"), kills=5, trials=150)
    assert report.faults == () and report.rows == 150 and report.kills >= 1
