"""What Nsight Compute answers is read into counters, its refusals into words, and hints use both."""

from dataclasses import replace

import pytest

from kernelsearch.compile.code import Access, Code, InstructionCounts, Loop
from kernelsearch.core.types import TensorFact
from kernelsearch.kernel import targets
from kernelsearch.measure.hints import findings as hints
from kernelsearch.measure.hints.detectors import detect_latency, detect_second_read
from kernelsearch.measure.static_model import counters
from kernelsearch.measure.static_model.device_launch import BinaryResources, DeviceLaunch
from kernelsearch.report import hint_report as report
from kernelsearch.worker.gpu import counters_main

VALUES = {
    "dram__bytes_read.sum": "1,073,768,192", "dram__bytes_write.sum": "262,144",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "51.10",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "41.26",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "98.19", "lts__t_sector_hit_rate.pct": "0.2",
}  # fmt: skip
STALLS = {"long_scoreboard": 23.26, "short_scoreboard": 8.12, "barrier": 2.95, "wait": 2.23, "not_selected": 0.30,
          "math_pipe_throttle": 0.09, "lg_throttle": 0.0, "mio_throttle": 0.01}  # fmt: skip
HEAD = '"ID","Process ID","Kernel Name","Grid Size","Metric Name","Metric Unit","Metric Value"'


def answer(*names, without=()):
    """As `ncu --csv` prints it (lines of an H100 run of the row-maximum kernel, without columns that are not read)."""
    stalls = {f"smsp__average_warps_issue_stalled_{n}_per_issue_active.ratio": str(v) for n, v in STALLS.items()}
    lines = ["==PROF== Connected to process 9120", HEAD]
    for number, name in enumerate(names):
        lines += [f'"{number}","9120","{name}","(65536, 1, 1)","{m}","","{v}"'
                  for m, v in {**VALUES, **stalls}.items() if m not in without]  # fmt: skip
    return "\n".join(lines)


LOOP = Loop(0, ("arg", "n"), 128)


def launched(loads, **code):
    accesses = tuple(Access("load", "x", 4, (128,), (1,), (LOOP,), 1) for _ in range(loads))
    args = {"x": TensorFact("fp32", (65536, 4096), (4096, 1)), "n": 4096}
    machine = BinaryResources(4, 32, 0, 0, InstructionCounts(loads={4: 1}))
    return DeviceLaunch("k", machine, Code(accesses, **code), (65536, 1, 1), args, targets.target_by_name("h100"))


@pytest.fixture
def row():
    """Tiles of 512 bytes, each reduced at once."""
    return launched(1, reduced=((LOOP,),))


@pytest.fixture
def twice():
    return launched(2)


def test_each_launch_in_order():
    first, second = counters.parse_counters(answer("best", "lanes"))
    assert (first.function, second.function) == ("best", "lanes")
    assert first.dram_bytes == 1_073_768_192 + 262_144 and first.issue_percent == 41.26
    assert sum(first.waits.values()) == pytest.approx(1)
    assert [w for w, _ in first.longest_waits] == ["loads", "shared memory"]
    assert set(counters.METRICS) == {
        *VALUES,
        *(f"smsp__average_warps_issue_stalled_{n}_per_issue_active.ratio" for n in STALLS),
    }


def test_a_launch_that_misses_a_metric_is_left_out_and_other_launches_are_not_mixed_up():
    assert counters.parse_counters(answer("best", without=("lts__t_sector_hit_rate.pct",))) == ()
    read = counters.parse_counters(answer("best", "lanes"))
    assert counters.match_launches(read, ["best", "lanes"]) == read
    assert counters.match_launches(read, ["lanes", "best"]) == (None, None)
    assert counters.match_launches((), ["best"]) == (None,)


@pytest.mark.parametrize(
    ("text", "said"),
    [("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "this user may not read"),
     ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "LibraryNotLoaded"), ("", "counted nothing")],
)  # fmt: skip
def test_a_refusal_is_a_sentence(text, said):
    assert said in counters.explain_refusal(text)


def test_without_the_profiler_that_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(counters_main.shutil, "which", lambda name: None)
    monkeypatch.setattr(counters_main, "_PLACES", (str(tmp_path / "ncu"), str(tmp_path)))
    assert "not installed" in counters_main.count_launches(None, ["k"], str(tmp_path))


def test_counters_decide_between_waiting_for_memory_and_a_busy_issue_slot(row):
    (read,) = counters.parse_counters(answer("k"))
    assert detect_latency(replace(row, counters=read)) is not None
    assert detect_latency(replace(row, counters=replace(read, issue_percent=90.0))) is None


def test_a_second_read_that_never_reached_memory_costs_less(twice):
    (read,) = counters.parse_counters(answer("k"))
    far = detect_second_read(replace(twice, counters=replace(read, dram_bytes=2 * twice.footprint)))
    near = detect_second_read(replace(twice, counters=replace(read, dram_bytes=twice.footprint)))
    assert far.lost > 2 * near.lost > 0


def test_the_binding_hint_and_the_report_show_what_was_counted(row):
    (read,) = counters.parse_counters(answer("k"))
    wide = replace(row, counters=read, machine=replace(row.machine, num_warps=1), code=replace(row.code, reduced=()))
    call = hints.LauncherCall("s", (replace(wide, counters=replace(read, issue_percent=90.0)),), 400.0, True)
    (found,) = hints.diagnose(call)
    assert found.hint.evidence["moved_gb"] == 1.07
    text = report.as_text(report.HintReport("t", "0" * 64, {}, "GPU", (("n", call),)))
    text = " ".join(text.split())
    assert "1.07 GB to and from memory at 51 %" in text and "they wait for loads 63%, shared memory 22%" in text


def test_a_kernel_far_from_its_roofline_is_not_called_as_fast_as_its_bytes_allow(row):
    read = replace(counters.parse_counters(answer("k"))[0], issue_percent=90.0)  # so that no fault is found
    for share, word, why in ((0.9, "none", "90 % of"), (0.5, "tile size", "only a part of its distance")):
        call = hints.LauncherCall("s", (replace(row, counters=read),), row.roofline_us / share, True)
        (found,) = hints.diagnose(call)
        assert found.hint.suggestion.partition(":")[0] == word and why in found.hint.why
        assert (found.lost == 0) is (share == 0.9) and found.lost < 0.05
