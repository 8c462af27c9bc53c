"""A loop that can never end is recognised after a few turns, and no loop that ends is taken for one."""

import pytest

ENDLESS = {
    "lock_that_is_held": "`while tl.atomic_xchg(p, 1) == 1` never ends in program (0, 0, 0)",
    "flag_of_another": "cannot be judged without a GPU",
    "volatile_load_in_a_helper": "`while not has_come(p)` never ends",
    "work_between_the_looks": "a turn of it changes nothing",
    "no_other_program": "`while spin > 0` never ends",
}
ENDING = (
    "counts_in_memory counts_in_a_name moves_a_block_pointer toggles_in_memory same_names_but_a_longer_walk "
    "stores_the_same_until_the_last"
)


@pytest.mark.parametrize("kernel", ENDLESS)
def test_it_never_ends(results, kernel):
    assert str(results[kernel]).startswith("EndlessLoop: ") and ENDLESS[kernel] in results[kernel]


@pytest.mark.parametrize("kernel", ENDING.split())
def test_it_ends(results, kernel):
    assert results[kernel] == 41


def test_every_kernel_is_in_a_test(results):
    assert set(results) == {*ENDLESS, *ENDING.split()}
