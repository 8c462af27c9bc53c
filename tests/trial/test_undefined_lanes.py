"""Lanes that are masked without `other` are undefined in the language and 0 on NVIDIA cards: said where they matter."""

import pytest

TASK = """
import torch, triton, triton.language as tl

@triton.jit
def peak_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n)
    BODY

def peak(x):
    y = torch.empty(OUT, device=x.device)
    peak_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y

def reference(x): return ANSWER
def get_inputs(rows=8, cols=64): return [torch.randn(rows, cols)]
TEST_SHAPES = [dict(rows=3, cols=32), dict(rows=3, cols=45)]
"""
ONE, ALL = "tl.store(y_ptr + row, {})", "tl.store(y_ptr + row * n + cols, {}, mask=cols < n)"
USED = {
    "a sum": (ONE.format("tl.sum(x, 0)"), "x.shape[0]", "x.sum(1)"),
    "a largest of sizes": (ONE.format("tl.max(tl.abs(x), 0)"), "x.shape[0]", "x.abs().amax(1)"),
    "nothing times what may be NaN": (ONE.format("tl.sum(x * (cols < n), 0)"), "x.shape[0]", "x.sum(1)"),
}
UNUSED = {
    "a masked store": (ALL.format("x * 2"), "x.shape", "x * 2"),
    "a choice": (ONE.format("tl.sum(tl.where(cols < n, x, 0.0), 0)"), "x.shape[0]", "x.sum(1)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("body, out, answer", [*USED.values(), *UNUSED.values()], ids=[*USED, *UNUSED])
def test_they_are_named_where_they_reach_the_result(run, tmp_path, body, out, answer):
    (tmp_path / "peak.py").write_text(TASK.replace("BODY", body).replace("OUT", out).replace("ANSWER", answer))
    done = run("verify", "peak.py").json
    assert done["verdict"] == "accept"
    notes = [n for n in done["detail"].get("notes", ()) if "masked without `other`" in n]
    assert len(notes) == ((body, out, answer) in USED.values())
