"""Other tuners' files are read as they write them, and refused in one line otherwise."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.core.errors import SpaceError
from kernelsearch.record.exchange import helion, tuner_files
from kernelsearch.record.recorded_space import SpaceRow

CACHE = {
    "device_name": "NVIDIA A100", "kernel_name": "convolution", "problem_size": "(4096, 4096, 1)",
    "tune_params_keys": ["block_size_x", "tile"], "tune_params": {"block_size_x": [16, 32], "tile": [1, 2]},
    "objective": "time",
    "cache": {
        "16,1": {"block_size_x": 16, "tile": 1, "time": 1.5, "times": [1.4, 1.5, 1.6]},
        "32,1": {"block_size_x": 32, "tile": 1, "time": "CompilationFailedConfig"},
        "16,2": {"block_size_x": 16, "tile": 2, "time": "RuntimeFailedConfig"},
        "32,2": {"block_size_x": 32, "tile": 2, "time": "InvalidConfig"},
    },
}  # fmt: skip
TRITON = {
    "key": [4096, "torch.float32"],
    "configs_timings": [
        [{"kwargs": {"BLOCK": 128}, "num_warps": 4, "num_stages": 2, "num_ctas": 1, "maxnreg": None,
          "ir_override": None}, [0.02, 0.019, 0.03]],
        [{"kwargs": {"BLOCK": 256}, "num_warps": 8, "num_stages": 2, "num_ctas": 1, "maxnreg": None},
         [float("inf")] * 3],
    ],
}  # fmt: skip


def written(tmp_path, value, name="file.json"):
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_a_kernel_tuner_cache(tmp_path):
    space = tuner_files.read(written(tmp_path, CACHE))
    assert space.task == "convolution" and space.device == "NVIDIA A100" and space.optimum_us == 1500
    assert [(tuple(r.config.values()), r.time_us, r.failure) for r in space.rows] == [
        ((16, 1), 1500.0, None), ((32, 1), None, "compile"), ((16, 2), None, "runtime")]  # fmt: skip
    assert space.rows[0].samples_us == pytest.approx((1400, 1500, 1600))


def test_a_kernel_tuner_cache_that_is_still_being_written(tmp_path):
    text = json.dumps(CACHE)
    unfinished = text[: text.index(', "32,2"')] + ","
    assert len(tuner_files.read(written(tmp_path, unfinished)).rows) == 3


def test_tritons_own_cache(tmp_path):
    space = tuner_files.read(written(tmp_path, TRITON, "add_kernel.autotune.json"))
    assert space.task == "add_kernel" and space.parameters["BLOCK"] == (128, 256)
    assert [(r.time_us, r.failure) for r in space.rows] == [(20.0, None), (None, "runtime")]


values = st.one_of(st.integers(-5, 5000), st.booleans(), st.sampled_from(["ieee", "tf32"]))


results = st.one_of(st.floats(0.01, 1e7), st.sampled_from(["compile", "runtime", "correctness", "timeout"]))


@given(st.dictionaries(st.tuples(values, values), results, min_size=1, max_size=12))
def test_t4_results_become_the_same_space(tmp_path_factory, found):
    distinct = {json.dumps([a, b]): ({"a": a, "b": b}, result) for (a, b), result in reversed(found.items())}
    rows = [
        SpaceRow(config, failure=result) if isinstance(result, str) else SpaceRow(config, result)
        for config, result in distinct.values()
    ]
    if not any(r.time_us for r in rows):
        rows.append(SpaceRow({"a": 99999, "b": 1}, 3.0))
    results = [
        {
            "configuration": row.config,
            "times": {},
            "invalidity": row.failure or "correct",
            "measurements": [{"name": "time", "value": row.time_us and row.time_us / 1000}],
        }
        for row in rows
    ]
    back = tuner_files.read(written(tmp_path_factory.mktemp("t4"), {"results": results}))
    assert [(r.config, r.failure) for r in back.rows] == [(r.config, r.failure) for r in rows]
    assert [r.time_us for r in back.rows if r.time_us] == pytest.approx([r.time_us for r in rows if r.time_us])


@pytest.mark.parametrize("value, said", [
    ("no json", "is not JSON"),
    ({"something": 1}, "none of"),
    ({"results": [{"configuration": {}, "invalidity": "odd"}]}, "unknown invalidity"),
    ({"results": []}, "no config has a time"),
    ({"configs_timings": [[{"kwargs": {}}]]}, "not as its format says"),
    ([], "none of"),
])  # fmt: skip
def test_other_files_are_refused_in_one_line(tmp_path, value, said):
    with pytest.raises(SpaceError, match=said) as caught:
        tuner_files.read(written(tmp_path, value))
    assert "\n" not in str(caught.value)


def test_a_helion_config_from_its_cache_or_saved(tmp_path):
    config = {"block_sizes": [64, 128], "num_warps": 8, "num_stages": 3, "indexing": "pointer"}
    for value in (config, {"config": json.dumps(config), "key": {"type": "x", "fields": {}}}):
        found = helion.read(written(tmp_path, value))
        translated = helion.translate_config(found, ["BLOCK_M", "BLOCK_N"], {})
        assert translated == {"BLOCK_M": 64, "BLOCK_N": 128, "num_warps": 8, "num_stages": 3}
    with pytest.raises(SpaceError, match="2 block sizes"):
        helion.translate_config(config, ["BLOCK"], {})
