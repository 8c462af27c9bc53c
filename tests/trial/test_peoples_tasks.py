"""Task files of kinds that people have, judged without a GPU: what is said of each."""

import pytest

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import Word
from kernelsearch.trial.referee import explain, verify
from kernelsearch.trial.without_gpu import NOT_RIGHT

HEAD = "import torch, triton, triton.language as tl\n"

SCATTER = """
def reference(x, at):
    y = torch.full_like(x, FILL)
    y[at.long()] = x
    return y

def get_inputs(rows=64, cols=40):
    return [torch.randint(1, 999, (rows, cols), dtype=torch.int32), torch.randperm(rows).int()]

@triton.jit
def put_kernel(x_ptr, at_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c, mask=c < cols)
    tl.store(y_ptr + tl.load(at_ptr + row) * cols + c, x, mask=c < cols)

def put(x, at):
    y = torch.full_like(x, FILL)
    put_kernel[(x.shape[0],)](x, at, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y

SHAPES = [dict(rows=64, cols=40)]
TEST_SHAPES = [dict(rows=3, cols=5)]
"""

TABLE = """
def reference(x, tables): return torch.stack([x + t for t in tables])

def get_inputs(n=300): return [torch.randn(n), [torch.randn(n), torch.randn(n)]]

@triton.jit
def add_kernel(x_ptr, table_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w_ptr = tl.load(table_ptr + tl.program_id(1)).to(tl.pointer_type(tl.float32))
    y = tl.load(x_ptr + i, mask=i < n) + tl.load(w_ptr + i, mask=i < n)
    tl.store(y_ptr + tl.program_id(1) * n + i, y, mask=i < n)

def add(x, tables):
    y = torch.empty(len(tables), x.numel(), device=x.device)
    table = torch.tensor([t.data_ptr() for t in tables], device=x.device, dtype=torch.uint64)
    add_kernel[(triton.cdiv(x.numel(), 256), len(tables))](x, table, y, x.numel(), BLOCK=256)
    return y

TEST_SHAPES = [dict(n=300)]
"""

PTX = """
def reference(x): return x & 0x1F

def get_inputs(n=1024): return [torch.randint(0, 255, (n,), dtype=torch.int32)]

@triton.jit
def low(x):
    return tl.inline_asm_elementwise("and.b32 $0, $1, 0x1F;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)

@triton.jit
def low_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, low(tl.load(x_ptr + i, mask=i < n)), mask=i < n)

def run(x):
    y = torch.empty_like(x)
    low_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y

TEST_SHAPES = [dict(n=70)]
"""

WEAK = """
def reference(logits, bias): return torch.relu(logits) * 0.0 + bias

def get_inputs(rows=64): return [torch.randn(rows, 8), torch.zeros(rows, 8)]

@triton.jit
def zero_kernel(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.zeros((BLOCK,), tl.float32), mask=i < n)

def zero(logits, bias):
    y = torch.empty_like(logits)
    zero_kernel[(triton.cdiv(y.numel(), 128),)](y, y.numel(), BLOCK=128)
    return y

TEST_SHAPES = [dict(rows=3)]
DOMAIN = {"bias": "fixed"}
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        (tmp_path / "task.py").write_text(HEAD + text)
        return str(tmp_path / "task.py")

    return write


@pytest.mark.slow
@pytest.mark.parametrize("fill", ["0", "-1"])
def test_whole_numbers_that_the_launcher_filled_are_judged_by_what_programs_wrote(write, fill):
    verdict = verify(write(SCATTER.replace("FILL", fill)), target="h100")
    assert verdict.accepted
    assert verdict.detail["judged"]["few programs"] and verdict.detail.get(NOT_RIGHT) == ["rows that lie apart"]
    assert "whose strides it ignores" in explain(verdict)
    assert "randn" not in verdict.detail["judged"]["regimes"], "it changes no whole number"


def test_what_only_a_gpu_can_judge_is_said(write):
    verdict = verify(write(PTX), target="h100")
    assert verdict.word is Word.STATIC and "without a GPU: inline PTX" in verdict.reason


@pytest.mark.slow
def test_a_table_of_the_addresses_of_inputs_is_followed(write):
    assert verify(write(TABLE), target="h100").accepted
    wrong = verify(write(TABLE.replace("tl.load(w_ptr + i,", "tl.load(w_ptr + i + 1,")), target="h100")
    assert wrong.word is Word.MEMORY and "nearest 'an input'" in wrong.reason


def test_verify_refuses_a_task_that_says_nothing_as_optimize_does(write):
    with pytest.raises(TaskError, match="cannot be judged: .*zeros would be accepted.*input bias itself"):
        verify(write(WEAK), target="h100")


FIXED = """
def reference(x): return x * 2

def get_inputs(n=300): return [torch.randn(n)]

@triton.jit
def twice_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)

def twice(x):
    y = torch.empty_like(x)
    twice_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y

DOMAIN = {"x": "fixed"}
TEST_SHAPES = [dict(n=70)]
"""


def test_regimes_that_change_nothing_are_not_counted(write):
    assert "; values as get_inputs draws them; " in explain(verify(write(FIXED), target="h100"))


SPARSE = """
def reference(start, place, value, x, kind, skip=-1, shift=3):
    a = torch.sparse_csr_tensor(start, place, value, (start.numel() - 1, x.shape[0]))
    y = a @ x
    return torch.where(kind[:, None] == skip, 0.0, y) * shift

def get_inputs(rows=90, cols=61, width=50):
    a = torch.randn(rows, cols) * (torch.rand(rows, cols) < 0.2)
    start = (a != 0).sum(1).cumsum(0)
    count = int(start[-1])  # a size that values have
    return [torch.cat([start[:1] * 0, start]), a.nonzero()[:count, 1], a[a != 0], torch.randn(cols, width),
            torch.randint(-1, 4, (rows,))]

@triton.jit
def multiply_kernel(start_ptr, place_ptr, value_ptr, x_ptr, kind_ptr, y_ptr, width, skip, shift, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for i in range(tl.load(start_ptr + row), tl.load(start_ptr + row + 1)):
        x = tl.load(x_ptr + tl.load(place_ptr + i) * width + c, mask=c < width, other=0.0)
        total += tl.load(value_ptr + i) * x
    total = tl.where(tl.load(kind_ptr + row) == skip, 0.0, total) * shift
    tl.store(y_ptr + row * width + c, total, mask=c < width)

def multiply(start, place, value, x, kind, skip=-1, shift=3):
    rows, width = start.numel() - 1, x.shape[1]
    y = torch.empty(rows, width, device=x.device)
    block = triton.next_power_of_2(width)
    multiply_kernel[(rows,)](start, place, value, x, kind, y, width, skip, shift, BLOCK=block)
    return y
"""


@pytest.mark.slow
@pytest.mark.parametrize("old, new, word", [
    ("", "", Word.ACCEPT), ("* shift\n    tl", "* 3\n    tl", Word.WRONG), ("== skip", "< 0", Word.WRONG),
])  # fmt: skip
def test_sparse_tensors_and_numbers_that_get_inputs_leaves_out_are_judged_at_sizes_of_values(
    write, tmp_path, old, new, word
):
    """Redrawn indices that a sparse tensor cannot have ended the judge; `skip` and `shift` had one value each."""
    kernel = (
        "import triton\nimport triton.language as tl\n\n\n@triton"
        + SPARSE.split("@triton")[1].split("\ndef multiply(")[0]
    )
    assert old in kernel
    (tmp_path / "kernel.py").write_text(kernel.replace(old, new))
    verdict = verify(write(SPARSE), str(tmp_path / "kernel.py"), target="h100")
    assert verdict.word is word, verdict
    if verdict.accepted:
        assert len(verdict.detail["judged"]["shapes"]) == 2 and verdict.detail["claims"]["shift"]
