"""On a GPU: kernels with one fault each are diagnosed rightly with measured times, healthy ones raise no alarm."""

import binary_alone
import pytest

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("path", binary_alone.KERNELS, ids=lambda p: p.stem)
def test_the_one_fault_is_the_first_hint(path, run):
    said = binary_alone.said(path)
    found = run("hints", path, "--no-counters", "--json")
    assert found.code == 0, found.err
    (shape,) = found.json["shapes"]
    assert shape["evidence"] == "measured"
    first = shape["hints"][0]
    assert binary_alone.agrees(said, first["bottleneck"], first["suggestion"].partition(":")[0]), shape
    assert (first["lost"] == 0) == (said["fault"] == "none"), shape


def test_counters_are_read_or_it_is_said_why_not(run):
    found = run("hints", binary_alone.HERE / "few_programs.py", "--json")
    (launch,) = found.json["shapes"][0]["launches"]
    refused = [m for m in found.json["missing"] if m.startswith("hardware counters")]
    assert bool(launch["counters"]) != bool(refused), found.json["missing"]
    if launch["counters"]:
        assert launch["counters"]["dram_bytes"] >= 0.9 * 268e6 and launch["counters"]["warps_percent"] < 50
