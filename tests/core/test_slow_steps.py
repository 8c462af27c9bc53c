"""Who waits is told what for; who need not wait hears nothing. States are waited for, never times."""

import threading

import pytest

from kernelsearch.core import slow_steps as module
from kernelsearch.core.errors import TaskError
from kernelsearch.core.slow_steps import report_progress
from kernelsearch.trial import bench as benches
from kernelsearch.trial.bench import Bench


def test_it_speaks_until_the_work_is_done():
    said, twice = [], threading.Event()

    def say(text):
        said.append(text)
        if len(said) > 1:
            twice.set()

    with report_progress(say, lambda: "working" if not said else "still working", first_s=0.0, again_s=0.0):
        assert twice.wait(60)
    count = len(said)
    assert said[0].startswith("working: ") and all(text.startswith("still working: ") for text in said[1:])
    assert all(text.endswith(" s so far") for text in said)
    assert count == len(said) and not any(t.name == "speaking" for t in threading.enumerate())


def test_short_work_and_nobody_to_tell_are_silent():
    said = []
    with report_progress(said.append, "working", first_s=600.0):
        pass
    with report_progress(None, "working", first_s=0.0):
        pass
    assert said == []


def test_it_ends_when_the_work_fails():
    with pytest.raises(KeyError), report_progress(lambda text: None, "working", first_s=600.0):
        raise KeyError("x")


def test_a_task_file_that_never_ends_is_named_while_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(benches, "OPEN_LIMIT_S", 1.0)
    monkeypatch.setattr(module, "FIRST_S", 0.0)
    monkeypatch.setattr(module, "AGAIN_S", 600.0)
    spoken, opened = threading.Event(), benches._read_task

    def once_spoken(*args):
        assert spoken.wait(60)
        return opened(*args)

    monkeypatch.setattr(benches, "_read_task", once_spoken)
    task = tmp_path / "endless.py"
    task.write_text("while True:\n    pass\n")
    said = []

    def say(text):
        said.append(text)
        spoken.set()

    with pytest.raises(TaskError, match="was not read within 1 s"):
        Bench.open(str(task), say=say)
    assert said[0].startswith(f"reading {task} (its top level")
