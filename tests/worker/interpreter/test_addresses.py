"""A kernel sees imagined addresses; one that peels to an alignment is left alone, one that decides by more is noted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def found():
    """What `addressed.py` found in a process of its own, because one process is interpreter or compiler for life."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("addressed.py")], env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ("plain", "peeled", "there_and_back"))
def test_alignment_is_a_kernels_own_business(found, name):
    assert found["ran"][name] == [["", True], ["", True]]


@pytest.mark.parametrize(
    "name", ("branches", "distance", "shifted", "offset", "loops", "stored", "reduced", "sorted_in_float")
)
def test_who_decides_by_more_is_noted(found, name):
    assert all("where its buffers lie" in noted for noted, _ in found["ran"][name]), found["ran"][name]


def test_every_kernel_was_looked_at(found):
    assert set(found["honest"]) == {"plain", "peeled", "there_and_back"} and len(found["ran"]) == 11


def test_buffers_begin_as_an_allocator_lets_them(found):
    aligned, moved, view = found["lies"]
    assert aligned == [0, 0, 16] and moved and view == 20
