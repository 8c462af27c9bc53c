"""On a simulated GPU, where every run is right, races are refused that only the interpreter sees."""

import pytest

from kernelsearch.core.types import Word
from kernelsearch.trial import Evaluation, race_look, referee
from kernelsearch.trial.bench import Bench
from kernelsearch.worker.messages import jobs
from simulated_gpu import simulate_gpu

TASK = """
import torch, triton, triton.language as tl

def reference(x): return x.sum(0)
def get_inputs(rows=4, cols=160): return [torch.randn(rows, cols)]
SHAPES = [dict(rows=4, cols=160)]
TEST_SHAPES = [dict(rows=3, cols=40)]

{kernel}

def launch(x):
    y = torch.zeros(x.shape[1], device=x.device)
    sum_kernel[(triton.cdiv(x.shape[1], 16),)](x, y, x.shape[0], x.shape[1], BLOCK=16)
    return y
"""
KERNEL = """
@triton.jit
def sum_kernel(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(0, rows):
        total += tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
    tl.store(y_ptr + at, total, mask=at < cols)
"""
IMPORTS = "import triton\nimport triton.language as tl\n"
LOADED = IMPORTS + KERNEL.replace(
    "tl.zeros([BLOCK], tl.float32)", "tl.load(y_ptr + at + BLOCK, mask=(at + BLOCK < cols) & (at + BLOCK > 64), other=0.0)"
)
BEHIND_ATOMIC = (
    LOADED.replace("rows, cols, BLOCK", "rows, cols, count_ptr, BLOCK").replace(
        "    total = ", "    tl.atomic_add(count_ptr, 1)\n    total = "
    )
    + '\nSCRATCH = {"count_ptr": ("int32", "(1,)", 0)}\n'
)
ORDERED = IMPORTS + KERNEL.replace("tl.store(y_ptr + at, total, ", "tl.atomic_add(y_ptr + at, total, ")
PREVIOUS = BEHIND_ATOMIC.replace("at + BLOCK < cols) & (at + BLOCK > 64", "at >= BLOCK) & (at > 64").replace(
    "y_ptr + at + BLOCK", "y_ptr + at - BLOCK"
)


@pytest.fixture
def open_bench(borrowing, tmp_path):
    """`open_bench(kernel)`: a bench of the task with this kernel, on a simulated GPU that accepts everything."""
    opened = []

    def open_bench(kernel=KERNEL):
        path = tmp_path / "task.py"
        path.write_text(TASK.format(kernel=kernel))
        opened.append(Bench.open(path, "h100", compile_workers=1))
        simulate_gpu(opened[-1])
        return opened[-1]

    yield open_bench
    for bench in opened:
        bench.close()


def verify(bench, text):
    return referee.verify_text(bench, text)


def test_races_that_no_run_shows_are_refused_on_a_gpu(open_bench):
    bench = open_bench()
    for text, why in (LOADED, "by program (4, 0, 0)"), (BEHIND_ATOMIC, "with the grid reversed"):
        verdict = verify(bench, text)
        assert (verdict.word, verdict.referee.mode) == (Word.RACE, "gpu"), verdict
        assert verdict.reason.startswith(race_look.SEEN) and why in verdict.reason
