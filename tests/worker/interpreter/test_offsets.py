"""Offsets of 32 bits that wrap around in the last rows of a large tensor are found; what wraps on purpose is not."""

import pytest


@pytest.mark.parametrize("how, first", [
    ("plain", "524,288"), ("cast too late", "524,288"), ("chosen", "524,288"), ("last row apart", "524,287"),
])  # fmt: skip
def test_the_first_program_that_wraps_is_named(results, how, first):
    assert f"an offset of 32 bits wraps around from program {first} of 700,000 on" in results[how]


def test_an_index_that_few_programs_load_is_as_large_as_the_largest(results):
    assert "an offset of 32 bits wraps around where at_ptr holds 699,999" in results["index"]
    assert "wraps around from program 215 of 1,000 on" in results["both"]  # whatever the indices are


@pytest.mark.parametrize("how", ["index, exact", "index, small", "index, and one more"])
def test_indices_of_which_no_access_inside_a_buffer_wraps_are_left_alone(results, how):
    assert results[how] == ""


@pytest.mark.parametrize("how", ["in lanes that are off", "hash", "undone", "exact"])
def test_what_reaches_no_address_is_left_alone(results, how):
    assert results[how] == ""
