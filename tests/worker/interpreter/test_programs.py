"""Programs in the interpreter: every address is checked before it is touched, and what they do is counted exactly."""

import pytest


def test_inside_its_buffers_nothing_is_refused(results):
    for name in ("inside", "again_inside", "by_row_inside"):
        refused, output = results[name]
        assert refused is None and output == [2.0] * 100
    refused, output = results["atomic_inside"]
    assert refused is None and output[-1] == 3.0 and sum(output) == 3.0


@pytest.mark.parametrize("name, what, lanes, written", [
    ("store_behind", "store in program (1, 0, 0)", 1, 64),  # program 0 was fine and stays written
    ("store_far", "store in program (0, 0, 0)", 64, 0),
    ("store_before", "store in program (0, 0, 0)", 1, 0),
    ("by_row_behind", "load in program (1, 0, 0)", 1, 64),  # the mask of a tile and a truth value of the whole program
    ("load_behind", "load in program (0, 0, 0)", 1, 0),
    ("load_far", "load in program (0, 0, 0)", 64, 0),
    ("load_at_null", "load in program (0, 0, 0)", 1, 0),
    ("load_at_the_end_of_all_addresses", "load in program (0, 0, 0)", 1, 0),
    ("atomic_behind", "atomic in program (0, 0, 0)", 1, 0),
])  # fmt: skip
def test_outside_its_buffers_nothing_is_touched(results, name, what, lanes, written):
    refused, output = results[name]
    assert refused.startswith(f"{lanes} lanes of a {what} lie outside every buffer")
    assert sum(value != 0.0 for value in output) == written


def test_a_bfloat16_constant_is_a_value(results):
    """Triton's interpreter has a method for constants of every other type, and fails on this one."""
    refused, output = results["half_constant"]
    assert refused is None and output == [1.5] * 64


def test_an_argument_may_be_a_truth_value(results):
    """Triton's interpreter up to 3.8 makes 32 bits of it, and refuses them."""
    assert results["flagged"] == [[3.0] * 4, [1.0] * 4]


def test_the_index_of_the_largest_of_nothing_but_nan_is_an_index(results):
    """The second of four rows is NaN throughout, as a row that is not there may be; from 3.8 on numpy would raise."""
    refused, output = results["indexed"]
    assert refused is None and output[:5] == [0.0, 0.0, 202.0, 303.0, 7.0]


def test_programs_run_in_the_order_that_is_asked_for(results):
    orders = results["orders"]
    assert orders["forward"] == "01234567" and orders["reversed"] == "76543210"
    assert sorted(orders["shuffled"]) == sorted("01234567") and orders["shuffled"] not in ("01234567", "76543210")


def exactly(counts, **numbers):
    for name, number in numbers.items():
        assert counts[name] == pytest.approx(number, rel=1e-9), name


def test_vector_add_is_counted_exactly(results):
    n = 98_304
    exactly(results["vector_add"], programs=96, load_bytes=8 * n, store_bytes=4 * n, footprint_bytes=12 * n, elements=n,
            special=0, reductions=0, loads=2 * 96, iterations=0, tile=1024)  # fmt: skip


def test_a_loop_variable_is_what_compiled_code_has(results):
    """32 bits that wrap around, 64 where a bound has them, and a number in `static_range`; in helpers too."""
    assert results["loops"] == [3 * 2**30, 3 * 2**30 - 2**32, 32, 2**32, 6, 4, 7, 0, 32]
    assert results["loops_counted"]["iterations"] == 1 + 1 + 3 + 8 and results["loops_counted"]["programs"] == 1


def test_an_update_in_place_crosses_the_bus_twice_and_what_was_stored_here_once(results):
    n = 98_304
    exactly(results["in_place"], load_bytes=4 * n, store_bytes=4 * n, footprint_bytes=8 * n)
    exactly(results["stored_first"], load_bytes=8 * n, store_bytes=8 * n, footprint_bytes=8 * n)


@pytest.mark.parametrize("name, block", [("softmax", 1024), ("softmax_whole", 4096)])
def test_a_looped_softmax_is_counted_exactly(results, name, block):
    """Three passes; at 1024 each loop has 8 iterations, of which 3 are run and stand for all of them."""
    rows, cols = 512, 8192
    n, steps = rows * cols, cols // block
    # reading thrice, writing once; two reductions, two subtractions; two exponentials and a division
    exactly(results[name], load_bytes=12 * n, store_bytes=4 * n, footprint_bytes=8 * n, elements=4 * n, special=3 * n,
            reductions=2 * rows * steps, loads=3 * rows * steps, iterations=3 * steps, tile=block)  # fmt: skip


def test_a_matmul_is_counted_exactly(results):
    m, n, k, bm, bn, bk = 256, 128, 512, 64, 32, 32
    programs = (m // bm) * (n // bn)
    exactly(results["matmul"], programs=programs, load_bytes=programs * k * (bm + bn) * 2, store_bytes=4 * m * n,
            footprint_bytes=2 * m * k + 2 * k * n + 4 * m * n, iterations=k // bk, loads=2 * programs * k // bk,
            elements=m * n * k // bk, tile=bm * bn)  # fmt: skip
    assert results["matmul"]["flops_dot"] == {"16": pytest.approx(2.0 * m * n * k)}


def test_a_compare_and_swap_is_counted_at_its_true_address(results):
    exactly(results["take_turns"], programs=4, atomics=4, store_bytes=4 * (32 + 4), load_bytes=0)


def test_all_candidates_are_counted_in_the_same_programs_and_more_where_lengths_are_data(results):
    plain, squared, other = results["ragged"]
    assert plain["programs"] == squared["programs"] != other["programs"] and plain["loads"] == squared["loads"]
    assert len(plain["programs"]) > 20 and len(results["even"]["programs"]) == 2
    for found in (plain, other):
        assert found["loads"] == pytest.approx(found["truth"], rel=0.3)
        assert found["turns"] == pytest.approx(found["truth"] / (256 * 256), rel=0.3)
