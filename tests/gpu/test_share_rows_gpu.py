"""On a GPU: programs that wait for each other end, and are right, where more of them are started than fit."""

import pytest
import torch

from kernelsearch.core.types import Word
from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SOFTMAX = """import torch
import triton
import triton.language as tl


def reference(x):
    return torch.softmax(x, dim=-1)


def get_inputs(rows=1024, cols=65536, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=1024, cols=COLS)]
TEST_SHAPES = [dict(rows=3, cols=5003), dict(rows=1, cols=1)]
SPACE = {"BLOCK": [4096], "num_warps": [8]}


@triton.jit
def long_rows_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    highest = -float("inf")
    for at in range(0, n_cols, BLOCK):
        cols = at + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, cols < n_cols, other=-float("inf"))
        highest = tl.maximum(highest, tl.max(x, 0))
    total = 0.0
    for at in range(0, n_cols, BLOCK):
        cols = at + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, cols < n_cols, other=-float("inf"))
        total += tl.sum(tl.exp(x - highest), 0)
    for at in range(0, n_cols, BLOCK):
        cols = at + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, cols < n_cols, other=-float("inf"))
        tl.store(y_ptr + row * n_cols + cols, tl.exp(x - highest) / total, cols < n_cols)


def long_rows(x):
    y = torch.empty_like(x)
    long_rows_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096, num_warps=8)
    return y
"""


@pytest.mark.parametrize(("cols", "aligned"), [(65536, False), (65535, True)])
@pytest.mark.parametrize("online", [False, True], ids=["three passes", "two passes"])
def test_programs_that_wait_for_each_other_end_where_they_do_not_fit(tmp_path, cols, aligned, online):
    """65,536 programs are started, of which 1056 of 256 threads run at once on 132 SMs."""
    task = tmp_path / "long_rows.py"
    task.write_text(SOFTMAX.replace("COLS", str(cols)))
    with Bench.open(task) as bench:
        kernel = bench.seed
        for name in (["online"] if online else []) + ["share_rows"]:
            found = edit_named(name).apply(kernel, bench.facts)
            assert not isinstance(found, NotApplicable), (name, found.reason)
            kernel = found[-1].kernel  # the first may have groups of neighbours, whose parts nobody hands on
        assert ("lead" in kernel.code) is aligned
        for config in ({"PART": 1024, "LAG": 0}, {"PART": 1024, "LAG": 512}, {"PART": 8192, "LAG": 128}):
            outcome = Evaluation(bench).evaluate(kernel, {**kernel.config, "num_warps": 8, **config})
            assert outcome.verdict.word is Word.ACCEPT, (config, outcome.verdict)
            assert outcome.measurement.time_us("timed:0") > 1.0
