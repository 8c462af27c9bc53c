"""Values that forked processes compute: all of them, but for what failed, and nothing on one core."""

import os

import pytest
import torch

from kernelsearch.worker.isolation.forked import compute_forked


def test_values_come_from_other_processes_but_for_those_that_fail(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})

    def describe(item):
        if item == 3:
            raise ValueError(item)
        if item == 5:
            os._exit(1)
        return item * 10, os.getpid()

    values = compute_forked(describe, [0, 1, 2, 3, 4, 6, 7])
    assert {item: value for item, (value, _) in values.items()} == {n: 10 * n for n in (0, 1, 2, 4, 6, 7)}
    assert len({process for _, process in values.values()} - {os.getpid()}) == 3
    assert sorted(compute_forked(describe, [0, 5, 2])) == [0, 2], "the share of a process that ended is missing"


@pytest.mark.parametrize("dtype", [torch.uint32, torch.float8_e4m3fn, torch.bfloat16])
def test_tensors_of_all_dtypes_come_back(monkeypatch, dtype):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    values = compute_forked(lambda n: torch.arange(n).to(dtype), [3, 5])
    assert [v.dtype for v in values.values()] == [dtype, dtype]
    assert all(torch.equal(v.float(), torch.arange(n).float()) for n, v in values.items())


@pytest.mark.parametrize("cores, items", [({0}, [1, 2]), ({0, 1}, [1]), ({0, 1}, [])])
def test_nothing_is_forked_for_one_item_or_on_one_core(monkeypatch, cores, items):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: cores)
    assert compute_forked(str, items) == {}
