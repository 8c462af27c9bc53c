"""A user's files are executed as they are now: Python takes a bytecode file for theirs by the second and the size."""

import os
import sys

import pytest

from kernelsearch.core.errors import KernelsearchError
from kernelsearch.core.plugins import execute_file
from kernelsearch.tasks.module import import_file


@pytest.mark.parametrize(
    "read", [import_file, lambda path, name: execute_file(path, name, KernelsearchError)], ids=["a task", "a plugin"]
)
def test_a_change_within_a_second_is_seen(tmp_path, monkeypatch, read):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "mine.py"
    for number, word in enumerate(("ieee", "tf32")):
        path.write_text(f"PRECISION = {word!r}\n")
        os.utime(path, (1e9, 1e9))
        assert word == read(path, f"changed_{number}").PRECISION
    assert not (tmp_path / "__pycache__").exists()


def test_a_task_leaves_no_bytecode_beside_what_it_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "beside_the_task.py").write_text("PRECISION = 'ieee'\n")
    task = tmp_path / "importing.py"
    task.write_text("from beside_the_task import PRECISION\n")
    assert import_file(task, "importing").PRECISION == "ieee"
    assert not (tmp_path / "__pycache__").exists()
    assert not sys.dont_write_bytecode
