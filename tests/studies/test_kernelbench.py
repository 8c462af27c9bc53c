"""The KernelBench study on a checkout of two problems: seeds, what is not run again, the field's summary."""

import json
import os
import signal
import sys
import threading
import time

import pytest

from kernelbench import own_check, sweep

RELU = """
import torch

rows = 512

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(rows, 256)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "bench/KernelBench/level1"
    folder.mkdir(parents=True)
    (folder / "10_Unique.py").write_text(RELU.replace("torch.relu(x)", "torch.unique(x)"))
    (folder / "2_ReLU.py").write_text(RELU)
    return tmp_path / "bench"


@pytest.mark.slow
def test_seeds_are_written_and_judged_once(checkout, tmp_path, borrowing, monkeypatch, capsys):
    out, asked = tmp_path / "out", []
    monkeypatch.setattr(
        sweep, "call", lambda limit, gpu, *words: (asked.append(words), ({"verdict": "accept", "reason": ""}, ""))[1]
    )
    words = [str(checkout), str(out), "--levels", "1", "--seeds-only", "--verify", "--target", "h100"]
    sweep.main(words)
    told = capsys.readouterr().out
    assert told.index("1/2_ReLU: seeded") < told.index("1/10_Unique: 10_Unique.py: TorchInductor makes no kernel")
    assert "class ModelNew" in (out / "level1/2_ReLU_seeded.py").read_text()
    assert asked == [("verify", out / "level1/2_ReLU_seeded.py", "--target", "h100")]  # there is no other to judge
    table = (out / "seeds.md").read_text()
    assert "| 1 | Triton only | 1 | 1 | 0 | 0 |" in table and "| 1 | none | 1 | 0 | 0 | 1 |" in table
    assert "| 1/2_ReLU | 1 | - |" in table and "depends on data (_unique2)" in table
    before = os.stat(out / "level1/2_ReLU_seeded.py").st_mtime_ns
    sweep.main(words)
    assert "seeded" not in capsys.readouterr().out and len(asked) == 1
    assert os.stat(out / "level1/2_ReLU_seeded.py").st_mtime_ns == before
    assert (out / "seeds.md").read_text() == table


def test_library_calls_of_a_seed_are_told_from_what_computes_nothing():
    """What the task's own file calls counts for neither."""
    own = "@triton.jit\ndef k(): ...\ndef launch_seed(x):\n    y = torch.empty((3,))\n    torch.mm(x, x, out=y)\n"
    text = "torch.relu(x)\n# ---- The first kernels: ...\n" + own
    assert sweep.read_seed(text) == {"kernels": 1, "library": ["mm"]}


def found(ours, eager, compiled, autotuned, name="aaaa", gain=2.0):
    times = {"eager": eager, "compile": compiled, "max-autotune": autotuned}
    baselines = [
        {"name": n, "time_us": t, "ratio": t / ours, "low": t / ours - 0.01, "high": t / ours + 0.01}
        for n, t in times.items()
    ]
    return {
        "name": name, "status": "confirmed", "reason": "", "margin": 0.01, "champion_at": [],
        "vs_seed": {"ratio": gain}, "shapes": [{"time_us": ours, "baselines": baselines}],
    }  # fmt: skip


def test_failures_count_as_1x_and_a_loss_as_what_it_is():
    rejected = {"finding": None, "why": "verify: 4 wrong"}
    unstable = {"finding": {**found(1.0, 9.0, 9.0, 9.0), "status": "unstable"}, "why": ""}
    rows = [{"finding": found(1.0, 8.0, 4.0, 2.0)}, {"finding": found(4.0, 4.0, 2.0, 1.0)}, rejected, unstable]
    eager, compiled, fastest = (sweep.summarise(rows, r) for r in (["eager"], ["compile"], sweep.MODES))
    assert [s["correct"] for s in (eager, compiled, fastest)] == [3, 3, 3]
    assert [(s["fast_1"], s["fast_2"]) for s in (eager, compiled, fastest)] == [(1, 1), (1, 1), (1, 0)]
    assert eager["geomean"] == pytest.approx(8**0.25)
    assert compiled["geomean"] == pytest.approx((4 * 0.5) ** 0.25)
    assert fastest["geomean"] == pytest.approx((2 * 0.25) ** 0.25)
    lines = [sweep.row_of_search("1/2", row) for row in rows]
    assert "| 8.0 | 4.0 | 2.0 | 1.0 | 2.000 [1.990, 2.010] | faster | " in lines[0]
    assert "| 0.250 [0.240, 0.260] | right, not shown to be faster | " in lines[1]
    assert lines[2].endswith("| no finding | verify: 4 wrong | - |") and "| unstable |" in lines[3]


@pytest.mark.parametrize("gain", [1.5, 0.9])
def test_each_problem_is_searched_once_and_the_seed_measured_where_nothing_is_faster(
    checkout, tmp_path, monkeypatch, gain
):
    asked = []

    def call(limit, gpu, *words):
        asked.append((gpu, words[0], (words[2] if words[0] == "export" else words[1]).name))
        if words[0] == "export":
            words[words.index("--out") + 1].mkdir()
            return {}, ""
        if words[0] == "measure":
            return found(1.0, 2.0, 3.0, 4.0, name="seed"), ""
        if "10_" in words[1].name:
            return None, "Error: no kernel"
        return {"trials": 64, "best": {}, "confirmed": [found(1.0, 2.0, 3.0, 4.0, gain=gain)], "rejected": []} | {
            "best": {"kernel": "aaaa"}
        }, ""

    def check(limit, gpu, *words):
        checked.append([word.name for word in words[1:]])
        return {"correct": False, "why": "trial 0: off by up to 1"}, ""

    checked = []
    monkeypatch.setattr(sweep, "call", call)
    monkeypatch.setattr(sweep, "run_json", check)
    monkeypatch.setattr(sweep, "list_gpus", lambda: ["0", "1"])
    words = [str(checkout), str(tmp_path / "out"), "--levels", "1"]
    (tmp_path / "out/level1").mkdir(parents=True)
    (tmp_path / "out/level1/2_ReLU_seeded.py").write_text(RELU)
    sweep.main(words)
    measured = [a[2] for a in asked if a[1] == "measure"]
    assert measured == ([] if gain > 1 else ["2_ReLU_seeded.py"]) and {a[0] for a in asked} <= {"0", "1"}
    asked_once = len(asked)
    assert asked_once == 3  # the searches, and what was measured or exported
    assert checked == [["own_check.py", "2_ReLU.py", "2_ReLU_export" if gain > 1 else "2_ReLU_seeded.py"]]
    table = (tmp_path / "out/table.md").read_text()
    assert "| 1 | eager | 2 | 1 | 1 | 0 | 1.414 | 0 |" in table and "| wrong: trial 0: off by up to 1 |" in table
    assert "Error: no kernel | - |" in table
    assert json.loads((tmp_path / "out/level1/2_ReLU.search.json").read_text())["trials"] == 64
    sweep.main(words)
    assert len(asked) == asked_once


def test_without_a_gpu_a_search_is_refused(checkout, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "list_gpus", list)
    with pytest.raises(SystemExit, match="give --seeds-only"):
        sweep.main([str(checkout), str(tmp_path / "out"), "--levels", "1"])
    with pytest.raises(SystemExit, match="no KernelBench/level2"):
        sweep.main([str(checkout), str(tmp_path / "out"), "--levels", "2"])


MODELS = {
    "relu(x) + 0.005": (True, ""),
    "relu(x) + 0.1": (False, "trial 0: off by up to 0.1"),
    "relu(x)[:1]": (False, "trial 0: the shape is (1, 256), not (512, 256)"),
}


@pytest.mark.parametrize("body", MODELS)
def test_kernelbenchs_own_check_compares_five_trials_with_its_tolerance(tmp_path, body):
    (tmp_path / "problem.py").write_text(RELU)
    new = RELU.replace("class Model", "class ModelNew").replace("relu(x)", body)
    (tmp_path / "new.py").write_text(new)
    problem = own_check.load_file(tmp_path / "problem.py")
    calls, given = [], problem.get_inputs
    problem.get_inputs = lambda: calls.append(given()) or calls[-1]
    assert own_check.check(problem, own_check.load_new(tmp_path / "new.py"), "cpu") == MODELS[body]
    assert len(calls) == (5 if MODELS[body][0] else 1)
    assert len({float(x.sum()) for (x,) in calls}) == len(calls)


def test_ctrl_c_ends_a_problem_under_way_and_keeps_no_result_of_it(checkout, tmp_path, monkeypatch):
    out, begun = tmp_path / "out", threading.Event()

    def search(problem, gpu, *rest):
        begun.set()
        found, why = sweep.run_json(60.0, "", sys.executable, "-c", "import time; time.sleep(60)")
        return {"finding": found, "why": why}

    monkeypatch.setattr(sweep, "search_problem", search)
    monkeypatch.setattr(sweep, "list_gpus", lambda: ["0"])

    def interrupt():
        begun.wait(10.0)
        while not sweep.running:
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(SystemExit, match="the same command goes on"):
            sweep.main([str(checkout), str(out), "--levels", "1", "--only", "1/2"])
    finally:
        signal.signal(signal.SIGINT, handler)
        sweep.stopping.clear()
    assert not (out / "level1/2_ReLU.search.json").exists() and (out / "table.md").exists()
