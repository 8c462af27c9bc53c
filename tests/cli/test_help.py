"""The reference pages: every topic is there, its examples work, and no option of a task file is missing."""

import re

import pytest
from good_task import one_line

from kernelsearch.cli import SECTIONS, main, run_doctor
from kernelsearch.cli.help import PAGES, TOPICS, path_of
from kernelsearch.core.types import Word


def blocks(topic):
    return re.findall(r"```python\n(.*?)```", path_of(topic).read_text(), re.DOTALL)


def test_every_page_is_a_topic_and_the_other_way_round():
    assert {path_of(topic) for topic in TOPICS} == {*PAGES.glob("*.md"), path_of("kernel")}


def test_help_alone_lists_the_topics(run):
    done = run("help")
    assert done.code == 0 and all(re.search(rf"kernelsearch help {topic}  +[A-Z]", done.out) for topic in TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_is_printed_as_it_is_where_nobody_looks(run, topic):
    assert run("help", topic).out == path_of(topic).read_text()


def test_the_help_of_a_command_is_that_commands_own(run):
    assert run("help", "optimize").out == run("optimize", "--help").out


def test_help_lists_every_command_and_every_option_once_under_its_section(run):
    whole = run("--help").out
    for title, commands in SECTIONS.items():
        part = whole.partition(f"{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines()] == [c.name for c in commands]
    assert sum(len(commands) for commands in SECTIONS.values()) == len(main.commands)
    search = run("optimize", "--help").out
    titles = [line for line in search.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["The search:", "Who proposes:", "The result:", "The machine:", "Other options:"]
    for option in (p.opts[0] for p in main.commands["optimize"].params if p.opts[0].startswith("--")):
        assert len(re.findall(rf"^  {option}\b(?!-)", search, re.MULTILINE)) == 1


def test_an_unknown_topic_names_the_known_ones(run):
    done = run("help", "nothing")
    assert done.code == 2 and "task, kernel, models, agents, python, machines, how, trust" in done.err


@pytest.mark.slow
def test_the_example_of_a_task_is_accepted(run, tmp_path):
    (tmp_path / "gate.py").write_text(blocks("task")[0])
    done = run("verify", "gate.py")
    assert done.code == 0 and done.json["verdict"] == "accept", done.out


@pytest.mark.slow
def test_the_example_of_a_kernel_is_accepted(run, tmp_path):
    assert run("new", "column_sum").code == 0
    (tmp_path / "split.py").write_text(blocks("kernel")[0])
    done = run("verify", "column_sum.py", "split.py")
    assert done.code == 0 and done.json["verdict"] == "accept", done.out


@pytest.mark.slow
def test_the_example_of_a_reward_runs(run, tmp_path, monkeypatch, capsys):
    run("new", "softmax")
    monkeypatch.chdir(tmp_path)
    exec(next(b for b in blocks("python") if "Environment" in b), {})
    value, level, reason = capsys.readouterr().out.split(maxsplit=2)
    assert (value, level) == ("0.0", "slower") and "of the parent's time (estimated)" in reason


def test_the_skill_is_two_pages_under_a_head_and_names_what_the_referee_says(run):
    skill = run("skill").out
    head, agents, kernel = skill.partition("# Agents")[0], path_of("agents").read_text(), path_of("kernel").read_text()
    assert re.fullmatch(r"---\nname: kernelsearch\ndescription: .{40,200}\n---\n\n", head)
    assert skill == f"{head}{agents}\n{kernel}", "its example is the page's, which is verified above"
    assert set(re.findall(r"`(reject-[a-z]+|timeout|crash)`", agents)) == {word.value for word in Word} - {"accept"}
    assert len(skill.splitlines()) < 130


def test_a_server_without_its_package_is_one_line(run, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    one_line(run("mcp"), "kernelsearch: mcp is not installed for .* install .*mcp")


def test_every_option_of_a_task_file_is_explained():
    page = (PAGES / "task.md").read_text()
    names = "SHAPES TEST_SHAPES SPACE CONFIG LAUNCHER PRECISION TOLERANCE DOMAIN MUTATES BASELINES".split()
    from kernelsearch.tasks import forms

    values = [*forms.PRECISIONS, *forms.DOMAINS]
    assert all(f"`{name}`" in page for name in [*names, "bytes_moved"]) and all(f'"{v}"' in page for v in values)


@pytest.mark.parametrize("topic", TOPICS)
def test_lines_of_a_list_are_indented(topic):
    """Else a page that is read as it is looks broken, and Markdown may end the list there."""
    in_item = in_code = False
    for number, line in enumerate(path_of(topic).read_text().splitlines(), 1):
        in_code ^= line.startswith("```")
        assert not in_item or not line or line.startswith((" ", "- ")) or re.match(r"\d+\. ", line), (topic, number)
        in_item = not in_code and bool(re.match(r"- |\d+\. ", line) or (in_item and line))


def test_the_doctors_lines_are_short():
    row = {"name": "GPU", "works": "no", "meaning": f"none visible; {'a long word ' * 30}; short"}
    lines = run_doctor.format_findings([row, {"name": "torch", "works": "yes", "meaning": "2.13"}]).splitlines()
    assert lines[0] == "no   GPU    none visible" and lines[-2:] == [" " * 12 + "short", "yes  torch  2.13"]
    assert max(map(len, lines)) <= run_doctor.WIDTH and all(line.startswith(" " * 14) for line in lines[2:-2])
