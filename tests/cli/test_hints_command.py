"""`kernelsearch hints`: text of 80 columns, JSON, a person's own kernel file, and refusals."""

from pathlib import Path

import pytest

from kernelsearch.measure.timing import nvml
from kernelsearch.measure.timing.device import find_live_device

HERE = Path(__file__).resolve().parents[1] / "hints"
pytestmark = pytest.mark.skipif(find_live_device() is not None, reason="with a GPU tests/gpu asks the same command")


def test_text_and_json_name_the_fault(run):
    text = run("hints", HERE / "two_byte_loads.py")
    assert text.code == 0 and max(map(len, text.out.splitlines())) <= 80
    assert "1. Narrow loads (issue): up to 1.14x faster" in text.out and "pad the rows" in text.out
    assert "not available: a measured time" in text.out
    found = run("hints", HERE / "two_byte_loads.py", "--json").json
    (shape,) = found["shapes"]
    assert shape["evidence"] == "estimated" and shape["roofline_us"] == pytest.approx(160.2, rel=0.01)
    assert shape["hints"][0]["evidence"] == {"load_bytes_per_thread": 2, "possible_bytes_per_thread": 16}
    assert shape["launches"][0]["loads_by_bytes"] == {"2": 16}


def test_a_kernel_file_is_diagnosed_in_the_tasks_place(run, tmp_path):
    own = tmp_path / "own.py"
    source = (HERE / "healthy_centre.py").read_text()
    kernel = source[source.index("@triton.jit") : source.index("def centre(")]
    own.write_text("import triton\nimport triton.language as tl\n\nCONFIG = {'num_warps': 16}\n\n\n" + kernel)
    found = run("hints", HERE / "spills.py", own, "--json").json
    assert found["config"]["num_warps"] == 16
    assert found["shapes"][0]["hints"][0]["bottleneck"] == "memory bandwidth"
    own.write_text(own.read_text().replace("row = tl.program_id(0)", "row = tl.program_id(0)\n    print(row)"))
    refused = run("hints", HERE / "spills.py", own)
    assert refused.code == 1 and not refused.out and "reject-static" in refused.err


def test_no_such_file_and_no_such_shape(run):
    assert run("hints", "none.py").code == 2
    assert "no shape is meant" in run("hints", HERE / "spills.py", "--shape", "7").err


@pytest.mark.parametrize(("percent", "said"), [(97, True), (0, False), (None, False)])
def test_a_gpu_that_others_use_is_said_before_anything_is_blamed(run, tmp_path, monkeypatch, percent, said):
    monkeypatch.setattr(nvml.Monitor, "busy_percent", lambda monitor: percent)
    done = run("hints", tmp_path / "none.py")
    assert done.code == 2
    assert ("something else uses this GPU (97 % of the time)" in done.err) == said
