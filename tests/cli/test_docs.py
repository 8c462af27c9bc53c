"""What the documents say of the command line is so: every command and option that they name exists, every help fits."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kernelsearch.cli import main
from kernelsearch.cli.help import TOPICS, path_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path_of(topic) for topic in TOPICS]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES, *sorted((ROOT / "studies").rglob("*.md"))]
COMMANDS = sorted(main.commands)


def said():
    """(document, the words after `kernelsearch`) of every command line in backticks or in a block."""
    for document in DOCUMENTS:
        for line in re.findall(r"(?:`|^\$ |/bin/)kernelsearch ([^`\n]+)", document.read_text(), re.MULTILINE):
            yield pytest.param(line, id=f"{document.parent.name}/{document.name}: {line[:60]}")


@pytest.mark.parametrize("line", list(said()))
def test_a_command_line_of_the_documents_is_understood(line):
    words = shlex.split(line.split(" > ")[0].split("#")[0].replace("\\|", "|"))
    if words[0].startswith("-"):
        return
    command = main.commands.get(words[0])
    assert command is not None, f"no command {words[0]}"
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    assert {w.split("=")[0] for w in words if w.startswith("--")} <= known | {"--help"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_readme_names_every_command(name):
    assert f"`kernelsearch {name}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_a_command_does_and_what_every_option_means(name):
    result = CliRunner().invoke(main, [name, "--help"], terminal_width=80)
    assert result.exit_code == 0 and all(len(line) <= 80 for line in result.output.splitlines())
    command = main.commands[name]
    assert command.help and all(o.help for o in command.params if isinstance(o, click.Option))


def test_the_list_of_commands_says_each_in_a_whole_sentence():
    whole = CliRunner().invoke(main, ["--help"], terminal_width=80).output.split("Begin:\n")[1]
    lines = [line for line in whole.splitlines() if line.startswith("  ")]
    assert len(lines) == len(COMMANDS) and all(line.endswith(".") and not line.endswith("...") for line in lines), lines


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell):
    environment = {**os.environ, "_KERNELSEARCH_COMPLETE": f"{shell}_source"}
    program = Path(sys.executable).with_name("kernelsearch")
    done = subprocess.run([str(program)], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "kernelsearch" in done.stdout


def test_no_color_and_pipes_get_plain_text(tmp_path):
    for words, extra in ((["help", "trust"], {"NO_COLOR": "1"}), (["--help"], {"FORCE_COLOR": "", "TERM": "dumb"})):
        done = subprocess.run([sys.executable, "-m", "kernelsearch", *words],
                              env={**os.environ, **extra}, cwd=tmp_path,
                              capture_output=True, text=True, timeout=120)  # fmt: skip
        assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr
