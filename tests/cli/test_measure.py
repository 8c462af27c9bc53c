"""`measure` where there is no GPU: it says what it cannot do, gives the estimate, and still refuses a wrong kernel."""

import pytest

from kernelsearch.measure.timing.device import find_live_device

pytestmark = pytest.mark.skipif(find_live_device() is not None, reason="about machines without a GPU")


@pytest.mark.slow
def test_without_a_gpu_measure_says_so_and_estimates(run, good):
    done = run("measure", good)
    assert done.code == 0 and "estimated seed" in done.out
    assert "no GPU here: nothing is measured" in done.err and "h100" in done.err
    machine = run("measure", good, "--json", "--quiet")
    assert machine.json["evidence"] == "estimated" and machine.json["shapes"][0]["estimated_us"]["seed"] > 0
    assert "nothing is measured" in machine.json["reason"] and not machine.err
    assert machine.json["known_error"]["spearman"][0] > 0 and "Spearman" in done.err


def test_a_kernel_that_the_gate_refuses_is_not_measured(run, tmp_path):
    run("new", "softmax")
    (tmp_path / "bad.py").write_text("import os\n")
    done = run("measure", "softmax.py", "bad.py")
    assert done.code == 1 and "not measured" in done.out and "reject-static" in done.out


def test_missing_files_are_misuse(run):
    run("new", "softmax")
    assert run("measure", "nothing.py").code == 2
    assert run("measure", "softmax.py", "nothing.py").code == 2
