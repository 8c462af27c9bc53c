"""Task files made of parts."""

import textwrap

import pytest
from task_texts import HEAD, KERNEL

from kernelsearch.tasks.load import load


@pytest.fixture
def write(tmp_path):
    def write(*parts, name="scale.py"):
        path = tmp_path / name
        path.write_text("".join(textwrap.dedent(p) for p in parts))
        return path

    return write


@pytest.fixture
def opened(write):
    """The task of a file made of these parts, after HEAD and KERNEL."""
    return lambda *parts: load(write(HEAD, KERNEL, *parts))
