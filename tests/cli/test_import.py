"""`kernelsearch import`, as a user of another tuner meets it."""

import json

import pytest

from kernelsearch.replay import recorded

TRITON = {"key": [1], "configs_timings": [
    [{"kwargs": {}, "num_warps": 16, "num_stages": 1}, [0.01]], [{"kwargs": {}, "num_warps": 2, "num_stages": 1}, [0.02]]]}  # fmt: skip


@pytest.fixture
def cache(tmp_path):
    path = tmp_path / "softmax_kernel.autotune.json"
    path.write_text(json.dumps(TRITON))
    return path


def test_tritons_cache_becomes_a_space(run, cache, tmp_path):
    done = run("import", cache, "--out", tmp_path / "s.json")
    assert done.code == 0 and "2 configs" in done.out and "simulate" in done.out
    assert recorded.read(tmp_path / "s.json").optimum_us == 10
    again = run("import", cache, "--out", tmp_path / "s.json")
    assert again.code == 2 and "--force" in again.err


def test_its_best_config_becomes_a_kernel_of_the_task(run, cache, tmp_path):
    assert run("new", "softmax").code == 0
    done = run("import", cache, "--task", "softmax.py")
    assert done.code == 0 and "'num_warps': 16" in done.out and "best of 2 configs" in done.out
    assert done.out.count("@triton.jit") == 1


def test_helions_block_sizes_are_given_in_order(run, tmp_path):
    assert run("new", "matmul").code == 0
    (tmp_path / "h.json").write_text(json.dumps({"block_sizes": [128, 256, 64], "num_warps": 8, "num_stages": 3}))
    done = run("import", tmp_path / "h.json", "--task", "matmul.py")
    assert done.code == 0, done.err
    assert "block sizes were given to BLOCK_M, BLOCK_N, BLOCK_K in this order" in done.out


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_any_other_file_is_one_line(run, tmp_path, text):
    (tmp_path / "odd.json").write_text(text)
    done = run("import", "odd.json")
    assert done.code == 2 and len(done.err.strip().splitlines()) == 1
