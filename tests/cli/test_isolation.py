"""A missing layer of isolation is said by every command that runs candidates, kept with the verdicts, or refused."""

import json

import pytest
from good_task import GOOD, KERNEL, one_line

from kernelsearch.record.store import Store
from kernelsearch.worker.processes.pool import Pool

STUDY = """
trials = 2
seeds = 1
[[task]]
path = "good.py"
[[arm]]
name = "evolve"
"""
HEAD = "import triton\nimport triton.language as tl\n\n"
COMMANDS = {
    "optimize": ["optimize", "good.py", "--trials", 2],
    "verify": ["verify", "good.py", "kernel.py"],
    "study": ["study", "study.toml"],
}
SAID = r"compile worker without landlock \(ENOSYS\); evaluate worker without landlock \(ENOSYS\)"


@pytest.fixture(params=["as it is", "without Landlock"])
def missing(request, monkeypatch, tmp_path):
    for name, text in (("good.py", GOOD), ("kernel.py", HEAD + KERNEL), ("study.toml", STUDY)):
        (tmp_path / name).write_text(text)
    lacks = request.param != "as it is"
    monkeypatch.setattr(Pool, "missing", (("landlock", "ENOSYS"),) if lacks else ())
    return lacks


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_said_or_refused(run, missing, command):
    strict = run(*COMMANDS[command], "--require-isolation")
    if missing:
        lines = one_line(strict, f"--require-isolation: {SAID}")
        assert "doctor" in lines[-1]
    else:
        assert strict.code == 0
    done = run(*COMMANDS[command], *(["--db", "other.db"] if command != "verify" else []))
    assert done.code == 0, done.err
    assert done.err.count("candidates are not fully isolated: compile worker without landlock (ENOSYS)") == missing


@pytest.mark.slow
def test_it_is_kept_with_every_verdict(run, missing, tmp_path):
    assert run(*COMMANDS["optimize"], "--quiet").code == 0
    with Store.open(tmp_path / "kernelsearch.db", write=False) as store:
        kept = [json.loads(row["detail"]).get("missing isolation") for row in store.query("SELECT detail FROM trial")]
    wanted = [f"{role} worker without landlock (ENOSYS)" for role in ("compile", "evaluate")] if missing else None
    assert kept == [wanted] * 2
    done = run(*COMMANDS["verify"], "--explain")
    assert done.json["detail"].get("missing isolation") == wanted
    assert ("missing isolation" in done.err) == missing


@pytest.mark.parametrize("command", [["measure"], ["hints"]], ids=lambda c: c[0])
def test_commands_without_a_record_say_it_too(run, missing, command):
    """They refuse with the same line where it is required; the rest of their work is tested elsewhere."""
    if missing:
        one_line(run(command[0], "good.py", *command[1:], "--require-isolation"), f"--require-isolation: {SAID}")
    if missing and command == ["hints"]:
        done = run(*command, "good.py")
        assert done.code == 0 and done.err.count("candidates are not fully isolated: compile worker without") == 1
