"""Masks joined by `and`, `or` and `not` are what Triton compiles them to, alone and inside other expressions."""

import pytest

TASK = """
import torch, triton, triton.language as tl

def reference(x):
    return torch.where(x > 0, x * 2, torch.zeros_like(x))

def get_inputs(rows=40, cols=70):
    return [torch.randn(rows, cols)]

TEST_SHAPES = [dict(rows=3, cols=70), dict(rows=17, cols=5)]

@triton.jit
def twice_kernel(x_ptr, y_ptr, rows, cols, BR: tl.constexpr, BC: tl.constexpr, ON: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)[:, None]
    c = tl.program_id(1) * BC + tl.arange(0, BC)[None, :]
    LINES

def twice(x):
    y = torch.empty_like(x)
    rows, cols = x.shape
    twice_kernel[(triton.cdiv(rows, 16), triton.cdiv(cols, 64))](x, y, rows, cols, BR=16, BC=64, ON=True)
    return y
"""
RIGHT = {
    "and of masks": """ok = (r < rows) and (c < cols)
    x = tl.load(x_ptr + r * cols + c, mask=ok, other=0.0)
    tl.store(y_ptr + r * cols + c, tl.where(x > 0, x * 2, 0.0), mask=ok)""",
    "and inside a call": """x = tl.load(x_ptr + r * cols + c, mask=(r < rows) and (c < cols), other=0.0)
    tl.store(y_ptr + r * cols + c, tl.where(x > 0, x * 2, 0.0), mask=(r < rows) and (c < cols))""",
    "or of masks, negated": """out = (r >= rows) or (c >= cols)
    x = tl.load(x_ptr + r * cols + c, mask=not out, other=0.0)
    tl.store(y_ptr + r * cols + c, tl.where(not (x <= 0), x * 2, 0.0), mask=not out)""",
    "a constant, unwrapped, and a mask": """ok = ON and (r < rows) and (c < cols)
    x = tl.load(x_ptr + r * cols + c, mask=ok, other=0.0)
    if ON.value or tl.program_id(0) < 0:
        x = tl.where(x > 0, x * 2, 0.0)
    tl.store(y_ptr + r * cols + c, x, mask=ok)""",
}
WRONG = {
    "one mask missing": """ok = (r < rows) and (c < BC * 100)
    x = tl.load(x_ptr + r * cols + c, mask=ok, other=0.0)
    tl.store(y_ptr + r * cols + c, tl.where(x > 0, x * 2, 0.0), mask=(r < rows) and (c < cols))""",
    "or where and is meant": """ok = (r < rows) and (c < cols)
    x = tl.load(x_ptr + r * cols + c, mask=ok, other=0.0)
    tl.store(y_ptr + r * cols + c, tl.where((x > 0) or (c >= 0), x * 2, 0.0), mask=ok)""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_is_accepted(run, tmp_path, name):
    (tmp_path / "twice.py").write_text(TASK.replace("LINES", RIGHT[name]))
    done = run("verify", "twice.py")
    assert done.json["verdict"] == "accept", done.json["reason"]
    judged = done.json["detail"]["judged"]  # in full, and on stderr in one line
    assert {"mixed", "randn", "scaled"} <= set(judged["regimes"]) and judged["shapes"] and judged["made"], judged
    (line,) = [line for line in done.err.splitlines() if line.startswith("judged: ")]
    kinds = f"{len(judged['regimes'])} kinds of values (several kinds"
    assert f"test shapes ({judged['shapes'][0]}, ...); 1 timed shape ({judged['timed'][0]}); {kinds}" in line
    assert "Not judged: " in line and line.endswith("what only a GPU shows (--explain lists it)")


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_not(run, tmp_path, name):
    (tmp_path / "twice.py").write_text(TASK.replace("LINES", WRONG[name]))
    verdict = run("verify", "twice.py").json
    assert verdict["verdict"] in ("reject-memory", "reject-wrong")
    if name == "one mask missing":  # the line of the user's own file is said
        line = "x = tl.load(x_ptr + r * cols + c, mask=ok, other=0.0)"
        number = TASK.replace("LINES", WRONG[name]).partition(line)[0].count("\n") + 1
        assert verdict["reason"].endswith(f", at `{line}` (line {number} of twice.py)")


def test_a_launcher_may_enter_the_devices_guards(run, tmp_path):
    text = TASK.replace("LINES", RIGHT["and of masks"]).replace(
        "    twice_kernel[",
        "    stream = torch.cuda.current_stream()\n    with torch.cuda.device(x.device), torch.cuda._DeviceGuard(0):\n"
        "      twice_kernel[",
    )
    (tmp_path / "twice.py").write_text(text)
    assert run("verify", "twice.py").json["verdict"] == "accept"
