"""Branches that the task's own inputs do not run: inputs are drawn that run them, and others are named."""

import ast
import textwrap

import pytest

from kernelsearch.core.types import Word
from kernelsearch.kernel.blocks import find_change, find_sides, list_sides
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench

TASK = """import torch, triton, triton.language as tl

def reference(x, late):
    return torch.where(late[:, None], x.abs(), -x)
def get_inputs(rows=40, cols=48):
    return [torch.randn(rows, cols), torch.zeros(rows, dtype=torch.bool)]
TEST_SHAPES = [dict(rows=5, cols=9)]

@triton.jit
def sign_kernel(x_ptr, late_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=0.0)
    y = -x
    if tl.load(late_ptr + row):
        y = tl.abs(x)
    tl.store(y_ptr + row * cols + c, y, mask=c < cols)

def sign(x, late):
    y = torch.empty_like(x)
    sign_kernel[(x.shape[0],)](x, late, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""
HEAD = "import triton\nimport triton.language as tl\n\n\n"
KERNEL = HEAD + TASK[TASK.index("@triton.jit") : TASK.index("def sign(")]
BRANCH = "    if tl.load(late_ptr + row):\n        y = tl.abs(x)\n"


@pytest.mark.slow
@pytest.mark.parametrize("instead", ["    if tl.load(late_ptr + row):\n        y = x * 0.0\n", ""])
def test_a_flag_that_the_task_never_sets_is_set(run, tmp_path, instead):
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "kernel.py").write_text(KERNEL.replace(BRANCH, instead))
    done = run("verify", "task.py", "kernel.py")
    assert done.code == 1 and done.json["verdict"] == "reject-wrong" and done.json["detail"]["regime"] == "flagged"


NEVER = TASK.replace("tl.load(late_ptr + row):", "cols == 47777:").replace(
    "torch.where(late[:, None], x.abs(), -x)", "-x"
)
"""A size that no shape has."""
KEPT = HEAD + NEVER[NEVER.index("@triton.jit") : NEVER.index("def sign(")]


def test_lines_that_no_case_runs_are_named(run, tmp_path):
    (tmp_path / "task.py").write_text(NEVER)
    (tmp_path / "kernel.py").write_text(KEPT.replace("y = tl.abs(x)", "y = x * 0.0\n        y += 1.0"))
    done = run("verify", "task.py", "kernel.py")
    assert done.json["verdict"] == "accept" and done.json["detail"]["judged"]["lines"] == "lines 11 to 12"
    assert "Not judged: lines 11 to 12, which no judged case runs;" in done.err


def test_lines_that_a_constexpr_leaves_out_are_named(run, tmp_path):
    (tmp_path / "task.py").write_text(NEVER.replace("cols == 47777", "BLOCK == 47777"))
    done = run("verify", "task.py")
    assert done.json["verdict"] == "accept" and done.json["detail"]["judged"]["lines left out"] == "line 15"
    assert "Not judged: line 15, which a constexpr leaves out in every judged case;" in done.err


@pytest.mark.slow
def test_a_rewrite_may_not_change_them_and_optimize_says_so(tmp_path):
    (tmp_path / "task.py").write_text(NEVER)
    said = []
    with Bench.open(tmp_path / "task.py", "h100", say=said.append) as bench:
        evaluation = Evaluation(bench)

        def try_it(text):
            return evaluation.evaluate(Kernel.parse(text), bench.facts.config).verdict

        assert evaluation.evaluate(bench.seed, bench.facts.config).verdict.accepted
        note = f"no judged case runs line 15 of {tmp_path / 'task.py'}: no rewrite may change them"
        assert [line for line in said if "no rewrite" in line] == [note]
        assert try_it(KEPT.replace("y = -x", "y = 0.0 - x")).accepted
        for old, new in (
            ("y = tl.abs(x)", "y = x"),
            (KEPT[KEPT.index("    if cols") : KEPT.index("    tl.store")], ""),
        ):
            verdict = try_it(KEPT.replace(old, new))
            assert verdict.word is Word.WRONG and "in lines that no judged case runs: `y = " in verdict.reason
        more = KEPT.replace("    tl.store", "    if row > 10**6:\n        y = y * 0.0\n    tl.store")
        assert "`y = y * 0.0`" in try_it(more).reason


@pytest.mark.parametrize("code, blocks", [
    ("if p:\n    a = 1\nelse:\n    a = 2\n", {"body": (2, 2), "orelse": (4, 4)}),
    ("if p:\n    return\na = 1\nb = 2\n", {"body": (2, 2), "rest": (3, 4)}),
    ("while p:\n    p = p - 1\n", {"body": (2, 2)}), ("a = 1 if p else 2\n", {"body": (1, 1), "orelse": (1, 1)}),
    ("for i in range(0, p):\n    a = 1\n    b = 2\n", {"body": (2, 3)}),
])  # fmt: skip
def test_what_may_never_run(code, blocks):
    text = "def f(p, T: tl.constexpr):\n" + textwrap.indent(code, "    ")
    (function,) = ast.parse(text).body
    assert {side.name: (side.block[1] - 1, side.block[2] - 1) for side in list_sides(function)} == blocks


def test_a_loop_in_tiles_may_have_no_turns():
    seed = Kernel.parse(KEPT)
    loop = "    for i in range({}, cols, BLOCK):\n        y = y + 1.0\n    tl.store"
    for first, change in (("BLOCK", ""), ("(cols == 1) * BLOCK", "y = y + 1.0")):
        kernel = Kernel.parse(KEPT.replace("    tl.store", loop.format(first)))
        unrun = [side.block for _, side in find_sides(kernel.code) if side.name == "body" and "y + 1.0" in side.syntax]
        assert find_change(kernel, unrun, seed, ()) == change


WAIT = """import triton
import triton.language as tl


@triton.jit
def k(p, x, y, flag):
    MADE
    while TEST:
        BODY
    tl.store(y, tl.load(x) + got)
"""
READ = "got = tl.atomic_add(p, 0, sem='acquire')"


@pytest.mark.parametrize(
    ("made", "test", "body", "waits"),
    [
        (READ, "got < 4", READ, True),
        ("got = tl.load(p, volatile=True)", "got < 4", "got = tl.load(p, volatile=True)", True),
        ("got = 0", "tl.atomic_cas(p, 0, 1) == 1", "pass", True),
        ("got = tl.load(p)", "flag > 0", "got = tl.load(x)", False),
        ("got = tl.atomic_add(y, 1)", "flag > 0", "got = tl.atomic_add(y, 1)", False),
        ("got = 0", "tl.atomic_add(y, 1) < flag", "pass", False),
        ("got = got + 1", "flag > got", "got = got + 1", False),
    ],
)
def test_a_loop_that_waits_may_have_no_turn(made, test, body, waits):
    """What it makes again was judged where it was made first; a loop that does anything else counts."""
    seed = Kernel.parse(WAIT.replace("    while TEST:\n        BODY\n", "").replace("MADE", "got = 0"))
    kernel = Kernel.parse(WAIT.replace("MADE", made).replace("TEST", test).replace("BODY", body))
    unrun = [side.block for _, side in find_sides(kernel.code) if isinstance(side.owner, ast.While)]
    assert unrun and (find_change(kernel, unrun, seed, ()) == "") is waits
