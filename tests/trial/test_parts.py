"""What each function of a launcher takes stands beside the time of the whole call."""

import pytest

from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench
from kernelsearch.tune.blocks import share_parts

TEXT = """
import torch, triton, triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) + 1.0, at < n)

@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) * 3.0, at < n)

def seed(x):
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
    y, z = torch.empty_like(x), torch.empty_like(x)
    add_kernel[grid](x, y, x.numel(), BLOCK=256)
    scale_kernel[grid](y, z, x.numel(), BLOCK=256)
    add_kernel[grid](z, y, x.numel(), BLOCK=256)
    return y

def reference(x):
    return 3.0 * (x + 1.0) + 1.0

def get_inputs(n=64):
    return [torch.randn(n, 1000)]

SHAPES = [dict(n=4096), dict(n=2000)]
TEST_SHAPES = [dict(n=2)]
"""


@pytest.mark.slow
def test_functions_are_estimated_or_timed_by_themselves(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(TEXT)
    with Bench.open(file) as bench:
        measured = Evaluation.of(bench, bench.facts).evaluate(bench.seed, bench.facts.config).measurement
        parts, whole = share_parts(measured, dict.fromkeys(measured.by_shape, 0.5)), sum(measured.by_shape.values())
    assert set(parts) == {"add_kernel", "scale_kernel"} and len(measured.times) == 2
    assert 1.3 < parts["add_kernel"] / parts["scale_kernel"] < 3.0  # it comes twice
    assert sum(parts.values()) == pytest.approx(whole, rel=1e-6 if bench.device is None else 0.5)
