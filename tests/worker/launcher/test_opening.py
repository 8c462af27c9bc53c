"""Test shapes that are made of a timed one become ones that the launcher and the kernel take, and no others change."""

import pytest

from kernelsearch.kernel.targets import target_by_name
from kernelsearch.worker.launcher import opening

TASK = """
import torch, triton, triton.language as tl

def reference(x): return RIGHT

def get_inputs(rows=4096, cols=1024): return [torch.randn(rows, cols)]

@triton.jit
def twice_kernel(x_ptr, y_ptr, n, cols: tl.constexpr, BLOCK: tl.constexpr):
    BODY
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)

def twice(x):
    rows, cols = x.shape
    CHECK
    y = torch.empty_like(x)
    twice_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), cols, BLOCK=256)
    return y
"""
PLAIN = {"RIGHT": "x * 2", "BODY": "pass", "CHECK": "pass"}


@pytest.mark.parametrize("change, sizes", [
    ({}, {"rows": 37, "cols": 70}),
    ({"CHECK": "assert cols % 128 == 0"}, {"rows": 37, "cols": 384}),
    ({"CHECK": "assert rows % 64 == 0 and cols % 64 == 0"}, {"rows": 192, "cols": 192}),
    ({"BODY": "HALF: tl.constexpr = cols // 2\n    i = tl.arange(0, HALF)"}, {"rows": 37, "cols": 16}),
    ({"RIGHT": "torch.cat(x[:, : x.shape[1] // 4 * 4].chunk(4, 1), 1) * 2"}, {"rows": 37, "cols": 48}),
    ({"CHECK": "assert cols < 0"}, {"rows": 37, "cols": 70}),  # the launcher's error is said elsewhere
])  # fmt: skip
def test_sizes_that_the_task_takes(tmp_path, change, sizes):
    text = TASK
    for word, part in {**PLAIN, **change}.items():
        text = text.replace(word, part)
    (tmp_path / "twice.py").write_text(text)
    task = opening.open_task(tmp_path / "twice.py", target_by_name("h100"))
    assert dict(task.test_shapes)["test:0"] == sizes
    given = "TEST_SHAPES = [dict(rows=3, cols=5)]\n"
    (tmp_path / "given.py").write_text(text + given)
    task = opening.open_task(tmp_path / "given.py", target_by_name("h100"))
    assert dict(task.test_shapes)["test:0"] == {"rows": 3, "cols": 5}, "the file's own shapes stay"
