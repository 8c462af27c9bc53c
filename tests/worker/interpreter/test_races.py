"""The access log accuses programs that depend on each other's order, and no others."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from triton.runtime.interpreter import interpreter_builder as builder

from kernelsearch.evaluate.faults import Race
from kernelsearch.worker.interpreter.races import AccessLog
from kernelsearch.worker.launcher.standin import fill_with_poison


@pytest.fixture
def memory():
    builder.set_grid_dim(4, 1, 1)
    return torch.zeros(16)


def program(number):
    builder.set_grid_idx(number, 0, 0)


def at(memory, *indices):
    return SimpleNamespace(data=np.array([memory.data_ptr() + 4 * i for i in indices], dtype=np.uint64))


def store(log, memory, indices, values, mask=None):
    """What the interpreter does: the log first, then the store."""
    handle = at(memory, *indices)
    values = np.array(values, dtype=np.float32)
    mask = np.ones(len(indices), dtype=bool) if mask is None else np.array(mask)
    log.store(handle, SimpleNamespace(data=values), mask)
    for index, value, on in zip(indices, values, mask):
        if on:
            memory[index] = float(value)


def poisoned():
    fresh = torch.empty(4)
    fill_with_poison(fresh)
    return fresh


def everywhere(handle):
    return np.ones(handle.data.shape, dtype=bool)


def load(log, memory, *indices):
    handle = at(memory, *indices)
    log.load(handle, everywhere(handle))


def update(log, memory, *indices):
    handle = at(memory, *indices)
    log.update(handle, everywhere(handle))


def test_disjoint_stores_and_own_loads_are_no_race(memory):
    log = AccessLog({"y": memory})
    for number in range(4):
        program(number)
        store(log, memory, [4 * number, 4 * number + 1], [1.0, 2.0])
        load(log, memory, 4 * number)
        store(log, memory, [4 * number], [3.0])


def test_the_same_value_twice_is_benign_and_another_value_is_not(memory):
    log = AccessLog({"y": memory})
    program(0)
    store(log, memory, [0, 1], [1.0, float("nan")])
    program(1)
    store(log, memory, [0, 1], [1.0, float("nan")])
    with pytest.raises(Race, match=r"element 1 of 'y'.*\(1, 0, 0\).*another value by program \(2, 0, 0\)"):
        program(2)
        store(log, memory, [0, 1], [1.0, 2.0])


def test_masked_lanes_touch_nothing(memory):
    log = AccessLog({"y": memory})
    program(0)
    store(log, memory, [0, 1], [1.0, 1.0])
    program(1)
    store(log, memory, [1, 2], [5.0, 5.0], mask=[False, True])


def test_loading_what_another_program_stored(memory):
    log = AccessLog({"y": memory})
    program(0)
    store(log, memory, [3], [1.0])
    program(1)
    load(log, memory, 2)
    with pytest.raises(Race, match="is loaded by"):
        load(log, memory, 3)


def test_storing_another_value_to_what_another_program_loaded(memory):
    log = AccessLog({"y": memory})
    program(0)
    load(log, memory, 0, 1, 2, 3)
    program(1)
    load(log, memory, 2, 3)
    store(log, memory, [1, 2], [0.0, 5.0], mask=[True, False])  # the same value, and a masked lane
    with pytest.raises(Race, match=r"element 2 of 'y', loaded by program \(0, 0, 0\), is given another value by .*\(1"):
        store(log, memory, [2], [5.0])
    with pytest.raises(Race, match="loaded by .* updated atomically"):
        update(log, memory, 3)


def test_who_holds_a_lock_may_change_what_others_loaded(memory):
    log = AccessLog({"y": memory})
    for number in range(3):
        program(number)
        update(log, memory, 15)
        load(log, memory, 0)
        store(log, memory, [0], [float(number)])


def test_several_values_in_one_store(memory):
    log = AccessLog({"y": memory})
    program(0)
    store(log, memory, [5, 5, 6], [1.0, 1.0, 2.0])
    with pytest.raises(Race, match="several values"):
        store(log, memory, [7, 8, 7], [1.0, 1.0, 2.0])


def test_atomics_among_themselves_are_no_race(memory):
    log = AccessLog({"y": memory})
    for number in range(3):
        program(number)
        update(log, memory, 0, 1)


def test_one_initialises_and_others_add(memory):
    log = AccessLog({"y": memory})
    program(0)
    store(log, memory, [0], [0.0])
    program(1)
    with pytest.raises(Race, match="updated atomically"):
        update(log, memory, 0)


def test_loading_a_sum_that_others_still_add_to(memory):
    log = AccessLog({"y": memory})
    program(0)
    update(log, memory, 0)
    program(1)
    with pytest.raises(Race, match="updated by"):
        load(log, memory, 0)


def test_who_arrived_last_at_a_counter_may_read_the_others_parts(memory):
    log = AccessLog({"y": memory})
    for number in range(3):
        program(number)
        store(log, memory, [number], [1.0])
        update(log, memory, 15)
    load(log, memory, 0, 1, 2)
    store(log, memory, [15], [0.0])


def test_a_new_program_has_not_arrived_anywhere(memory):
    log = AccessLog({"y": memory})
    program(0)
    store(log, memory, [0], [1.0])
    update(log, memory, 15)
    program(1)
    with pytest.raises(Race):
        load(log, memory, 0)


def test_buffers_are_told_apart(memory):
    other = torch.zeros(16)
    log = AccessLog({"x": memory, "y": other})
    program(0)
    store(log, memory, [0], [1.0])
    program(1)
    load(log, other, 0)
    both = SimpleNamespace(data=np.array([other.data_ptr(), memory.data_ptr()], dtype=np.uint64))
    with pytest.raises(Race, match="'x'"):
        log.load(both, everywhere(both))


def test_a_load_of_what_nothing_has_written_is_noted_and_no_race(memory):
    fill_with_poison(memory)
    fresh = frozenset({memory.untyped_storage().data_ptr()})
    for log in (AccessLog({"y": memory}), AccessLog({"y": memory}, fresh)):
        program(1)
        store(log, memory, [3], [1.0])
        load(log, memory, 3)
        assert not log.suspect
        store(log, memory, [7], [float("nan")])  # of an empty row, say
        load(log, memory, 7)
        assert not log.suspect
        load(log, memory, 3, 5)
    assert log.suspect == "program (1, 0, 0) loads element 5 of 'y', which nothing has written"


@pytest.mark.parametrize("act", [lambda log, m: store(log, m, [2], [0.0]), lambda log, m: update(log, m, 2)])
def test_a_store_to_an_input_is_noted_though_it_changes_nothing(memory, act):
    log = AccessLog({"x": memory}, inputs=frozenset({memory.untyped_storage().data_ptr()}))
    program(2)
    load(log, memory, 2)
    assert not log.suspect
    act(log, memory)
    assert log.suspect == "program (2, 0, 0) writes to element 2 of 'x', which is an input" and log.writing == {2}


def test_what_was_written_after_reading_the_unwritten_is_withdrawn(memory):
    scratch, out = poisoned(), poisoned()
    fresh = frozenset(t.untyped_storage().data_ptr() for t in (scratch, out))
    log = AccessLog({"s": scratch, "y": out}, fresh)
    program(0)
    store(log, scratch, [0], [5.0])
    load(log, scratch, 0)
    store(log, out, [0], [1.0])
    program(1)
    load(log, scratch, 1)
    store(log, out, [1], [2.0])
    assert log.blank == {1} and log.withdraw({"s": scratch, "y": out})
    assert out[0] == 1.0 and scratch[0] == 5.0 and torch.isnan(out[1:]).all()


def test_what_is_not_poisoned_cannot_be_withdrawn(memory):
    scratch = poisoned()
    log = AccessLog({"s": scratch, "y": memory}, frozenset({scratch.untyped_storage().data_ptr()}))
    program(2)
    load(log, scratch, 3)
    store(log, memory, [1], [2.0])
    assert not log.withdraw({"s": scratch, "y": memory}) and memory[1] == 2.0
