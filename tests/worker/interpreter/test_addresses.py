"""A kernel sees imagined addresses; one that peels to an alignment is left alone, one that decides by more is noted."""

import pytest


@pytest.mark.parametrize("name", ("plain", "peeled", "there_and_back"))
def test_alignment_is_a_kernels_own_business(results, name):
    assert results["ran"][name] == [["", True], ["", True]]


@pytest.mark.parametrize(
    "name", ("branches", "distance", "shifted", "offset", "loops", "stored", "reduced", "sorted_in_float")
)
def test_who_decides_by_more_is_noted(results, name):
    assert all("where its buffers lie" in noted for noted, _ in results["ran"][name]), results["ran"][name]


def test_every_kernel_was_looked_at(results):
    assert set(results["honest"]) == {"plain", "peeled", "there_and_back"} and len(results["ran"]) == 11


def test_buffers_begin_as_an_allocator_lets_them(results):
    aligned, moved, view = results["lies"]
    assert aligned == [0, 0, 16] and moved and view == 20
