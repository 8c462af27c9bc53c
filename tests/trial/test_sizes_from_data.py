"""Tasks whose outputs and launches depend on the values of the inputs, or on what a kernel computes."""

import pytest

HEAD = """
import torch, triton, triton.language as tl

def reference(x): return x[x > 0] * 2
def get_inputs(rows=128, cols=256): return [torch.randn(rows, cols)]

@triton.jit
def gather_kernel(x_ptr, at_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(at_ptr + i, mask=i < n, other=0)
    tl.store(y_ptr + i, tl.load(x_ptr + at, mask=i < n, other=0.0) * 2, mask=i < n)
"""
TASKS = {
    "sizes from the inputs": """
def positive(x):
    at = torch.nonzero(x.view(-1) > 0).view(-1)
    y = torch.empty(at.numel(), dtype=x.dtype, device=x.device)
    gather_kernel[lambda m: (triton.cdiv(at.numel(), m["BLOCK"]),)](x, at, y, at.numel(), BLOCK=256)
    return y
""",
    "sizes from a kernel": """
@triton.jit
def mark_kernel(x_ptr, mark_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(mark_ptr + i, (x > 0).to(tl.int32), mask=i < n)

def positive(x):
    marks = torch.empty(x.numel(), dtype=torch.int32, device=x.device)
    mark_kernel[lambda m: (triton.cdiv(x.numel(), m["BLOCK"]),)](x, marks, x.numel(), BLOCK=256)
    at = torch.nonzero(marks).view(-1)
    y = torch.empty(int(marks.sum()), dtype=x.dtype, device=x.device)
    gather_kernel[lambda m: (triton.cdiv(at.numel(), m["BLOCK"]),)](x, at, y, at.numel(), BLOCK=256)
    return y
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_it_is_judged_and_searched(run, tmp_path, name):
    (tmp_path / "task.py").write_text(HEAD + TASKS[name])
    searched = run("optimize", "task.py", "--trials", 3)
    assert searched.code == 0, searched.err
    assert ("the grid of gather_kernel is empty" in searched.err) is (name == "sizes from a kernel")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "result", "says"),
    [
        ("sizes from the inputs", "y[:-1]", "shape"),
        ("sizes from a kernel", "torch.cat([y, y[:1]])", "shape"),
        ("sizes from a kernel", "y.double()", "from the reference, but"),
        ("sizes from a kernel", "y[None]", "from the reference, but"),
    ],
)
def test_another_size_dtype_or_rank_is_still_seen(run, tmp_path, name, result, says):
    (tmp_path / "task.py").write_text(HEAD + TASKS[name].replace("return y\n", f"return {result}\n"))
    done = run("verify", "task.py")
    assert done.code != 0 and says in (done.json["reason"] if done.code == 1 else done.err)


INPUTS_THAT_READ = {
    "item": "lengths = torch.tensor([n, n // 2]); return [torch.randn(int(lengths.sum()))]",
    "tolist": "return [torch.cat([torch.randn(k) for k in torch.randint(1, n, (4,)).tolist()])]",
    "nonzero": "x = torch.randn(n); return [x[torch.nonzero(x > 0).view(-1)]]",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", INPUTS_THAT_READ)
def test_inputs_that_are_made_of_values(run, tmp_path, way):
    (tmp_path / "task.py").write_text(f"""
import torch, triton, triton.language as tl

@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)

def double(x):
    y = torch.empty_like(x)
    double_kernel[lambda m: (triton.cdiv(x.numel(), m["BLOCK"]),)](x, y, x.numel(), BLOCK=256)
    return y

def reference(x): return x * 2
def get_inputs(n=1000): {INPUTS_THAT_READ[way]}
""")
    searched = run("optimize", "task.py", "--trials", 3)
    assert searched.code == 0, searched.err


DERIVED = {
    "one less": ("lengths - 1", "torch.randint(1, rows, (rows,))"),
    "starts": ("torch.cumsum(lengths, 0) - 1", "1 - torch.arange(rows) % 2"),
    "from the end": ("lengths.shape[0] - lengths", "torch.randint(1, rows + 1, (rows,), dtype=torch.int32)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("rows", [512, 3 * 2**16])
@pytest.mark.parametrize("way", DERIVED)
def test_addresses_that_the_launcher_makes_of_an_input(run, tmp_path, way, rows):
    """With zeros for lengths the seed would read outside of its buffers when it is counted."""
    derived, lengths = DERIVED[way]
    (tmp_path / "task.py").write_text(f"""
import torch, triton, triton.language as tl

@triton.jit
def pick_kernel(table_ptr, at_ptr, out_ptr, D: tl.constexpr):
    row = tl.program_id(0)
    at = tl.load(at_ptr + row).to(tl.int64)
    col = tl.arange(0, D)
    tl.store(out_ptr + row * D + col, tl.load(table_ptr + at * D + col))

def pick(lengths, table):
    at = {derived}
    out = torch.empty(lengths.shape[0], table.shape[1], device=table.device)
    pick_kernel[(lengths.shape[0],)](table, at, out, D=table.shape[1])
    return out

def reference(lengths, table): return table[{derived}]
def get_inputs(rows={rows}, dim=512): return [{lengths}, torch.randn(rows, dim)]
TEST_SHAPES = [dict(rows=8, dim=16), dict(rows=7, dim=32)]
""")
    searched = run("optimize", "task.py", "--trials", 2)
    assert searched.code == 0, searched.err
