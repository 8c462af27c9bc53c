"""The shortened interpreter gives what Triton's own gives: values bit for bit, and the same errors."""

import pytest

from kernelsearch.kernel import language


@pytest.mark.parametrize("name", ("mixed", "spreads", "wraps", "described"))
def test_values_are_those_of_the_long_way(results, name):
    assert results["short"][name] == results["long"][name] == results["after"][name]
    assert all(len(digest) == 64 for digest in results["short"][name])


def test_block_pointers_where_triton_has_them(results):
    assert results["short"]["blocked"] == results["long"]["blocked"] == results["after"]["blocked"]
    for outcome in results["short"]["blocked"]:
        if language.installed_version() <= language.LAST_BLOCK_POINTERS:
            assert len(outcome) == 64
        else:
            assert outcome.startswith("NotImplementedError: Block pointers have been removed")


@pytest.mark.parametrize("name", ("shapes_differ", "not_a_power", "float_pointer", "unsigned_and_negative"))
def test_what_was_an_error_is_the_same_error(results, name):
    assert results["short"][name] == results["long"][name] == results["after"][name]
    assert all(": " in error for error in results["short"][name])


def test_every_kernel_was_looked_at(results):
    assert len(results["short"]) == 9
