"""On a GPU: the confirmed protocol end to end, its baselines, and what it refuses."""

import json

import pytest
import torch
from click.testing import CliRunner

from kernelsearch.cli import main
from kernelsearch.record.store import Store
from kernelsearch.tasks import shipped

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TUNED = '''"""Twice x, with an autotuner, a baseline of its own, and one that fails."""

import torch
import triton
import triton.language as tl


def reference(x):
    return x + x


def broken(x):
    raise RuntimeError("no such library")


def get_inputs(n=1 << 24):
    return [torch.randn(n)]


BASELINES = {"mul": lambda x: x * 2.0, "broken": broken, "other": lambda x: x * 2.5}
SHAPES = [dict(n=1 << 24)]
TEST_SHAPES = [dict(n=1000), dict(n=4096)]


def bytes_moved(n):
    return 8 * n


@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (512, 1024) for w in (4, 8)], key=["n"])
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x + x, mask=at < n)


def double(x):
    y = torch.empty_like(x)
    double_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
'''


COLUMNS = '''"""s[c] = sum over rows of w[r] * x[r, c]: few columns want the rows shared, many do not."""

import torch
import triton
import triton.language as tl


def reference(x, w):
    return (x * w[:, None]).sum(0)


def get_inputs(rows=4096, cols=1024):
    return [torch.randn(rows, cols), torch.randn(rows)]


SHAPES = [dict(rows=32768, cols=512), dict(rows=512, cols=65536)]
TEST_SHAPES = [dict(rows=33, cols=70), dict(rows=200, cols=17)]


def bytes_moved(rows, cols):
    return 4 * rows * cols + 4 * cols


@triton.jit
def weighted_kernel(x_ptr, w_ptr, s_ptr, n_rows, n_cols, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    total = tl.zeros([BLOCK_C], dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_R):
        rows = start + tl.arange(0, BLOCK_R)
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0)
        w = tl.load(w_ptr + rows, mask=rows < n_rows, other=0.0)
        total += tl.sum(x * w[:, None], axis=0)
    tl.store(s_ptr + cols, total, mask=cols < n_cols)


def weighted(x, w):
    s = torch.empty(x.shape[1], dtype=torch.float32, device=x.device)
    grid = lambda meta: (triton.cdiv(x.shape[1], meta["BLOCK_C"]),)
    weighted_kernel[grid](x, w, s, x.shape[0], x.shape[1], BLOCK_R=32, BLOCK_C=64)
    return s
'''


@pytest.fixture
def run(tmp_path):
    """A command with its database in the test's folder; the process stays where it is: workers find the package."""

    def run(command, *args):
        result = CliRunner().invoke(main, [command, *map(str, args), "--db", str(tmp_path / "kernelsearch.db")])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def test_measure_compares_with_every_baseline_and_reports_the_broken_one(run, tmp_path):
    (tmp_path / "double.py").write_text(TUNED)
    done = run("measure", tmp_path / "double.py", "--seconds", 3, "--json", "--quiet")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["status"] == "confirmed", found
    (shape,) = found["shapes"]
    rows = {b["name"]: b for b in shape["baselines"]}
    assert set(rows) == {"eager", "compile", "max-autotune", "seed autotune", "mul", "broken", "other"}
    assert "no such library" in rows["broken"]["failure"] and "time_us" not in rows["broken"]
    assert rows["other"]["failure"].startswith("takes ") and "its values are refused: " in rows["other"]["failure"]
    assert all(b["low"] <= b["ratio"] <= b["high"] for n, b in rows.items() if n not in ("broken", "other"))
    assert shape["control"]["low"] <= 1.0 + 0.002 and shape["control"]["high"] >= 1.0 - 0.002
    assert 0.5 < shape["roofline"] < 1.25 and shape["outputs_judged"] >= 1
    assert shape["wall_us"] > 0.8 * shape["time_us"]  # a busy host is late, and never early
    with Store.open(tmp_path / "kernelsearch.db", write=False) as store:
        assert store.load_ceilings(found["device"]) == found["ceilings"]
        assert store.load_confirmations()[0]["status"] == "confirmed"


def test_a_wrong_kernel_is_refused_before_it_is_timed(run, tmp_path):
    text = shipped.text("softmax")
    kernel = text[text.index("@triton.jit") : text.index("\ndef softmax(")]
    head = "import triton\nimport triton.language as tl\n\n\n"
    (tmp_path / "softmax.py").write_text(text)
    (tmp_path / "wrong.py").write_text(
        head + kernel.replace("numerator / denominator", "numerator / denominator * 1.01")
    )
    done = run("measure", tmp_path / "softmax.py", tmp_path / "wrong.py", "--shape", 1, "--json", "--quiet")
    assert done.exit_code == 1, done.output
    assert json.loads(done.stdout)["verdict"] == "reject-wrong"
    assert not (tmp_path / "kernelsearch.db").exists()


def test_optimize_ends_by_confirming_its_finalists(run, tmp_path):
    (tmp_path / "softmax.py").write_text(shipped.text("softmax"))
    done = run("optimize", tmp_path / "softmax.py", "--shape", 1, "--trials", 25, "--json", "--quiet")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    for found in summary["confirmed"]:
        assert found["status"] in ("confirmed", "unstable") and found["vs_seed"] and found["vs_fastest"]
        assert found["level"] == pytest.approx(1 - 0.01 / len(summary["confirmed"]))


def test_each_shape_ends_with_its_best_confirmed_kernel(run, tmp_path):
    """Two shapes that want different kernels: what was confirmed by shape is no worse than any one kernel for both."""
    (tmp_path / "weighted.py").write_text(COLUMNS)
    done = run("optimize", tmp_path / "weighted.py", "--trials", 60, "--json", "--quiet")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    print(json.dumps(told["by_shape"], indent=1))
    whole = [f for f in told["confirmed"] if f["status"] == "confirmed" and not f["champion_at"]]
    if not whole:
        pytest.skip("nothing was found to confirm")
    assert [s["label"] for s in told["by_shape"]["shapes"]] == [s["label"] for s in told["best"]["shapes"]]
    assert told["by_shape"]["vs_seed"]["ratio"] >= max(f["vs_seed"]["ratio"] for f in whole) / 1.011
    assert all(s["vs_seed"]["ratio"] >= 1.0 for s in told["by_shape"]["shapes"]), (
        "the seed runs where nothing is faster"
    )
    print(run("leaderboard").stdout)
