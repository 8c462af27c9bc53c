"""`kernelsearch import`, as a user of Triton's autotuner meets it."""

import json
import math
from types import SimpleNamespace

import pytest

from kernelsearch.cli import run_import
from kernelsearch.core.errors import KernelsearchError
from kernelsearch.record import recorded_space
from kernelsearch.record.exchange import triton_cache

TRITON = {"key": [1], "configs_timings": [
    [{"kwargs": {}, "num_warps": 16, "num_stages": 1}, [0.01]],
    [{"kwargs": {}, "num_warps": 2, "num_stages": 1}, [0.02]]]}  # fmt: skip


@pytest.fixture
def cache(tmp_path):
    path = tmp_path / "softmax_kernel.autotune.json"
    path.write_text(json.dumps(TRITON))
    return path


def test_tritons_cache_becomes_a_space(run, cache, tmp_path):
    done = run("import", cache, "--out", tmp_path / "s.json")
    assert done.code == 0 and "2 configs" in done.out and "simulate" in done.out
    assert recorded_space.read(tmp_path / "s.json").optimum_us == 10
    again = run("import", cache, "--out", tmp_path / "s.json")
    assert again.code == 2 and "--force" in again.err


def test_its_best_config_becomes_a_kernel_of_the_task(run, cache, tmp_path):
    assert run("new", "softmax").code == 0
    done = run("import", cache, "--task", "softmax.py")
    assert done.code == 0 and "'num_warps': 16" in done.out and "best of 2 configs" in done.out
    assert done.out.count("@triton.jit") == 1
    done = run("import", cache, "--task", "softmax.py", "--out", "missing/kernel.py")
    assert done.code == 2 and "missing/kernel.py cannot be written" in done.err


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_any_other_file_is_one_line(run, tmp_path, text):
    (tmp_path / "odd.json").write_text(text)
    done = run("import", "odd.json")
    assert done.code == 2 and len(done.err.strip().splitlines()) == 1


ODD = [None, [], {}, "x", -1, 0, 1e999, math.nan, True, 10**400, [[]], [None], {"a": {}}]


def places(value, above=()):
    """The places of a JSON value, each as the names and numbers that lead to it."""
    yield above
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        yield from places(inner, (*above, name))


def put(value, place, new):
    """The JSON value with another one at a place."""
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = put(value[place[0]], place[1:], new)
    return copy


def test_any_odd_value_anywhere_is_one_sentence_or_a_space_with_times(tmp_path):
    facts = SimpleNamespace(space={"BLOCK": (1, 2), "num_warps": (2, 4)}, config={}, sites=("k",))
    path = tmp_path / "odd.json"
    for place in places(TRITON):
        for odd in ODD:
            path.write_text(json.dumps(put(TRITON, place, odd)))
            try:
                space = triton_cache.read(path)
                assert all(0 < r.time_us < math.inf for r in space.rows if r.time_us is not None), (place, odd)
            except KernelsearchError as error:
                assert "\n" not in str(error), (place, odd)
            try:
                run_import._best_config(path, facts)
            except KernelsearchError as error:
                assert "\n" not in str(error), (place, odd)
