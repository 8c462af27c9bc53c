"""Triton's autotune cache is read as it is written, and another file is refused in one line."""

import json

import pytest

from kernelsearch.core.errors import SpaceError
from kernelsearch.record.exchange import triton_cache

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


def test_tritons_own_cache(tmp_path):
    space = triton_cache.read(written(tmp_path, TRITON, "add_kernel.autotune.json"))
    assert space.task == "add_kernel" and space.parameters["BLOCK"] == (128, 256)
    assert [(r.time_us, r.failure) for r in space.rows] == [(20.0, None), (None, "runtime")]


@pytest.mark.parametrize("value, said", [
    ("no json", "is not JSON"),
    ({"something": 1}, "is neither a database"),
    ({"configs_timings": []}, "no config has a time"),
    ({"configs_timings": [[{"kwargs": {}}]]}, "not as its format says"),
    ({"configs_timings": [["odd", [1.0]]]}, "not as its format says"),
    ({"configs_timings": [[{"kwargs": {}}, []]]}, "not as its format says"),
    ([], "is neither a database"),
])  # fmt: skip
def test_other_files_are_refused_in_one_line(tmp_path, value, said):
    with pytest.raises(SpaceError, match=said) as caught:
        triton_cache.read(written(tmp_path, value))
    assert "\n" not in str(caught.value)
