"""The shortened interpreter gives what Triton's own gives: values bit for bit, and the same errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelsearch.kernel import language


@pytest.fixture(scope="module")
def found():
    """What `leaned.py` found in a process of its own, because one process is interpreter or compiler for life."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("leaned.py")], env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ("mixed", "wraps", "described"))
def test_values_are_those_of_the_long_way(found, name):
    assert found["short"][name] == found["long"][name] == found["after"][name]
    assert all(len(digest) == 64 for digest in found["short"][name])


def test_block_pointers_where_triton_has_them(found):
    assert found["short"]["blocked"] == found["long"]["blocked"] == found["after"]["blocked"]
    for outcome in found["short"]["blocked"]:
        if language.installed() <= language.LAST_BLOCK_POINTERS:
            assert len(outcome) == 64
        else:
            assert outcome.startswith("NotImplementedError: Block pointers have been removed")


@pytest.mark.parametrize("name", ("shapes_differ", "not_a_power", "float_pointer", "unsigned_and_negative"))
def test_what_was_an_error_is_the_same_error(found, name):
    assert found["short"][name] == found["long"][name] == found["after"][name]
    assert all(": " in said for said in found["short"][name])


def test_every_kernel_was_looked_at(found):
    assert len(found["short"]) == 8
