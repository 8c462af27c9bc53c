"""On a GPU: a file without a kernel gets its first one from TorchInductor, and a search goes on with it."""

import json
import sqlite3
from statistics import median

import pytest
import torch
from click.testing import CliRunner

from kernelsearch.cli import main

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TEXT = """import torch


def reference(x, w):
    return torch.nn.functional.silu(x) * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w


def get_inputs(rows=4096, cols=4096, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype), torch.randn(cols, dtype=dtype)]


SHAPES = [dict(rows=4096, cols=4096)]
TEST_SHAPES = [dict(rows=3, cols=70), dict(rows=1, cols=1)]
"""


MODEL = """import torch

rows, width = 4096, 1024


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.taps, self.norm = torch.nn.Parameter(torch.randn(width)), torch.nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x * self.taps)


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
"""


GRADIENT = """import torch


def reference(x, w, b, dy):
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (x, w, b)]
        return torch.autograd.grad(torch.nn.functional.layer_norm(leaves[0], w.shape, *leaves[1:]), leaves, dy)


def get_inputs(rows=8192, cols=2048, dtype=torch.bfloat16):
    return [torch.randn(shape, dtype=dtype) for shape in ((rows, cols), (cols,), (cols,), (rows, cols))]


SHAPES = [dict(rows=8192, cols=2048), dict(rows=1024, cols=8192)]
TEST_SHAPES = [dict(rows=3, cols=70), dict(rows=600, cols=16)]
"""


@pytest.mark.parametrize("text", [TEXT, MODEL, GRADIENT], ids=["function", "model", "gradient"])
def test_a_file_without_a_kernel_is_seeded_and_searched(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gate.py").write_text(text)
    done = CliRunner().invoke(main, ["optimize", "gate.py", "--trials", "4", "--no-confirm", "--json"])
    assert done.exit_code == 0, done.stderr
    assert "seeded by TorchInductor" in done.stderr
    assert json.loads(done.stdout)["best"]["evidence"] == "measured"


SEVERAL = """import torch


def reference(x):
    y = torch.nn.functional.silu(x)
    return y / y.abs().sum(), y.amax(0)


def get_inputs(rows=8192, cols=4096):
    return [torch.randn(rows, cols)]


SHAPES = [dict(rows=8192, cols=4096)]
TEST_SHAPES = [dict(rows=70, cols=30)]
"""


def test_each_kernel_of_several_is_timed_by_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "several.py").write_text(SEVERAL)
    words = ["optimize", "several.py", "--trials", "16", "--no-confirm", "--json", "--db", "trials.db"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.stderr
    rows = sqlite3.connect("trials.db").execute("select times from trial where verdict = 'accept'").fetchall()
    timed = [json.loads(times)[0] for (times,) in rows]
    assert len(timed) > 8
    hidden = [t for t in timed if "host_bound" not in t["detail"]]  # else its whole time has gaps
    assert len(hidden) > 4
    parts = [one["detail"]["parts_us"] for one in hidden]
    assert all(len(some) >= 2 and min(some.values()) > 1.0 for some in parts)
    shares = [sum(some.values()) / one["time_us"] for some, one in zip(parts, hidden, strict=True)]
    assert 0.5 < median(shares) < 1.5, shares  # another's work on the GPU may lie within one of them
