"""A search process killed at random moments leaves a whole database and resumes to the same run."""

import kills


def test_killed_and_resumed(tmp_path):
    report = kills.kill_and_resume(str(tmp_path / "a.db"), kills=5, trials=150)
    assert report.faults == () and report.rows == 150 and report.kills >= 1
