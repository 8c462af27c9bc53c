"""`FILE.py:NAME` is a task: a function or a class of any file, whose inputs may be recorded from a call."""

import re
import sys
import time

import pytest

from kernelsearch.core.errors import TaskError
from kernelsearch.propose.inductor.task_file import MARK
from kernelsearch.search import first_kernel
from kernelsearch.search.first_kernel import list_starts
from kernelsearch.tasks.named_function import blame_original, find_task_file

HEAD = "import torch\n\n"
ROWS = "def get_inputs(rows=64, cols=300):\n    return [torch.randn(rows, cols)]\n"


@pytest.mark.slow
def test_a_function_of_any_file_is_a_task(run, tmp_path):
    function = "def twice(x):\n    return x / x.abs().mean(-1, keepdim=True)\n\n\n"
    (tmp_path / "layers.py").write_text(HEAD + function + ROWS.replace("get_inputs", "get_inputs_twice"))
    unknown = run("seed", "layers.py:twise")
    assert unknown.code == 2 and unknown.err.strip().endswith("has no function or class 'twise'; did you mean twice?")
    done = run("seed", "layers.py:twice", "-o", "made.py")
    assert done.code == 0 and "wrote made.py and made_start.py, a second start" in done.out
    assert (tmp_path / "layers_twice.py").read_text().endswith("reference = twice\nget_inputs = get_inputs_twice\n")
    assert list_starts(str(tmp_path / "made.py")) == [str(tmp_path / "made_start.py")]
    (tmp_path / "layers_start.py").write_text("somebody's own file")
    assert list_starts(str(tmp_path / "layers.py")) == []
    assert "for r0" not in (tmp_path / "made.py").read_text() and "for r0" in (tmp_path / "made_start.py").read_text()
    judged = run("verify", "made.py", "made_start.py")
    assert judged.code == 0, judged.out + judged.err


def test_errors_are_of_the_users_own_file_and_say_what_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layers.py").write_text(f"{HEAD}def twice(x):\n    return x * 2\n\n\n{ROWS}")
    task = find_task_file("layers.py:twice")
    with (
        pytest.raises(TaskError, match=r"^layers.py:twice: it fails \(line 4\)$"),
        blame_original("layers.py:twice", task),
    ):
        raise TaskError("layers_twice.py: it fails (line 4)")
    with pytest.raises(TaskError, match=r"^layers_twice.py: line 14"), blame_original("layers.py:twice", task):
        raise TaskError("layers_twice.py: line 14 of it")
    (tmp_path / "layers_twice_seeded.py").write_text(f"an older text\n{MARK}\n")
    anew = "kernelsearch seed layers.py:twice -o layers_twice_seeded.py --force"
    changed = "^layers.py:twice has changed since layers_twice_seeded.py was made from it: write that anew "
    with (
        pytest.raises(TaskError, match=rf"{changed}\(`{anew}`\), or move it away$"),
        blame_original("layers.py:twice", task),
    ):
        first_kernel.write_first_kernel(task, "h100", print)
    (tmp_path / "layers_twice_seeded.py").write_text("somebody's own file")
    with pytest.raises(TaskError, match=r"layers_twice_seeded.py is in the way"):
        first_kernel.write_first_kernel(task, "h100", print)


LAYERS = """import torch


def scale(x, y, w=None, *, power=1.0):
    return (x + y) * w ** power


class Norm(torch.nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.weight


class Model(torch.nn.Module):
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, x):
        return x
"""
CALLED = "from layers import *\n\nif __name__ == '__main__':\n    "
CALLS = {
    "scale(torch.ones(4, 6).cuda(), torch.arange(24).view(6, 4).t())": (
        "(x_0=4, x_1=6):\n    return [torch.randn(x_0, x_1, dtype=torch.float32), "
        "torch.randint(0, 24, (x_1, x_0,), dtype=torch.int64).permute(1, 0)]\n"
    ),
    "Norm(6)(torch.ones(4, 6, dtype=torch.float16))": (
        "x_0 = 4\n\n\ndef get_inputs():\n    return [torch.randn(x_0, 6, dtype=torch.float16)]\n\n\n"
        "def get_init_inputs():\n    return [6]\n"
    ),
}
CALLS["Norm(6).eval()(torch.ones(4, 6))"] = (
    "\n\n\nclass Model(Norm):\n    def __init__(self, *given):\n        super().__init__(*given)\n"
    "        self.eval()  # as it was called\n"
)
NOT_RECORDED = {
    "scale(torch.ones(3), 2.0, power=2)": "scale was called with power, which has no place of its own",
    "scale(torch.ones(3), [torch.ones(3)])": "scale was called with y, a list: only tensors, numbers, words and dtypes",
    "scale(torch.ones(3), torch.ones(3, dtype=torch.cfloat))": "y has complex numbers",
    "scale(torch.empty(2**34, device='meta'), 1.0)": "x has 64 GiB: record a call with less",
    "scale(torch.load('nowhere'), 1.0)": "train.py failed before it called scale: FileNotFoundError",
    "Model().eval()(torch.ones(2))": "write super() for super(Model, self)",
    "print('nothing')": "train.py ended without a call of scale of layers.py",
}


@pytest.mark.parametrize("call", [*CALLS, *NOT_RECORDED])
def test_inputs_are_recorded_from_a_call(tmp_path, monkeypatch, call):
    from kernelsearch.worker.launcher.recorded_call import record_call

    monkeypatch.setattr("sys.path", sys.path[:])
    monkeypatch.delitem(sys.modules, "layers", raising=False)
    (tmp_path / "layers.py").write_text(LAYERS)
    (tmp_path / "train.py").write_text(CALLED + call)
    ask = (
        str(tmp_path / "train.py"),
        str(tmp_path / "layers.py"),
        next(n for n in ("Norm", "Model", "scale") if n in call + "scale"),
    )
    if call in CALLS:
        assert record_call(*ask).endswith(CALLS[call])
    else:
        with pytest.raises(TaskError, match=re.escape(NOT_RECORDED[call])):
            record_call(*ask)


def test_a_recorded_call_is_the_task(run, tmp_path):
    (tmp_path / "layers.py").write_text(LAYERS)
    (tmp_path / "train.py").write_text(CALLED + "scale(torch.ones(4, 6), torch.ones(4, 6), torch.ones(6))")
    unknown = run("optimize", "layers.py:scale")
    assert unknown.code == 2 and "or record it: kernelsearch seed layers.py:scale --call SCRIPT.py" in unknown.err
    assert run("seed", "layers.py:scale", "--call", "train.py", "-o", "made.py").code == 0
    assert "x_ptr, y_ptr, w_ptr, out_ptr" in (tmp_path / "made.py").read_text()
    (tmp_path / "train.py").unlink()
    assert run("seed", "layers.py:scale").out == (tmp_path / "made.py").read_text()


METHOD = """import torch, triton, triton.language as tl

@triton.jit
def twice_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0) * 2, mask=at < n)

class Twice:
    def run(self, x):
        y = torch.empty_like(x)
        twice_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y
"""
TASK_PART = "def reference(x): return x * 2\ndef get_inputs(n=512): return [torch.randn(n)]\n"


@pytest.mark.parametrize("name", ["run", "Twice", "Twice.run", ""])
def test_a_method_as_a_launcher_is_refused_with_what_to_write(run, tmp_path, name):
    """It was "no function or class", "ended without a call" or "has no kernel that a function of it launches"."""
    (tmp_path / "twice.py").write_text(METHOD if name else METHOD + TASK_PART)
    (tmp_path / "calls.py").write_text("from twice import Twice\nimport torch\nTwice().run(torch.randn(9))\n")
    done = run("verify", *([f"twice.py:{name}", "--call", "calls.py"] if name else ["twice.py"]))
    said = done.err.strip().splitlines()[-1]
    assert done.code == 2 and "Twice.run" in said and "is a method: add a function at the top level" in said
    assert "`def run(x): return Twice().run(x)`" in said


def test_quiet_prints_no_progress_of_a_recorded_call(capsys, monkeypatch):
    from kernelsearch.cli import options

    monkeypatch.setattr(first_kernel, "record_inputs", lambda task, call, say: say("a note") or time.sleep(1.2) or "")
    monkeypatch.setattr("kernelsearch.tasks.named_function.find_task_file", lambda task, text: task)
    for quiet in (True, False):
        assert options.record_task("f.py:g", "s.py", quiet) == "f.py:g"
        assert bool(capsys.readouterr().err) is not quiet
