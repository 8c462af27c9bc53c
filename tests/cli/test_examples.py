"""The README's examples run: every command of its table and of its blocks that needs no GPU, server or network.

Placeholders are filled in; a new row or block with a placeholder, or a command that nobody accounted for, fails here.
"""

import re
import shlex
from pathlib import Path

import pytest
from good_task import GOOD

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()

STUDY = 'trials = 3\nseeds = 1\n[[task]]\npath = "good.py"\n[[arm]]\nname = "tpe"\n[[arm]]\nname = "random_walk"\n'
FILLED = {
    "TASK.py": "good.py", "FILE.py": "good.py", "[KERNEL.py]": "best.py", "KERNEL.py": "best.py", "N": "3",
    "FILE.toml": "study.toml",
    "FILE": "other.db", "--task NAME": "--task good", "DIR": "exported", "NAME": "layernorm", "softmax": "good",
    "task.py": "good.py", "TOPIC": "task",
}  # fmt: skip
ELSEWHERE = {"ui", "mcp", "dataset", "train", "collect", "apply"}
"""Servers: tests/cli/test_ui.py, tests/cli/test_mcp.py; what needs many gains to learn from: tests/train; models:
tests/graphs."""


def table():
    """The commands of the README's table, in its order: the first cell may hold several."""
    rows = re.search(r"\| command \| does \|\n\|---\|---\|\n(.*?)\n\n", README, re.DOTALL).group(1)
    return [c for row in rows.splitlines() for c in re.findall(r"`(kernelsearch [^`]*)`", row.split(" | ")[0])]


def blocks():
    """Command lines of the README's console blocks that begin with kernelsearch."""
    lines = "".join(re.findall(r"```console\n(.*?)```", README, re.DOTALL)).splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ kernelsearch")]
    return [command.split("#  ")[0].split("   #")[0].strip() for command in commands]


def filled(command):
    command = command.replace("--task NAME", "--task good")
    words = [FILLED.get(word, word) for word in shlex.split(command)]
    return words[1:]


@pytest.fixture
def folder(run, tmp_path):
    """A folder as the README's reader has it: a task, its database, another database, the best kernel, a study."""
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "study.toml").write_text(STUDY)
    assert run("optimize", "good.py", "--trials", 3, "--quiet", "--db", "other.db").code == 0
    assert run("optimize", "good.py", "--trials", 3, "--quiet", "--out", "best.py").code == 0
    return tmp_path


def did(run, command, folder):
    words = filled(command)
    target = words.pop(words.index(">") + 1) if ">" in words else None
    words = [w for w in words if w != ">"]
    if words[0] == "export":
        words += ["--evidence", "estimated"]  # nothing is confirmed without a GPU; the README's names no evidence
    done = run(*words)
    assert done.code == 0, (command, done.err, done.out)
    assert "Traceback" not in done.err
    if target:
        (folder / target).write_text(done.out)
    return done


@pytest.mark.slow
def test_the_commands_of_the_table_run(run, folder):
    commands = table()
    assert len(commands) >= 17 and len({c.split()[1] for c in commands}) >= 17
    for command in commands:
        if command.split()[1] not in ELSEWHERE:
            did(run, command, folder)
    assert (folder / "best.py").read_text().startswith("# kernel ") and (folder / "exported" / "dist").is_dir()


@pytest.mark.slow
def test_the_command_lines_of_the_blocks_run(run, folder):
    models = ("--model", "openai:", "replay:")
    able = [c for c in blocks() if not any(word in c for word in models) and c.split()[1] not in ELSEWHERE]
    assert len(able) >= 3, "the rest needs a model or a server: tests/propose and tests/cli/test_propose.py"
    for command in able:
        did(run, command, folder)


@pytest.mark.slow
def test_the_task_of_the_readme_is_accepted_as_it_stands(run, tmp_path):
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "def reference" in b]
    (tmp_path / "gate.py").write_text(block)
    assert run("verify", "gate.py").json["verdict"] == "accept"


def test_the_scripts_that_the_documents_name_exist():
    for document in (README, (ROOT / "CONTRIBUTING.md").read_text()):
        for name in set(re.findall(r"`?scripts/([a-z][a-z-]*)", document)):
            assert (ROOT / "scripts" / name).is_file(), name
