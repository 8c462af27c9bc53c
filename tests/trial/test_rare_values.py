"""Kernels that are wrong at values that draws hardly have: -0.0, edges, one end for all integers, floats all alike."""

import pytest

from kernelsearch.core.types import Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench

HEAD = "import triton\nimport triton.language as tl\n\n\n"

SIGNS = """import torch

def reference(x, y):
    return torch.copysign(x, y)

def get_inputs(n=4096):
    return [torch.randn(n), torch.randn(n)]
TEST_SHAPES = [dict(n=100)]

@triton.jit
def sign_kernel(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = tl.load(y_ptr + at, mask=at < n, other=0.0)
    negative = y.to(tl.int32, bitcast=True) < 0
    tl.store(o_ptr + at, tl.where(negative, -tl.abs(x), tl.abs(x)), mask=at < n)

def sign(x, y):
    o = torch.empty_like(x)
    sign_kernel[(triton.cdiv(x.numel(), 64),)](x, y, o, x.numel(), BLOCK=64)
    return o
"""
SUMS = """import torch

def reference(a, b):
    return (a.int() * b.int()).sum(-1, dtype=torch.int32)

def get_inputs(rows=64, cols=512):
    return [torch.randint(-128, 128, (rows, cols), dtype=torch.int8) for _ in range(2)]
TEST_SHAPES = [dict(rows=5, cols=300)]

@triton.jit
def sum_kernel(a_ptr, b_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * cols + at, mask=at < cols, other=0).to(tl.int32)
    b = tl.load(b_ptr + row * cols + at, mask=at < cols, other=0).to(tl.int32)
    total = tl.sum(a * b, 0)
    tl.store(o_ptr + row, total)

def sum_products(a, b):
    o = torch.empty(a.shape[0], dtype=torch.int32, device=a.device)
    sum_kernel[(a.shape[0],)](a, b, o, a.shape[1], BLOCK=triton.next_power_of_2(a.shape[1]))
    return o
"""
DISTANCES = """import torch

def reference(a, b):
    return ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)

def get_inputs(m=64, n=48, d=8):
    return [torch.randn(m, d), torch.randn(n, d)]
TEST_SHAPES = [dict(m=5, n=7, d=8)]

@triton.jit
def distance_kernel(a_ptr, b_ptr, o_ptr, M, N, D, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(D):
        a = tl.load(a_ptr + i * D + k, mask=i < M, other=0.0)[:, None]
        b = tl.load(b_ptr + j * D + k, mask=j < N, other=0.0)[None, :]
        acc += (a - b) * (a - b)
    tl.store(o_ptr + i[:, None] * N + j[None, :], acc, mask=(i[:, None] < M) & (j[None, :] < N))

def distance(a, b):
    (m, d), n = a.shape, b.shape[0]
    o = torch.empty(m, n, device=a.device)
    distance_kernel[(triton.cdiv(m, 16), triton.cdiv(n, 16))](a, b, o, m, n, d, BM=16, BN=16)
    return o
"""
EDGES = """import torch
HIGH = 6.0

def reference(x, low: float = -0.75):
    return x.clamp(low, HIGH), torch.where((x >= -0.5) & (x <= 0.5), 0.0, x), (x > low) & (x < HIGH)

def get_inputs(n=4096):
    return [torch.randn(n)]
TEST_SHAPES = [dict(n=300)]

@triton.jit
def edge_kernel(x_ptr, y_ptr, z_ptr, inside_ptr, n, low, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, tl.minimum(tl.maximum(x, low), 6.0), mask=at < n)
    tl.store(z_ptr + at, tl.where((x >= -0.5) & (x <= 0.5), 0.0, x), mask=at < n)
    tl.store(inside_ptr + at, (x > low) & (x < 6.0), mask=at < n)

def edge(x, low: float = -0.75):
    y, z, inside = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
    edge_kernel[(triton.cdiv(x.numel(), 64),)](x, y, z, inside, x.numel(), low, BLOCK=64)
    return y, z, inside
"""
CHEATS = {
    "minus zero is taken for zero": (SIGNS, "y.to(tl.int32, bitcast=True) < 0", "y < 0"),
    "a sum keeps 23 bits": (SUMS, "tl.sum(a * b, 0)", "(tl.sum(a * b, 0) << 9) >> 9"),
    "an edge in the text": (EDGES, "x <= 0.5", "x < 0.5"),
    "an edge in the module": (EDGES, "x < 6.0", "x <= 6.0"),
    "an edge that is an input": (EDGES, "x > low", "x >= low"),
    "squares that cancel": (DISTANCES, "(a - b) * (a - b)", "a * a + b * b - 2 * a * b"),
}


@pytest.mark.slow
@pytest.mark.parametrize("task, old, new", CHEATS.values(), ids=CHEATS)
def test_a_kernel_that_is_wrong_there_is_refused_and_the_task_s_own_is_not(tmp_path, task, old, new):
    text = task.replace("import torch\n", "import torch, triton, triton.language as tl\n")
    (path := tmp_path / "task.py").write_text(text)
    kernel = HEAD + text[text.index("@triton.jit") : text.index("\ndef ", text.index("@triton.jit") + 20)]
    with Bench.open(path, "h100") as bench:
        evaluation = Evaluation(bench)
        assert evaluation.verify(bench.seed, bench.facts.config).accepted
        verdict = evaluation.verify(Kernel.parse(kernel.replace(old, new)), bench.facts.config)
    assert verdict.word is Word.WRONG and old in kernel, verdict.reason
