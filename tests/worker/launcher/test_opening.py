"""Test shapes that are made of a timed one become ones that the launcher and the kernel take, and no others change."""

import pytest
import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.worker.launcher import opening, trace

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


HEAD = "import torch, triton, triton.language as tl\n"
DESCRIPTORS = (
    HEAD
    + """
def reference(x): return x.chunk(2, 1)[1] * 2

def get_inputs(rows=4096, cols=1024): return [torch.randn(rows, cols, dtype=torch.bfloat16)]

@triton.jit
def right_half(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    half = cols // 2
    x = tl.make_tensor_descriptor(x_ptr + half, shape=[rows, half], strides=[cols, 1], block_shape=[BLOCK, 16])
    y = tl.make_tensor_descriptor(y_ptr, [rows, half], [half, 1], block_shape=[BLOCK, 16])
    for c in range(0, half, 16):
        y.store([tl.program_id(0) * BLOCK, c], x.load([tl.program_id(0) * BLOCK, c]) * 2)

def launch(x):
    rows, cols = x.shape
    y = torch.empty(rows, cols // 2, dtype=x.dtype, device=x.device)
    right_half[(triton.cdiv(rows, 16),)](x, y, rows, cols, BLOCK=16)
    return y
"""
)


def test_sizes_keep_the_strides_and_starts_of_descriptors_aligned(tmp_path):
    (tmp_path / "half.py").write_text(DESCRIPTORS)
    task = opening.open_task(tmp_path / "half.py", target_by_name("h100"))
    for _, params in task.test_shapes:
        assert params["cols"] // 2 * 2 % 16 == 0, "the second half begins and its rows are at multiples of 16 bytes"


IN_PLACE = (
    HEAD
    + """
def reference(logits, scale): return logits * scale

def get_inputs(rows=4096, cols=1024): return [torch.randn(rows, cols), torch.rand(()) + 0.5]

@triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})], key=["n"], WORD=["l_ptr"])
@triton.jit
def scale_kernel(l_ptr, s_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(l_ptr + at, tl.load(l_ptr + at, mask=at < n) * tl.load(s_ptr), mask=at < n)

def scale_(logits, scale):
    flat = logits.view(-1)
    scale_kernel[lambda meta: (triton.cdiv(flat.numel(), meta["BLOCK"]),)](flat, scale, flat.numel())
    return logits
"""
)


@pytest.mark.parametrize("word", ["restore_value", "reset_to_zero"])
def test_what_an_autotuner_restores_may_be_changed(tmp_path, word):
    (tmp_path / "scale.py").write_text(IN_PLACE.replace("WORD", word))
    task = opening.open_task(tmp_path / "scale.py", target_by_name("h100"))
    assert task.mutates == ("logits",) and any("MUTATES = ('logits',)" in note for note in task.notes)
    case = task.build("test:0")
    before = case.inputs[0].clone()
    assert torch.equal(case.reference(*case.inputs), before * case.inputs[1])
    assert torch.equal(case.inputs[0], before * case.inputs[1]), "the input holds what is returned in its place"
    (tmp_path / "given.py").write_text(IN_PLACE.replace("WORD", word) + "MUTATES = ()\n")
    assert opening.open_task(tmp_path / "given.py", target_by_name("h100")).mutates == ()


@pytest.mark.parametrize("right, random", [
    ("torch.nn.functional.dropout(x, 0.1)", True),
    ("x * 2 + 1e-3 * torch.randn_like(x)", True),
    ("x * 2 + torch.nn.functional.dropout(x, 0.1, training=False)", False),
    ("torch.manual_seed(3) and x * torch.rand_like(x)", False),
    ("x * 2", False),
])  # fmt: skip
def test_a_reference_that_differs_from_itself_is_refused(tmp_path, right, random):
    text = TASK.replace("RIGHT", right).replace("BODY", "pass").replace("CHECK", "pass")
    (tmp_path / "twice.py").write_text(text)
    target = target_by_name("h100")
    task = opening.open_task(tmp_path / "twice.py", target)
    if not random:
        return trace.must_repeat(task, "test:0", target)
    with pytest.raises(TaskError, match="pass the mask or the random bits as an input"):
        trace.must_repeat(task, "test:0", target)
