"""Programs that wait for each other cannot be judged one after another: said at once, without a wrong advice."""

import pytest

TASK = """
import torch, triton, triton.language as tl

@triton.jit
def sum_kernel(x_ptr, part_ptr, lock_ptr, y_ptr, n, programs, BLOCK: tl.constexpr):
    me = tl.program_id(0)
    at = me * BLOCK + tl.arange(0, BLOCK)
    tl.store(part_ptr + me, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0))
    tl.atomic_xchg(lock_ptr + me, 1)
    if me == COLLECTOR:
        total = 0.0
        for i in range(programs):
            while tl.atomic_cas(lock_ptr + i, 1, 1) != 1:
                pass
            total += tl.load(part_ptr + i, volatile=True)
        tl.store(y_ptr, total)

def total(x):
    n = x.numel()
    programs = triton.cdiv(n, 256)
    y = torch.empty((), dtype=x.dtype, device=x.device)
    part = torch.empty(programs, dtype=x.dtype, device=x.device)
    lock = torch.zeros(programs, dtype=torch.int32, device=x.device)
    sum_kernel[(programs,)](x, part, lock, y, n, programs, BLOCK=256)
    return y

def reference(x): return x.sum()
def get_inputs(rows=128, cols=256): return [torch.randn(rows, cols)]
"""


def test_the_first_program_waits_for_the_last(run, tmp_path):
    (tmp_path / "total.py").write_text(TASK.replace("COLLECTOR", "0"))
    done = run("verify", "total.py").json
    assert done["verdict"] == "timeout" and "cannot be judged without a GPU" in done["reason"]
    assert "TEST_SHAPES" not in done["reason"]


@pytest.mark.slow
def test_the_last_waits_for_those_before_it(run, tmp_path):
    (tmp_path / "total.py").write_text(TASK.replace("COLLECTOR", "programs - 1"))
    done = run("verify", "total.py").json
    assert done["verdict"] == "timeout" and "with the grid reversed" in done["reason"]
    assert "cannot be judged without a GPU" in done["reason"]
