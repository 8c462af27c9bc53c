"""Whole kernels on the command line: a program answers, its kernels are judged, tuned, recorded and shown."""

import os
import sys
import textwrap

import pytest
from test_propose import TASK

from kernelsearch.record.store import Store

RIGHT = '''"""One element a lane."""
import triton
import triton.language as tl

GRID = "(cdiv(n, BLOCK),)"
SPACE = {"BLOCK": [256, 512, 1024], "num_warps": [1, 2, 4]}
CONFIG = {"BLOCK": 512, "num_warps": 2}


@triton.jit
def gated(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = tl.load(y_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, tl.where(x < 0.0, 0.0, x) * y, mask=at < n)
'''
WRONG = RIGHT.replace("x) * y", "x) * y * 1.01")


@pytest.fixture
def task(tmp_path):
    (tmp_path / "gate.py").write_text(TASK)
    return "gate.py"


def program(tmp_path, body):
    path = tmp_path / "answer.py"
    path.write_text(f"#!{sys.executable}\nimport json, sys\nrequest = json.load(sys.stdin)\n" + textwrap.dedent(body))
    path.chmod(0o755)
    return f"command:{path}"


@pytest.mark.slow
def test_a_program_writes_a_kernel_that_is_refused_repaired_tuned_and_stored(run, task, tmp_path):
    host = WRONG.replace("\n\n@triton", "import os\n\n@triton", 1)
    answers = [f"<think>?</think>\n```python\n{k}```\n" for k in (host, WRONG, RIGHT)]
    spec = program(tmp_path, f"print({answers!r}[min(2, len(request['messages']) // 2 - 1)])")
    done = run("optimize", task, "--trials", "24", "--seed", "2", "--proposer", spec, "--json", "--window", "2")
    assert done.code == 0, done.err
    with Store.open(tmp_path / "kernelsearch.db") as store:
        calls, structures, trials = store.load_calls(1), store.load_structures(1), store.load_trials(1)
    first, second = calls[:2]
    assert (first.arm, [a.stage for a in first.answers]) == ("kernel:answer.py", ["gate"])
    assert second.arm == "kernel-repair:answer.py" and "at `import os`" in second.page
    wrong = second.answers[0].kernel
    third = next(c for c in calls if c.follows == wrong)
    assert "first wrong element" in third.page and second.page in third.page
    right = third.answers[0].kernel
    assert {t.outcome.verdict.word.value for t in trials if t.kernel == wrong} == {"reject-wrong"}
    tuned = [dict(t.config) for t in trials if t.kernel == right and t.accepted]
    assert len(tuned) >= 3 and tuned[0] == {"BLOCK": 512, "num_warps": 2} and {1, 4} & {c["num_warps"] for c in tuned}
    assert structures[right].rationale == "One element a lane." and structures[right].edit == "kernel-repair:answer.py"
    assert "kernel-repair:answer.py" in run("lineage", right[:8]).out
    page = run("page", task, "--quiet")
    assert page.code == 0 and "One element a lane." in page.out


@pytest.mark.slow
def test_the_page_of_a_task_holds_what_a_strong_model_needs(run, task):
    done = run("page", task, "--quiet")
    assert done.code == 0, done.err
    for part in ("return torch.relu(x) * y", "gate_kernel[triton.cdiv", "n=65536", "n=300",
                 "132 SMs", "registers a thread", "Alone, in us: ", "ITS TIMES", "SCRATCH = ", "DO THIS"):  # fmt: skip
        assert part in done.out, part
    short = run("page", task, "--quiet", "--tokens", "1900")
    assert "LEFT OUT FOR WANT OF ROOM" in short.out and len(short.out) < len(done.out)
    assert "tokens, 500 are allowed" in run("page", task, "--tokens", "500", "--quiet").err


def test_a_program_that_is_not_there_is_one_line(run, task):
    done = run("optimize", task, "--trials", "2", "--model", "command:./nowhere")
    assert done.code == 2 and "./nowhere is no program" in done.err and "Traceback" not in done.err


@pytest.mark.slow
def test_a_search_goes_on_with_edits_when_its_program_only_fails(run, task, tmp_path):
    spec = program(tmp_path, "sys.exit('out of order')") + "?ahead=off"
    done = run("optimize", task, "--trials", "12", "--model", spec, "--json", "--window", "2")
    assert done.code == 0 and done.json["trials"] == 12 and "exit code 1: out of order" in done.err
    assert os.path.exists(tmp_path / "kernelsearch.db")
