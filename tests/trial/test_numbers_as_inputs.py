"""Inputs that are numbers are judged at other values than the task's own, where its reference and kernel take them."""

import pytest

from kernelsearch.core.types import Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench
from kernelsearch.verify.drawn_integers import draw_scalars

TASK = """import torch, triton, triton.language as tl

def reference(x, shifted, eps=1e-5, sign=1.0, flipped=False, shift=0.0):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * sign + shift
    return (y + 1 if shifted else y).flip(1) if flipped else (y + 1 if shifted else y)

def get_inputs(rows=64, cols=128):
    return [torch.randn(rows, cols), False]
TEST_SHAPES = [dict(rows=9, cols=20)]

@triton.jit
def norm_kernel(x_ptr, y_ptr, cols, shifted, eps, sign, shift, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=0.0)
    y = x / tl.sqrt(tl.sum(x * x) / cols + eps) * sign + shift
    if shifted:
        y = y + 1
    tl.store(y_ptr + row * cols + c, y, mask=c < cols)

def norm(x, shifted, eps=1e-5, sign=1.0, flipped=False, shift=0.0):
    y = torch.empty_like(x)
    norm_kernel[(x.shape[0],)](x, y, x.shape[1], shifted, eps, sign, shift, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""
HEAD = "import triton\nimport triton.language as tl\n\n\n"
KERNEL = HEAD + TASK[TASK.index("@triton.jit") : TASK.index("def norm(")]


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """A function that gives the full verdict on the task's kernel with a part of its text replaced."""
    path = tmp_path_factory.mktemp("numbers") / "norm.py"
    path.write_text(TASK)
    with Bench.open(path, "h100") as bench:
        evaluation = Evaluation(bench)
        yield lambda old="", new="": evaluation.verify(Kernel.parse(KERNEL.replace(old, new)), bench.facts.config)


@pytest.mark.slow
@pytest.mark.parametrize("old, new, said", [
    ("+ eps", "+ 1e-5", "with eps="),
    ("+ eps", "+ tl.where(eps < 1e-5, eps, 1e-5)", "with eps="),
    (" * sign", "", "with sign="),
    (" + shift", "", "with shift="),
    ("y = y + 1", "y = y * 0", "with shifted=True: "),
    ("    if shifted:\n        y = y + 1\n", "", "with shifted=True: "),
])  # fmt: skip
def test_a_kernel_that_is_right_at_the_task_s_number_alone_is_refused(judge, old, new, said):
    verdict = judge(old, new)
    assert verdict.word is Word.WRONG and said in verdict.reason


@pytest.mark.slow
def test_what_the_task_s_own_kernel_does_not_take_is_no_fault_of_others_and_named(judge):
    verdict = judge("/ tl.sqrt(", "* tl.rsqrt(")
    assert verdict.accepted
    claims = verdict.detail["claims"]
    assert claims["eps"] == [[2.5e-06, 4e-05]] and claims["shifted"] == [False, True] and "flipped" not in claims
    (left_out,) = [names for why, names in verdict.detail.items() if "seed is not right" in why]
    others = {name for name in left_out if name.startswith("other values of")}
    assert others == {"other values of flipped"}


def verify(run, folder, task, old, new):
    """The verdict on a task's kernel with a change."""
    (folder / "task.py").write_text(task)
    kernel = task[task.index("@triton.jit") : task.rindex("\ndef ")].replace(old, new)
    (folder / "kernel.py").write_text(f"import triton\nimport triton.language as tl\n\n\n{kernel}")
    return run("verify", "task.py", "kernel.py").json["verdict"]


SCALE = """import torch, triton, triton.language as tl

def reference(x, scale, shift): return x * scale + shift
def get_inputs(n=99): return [torch.randn(n), torch.tensor(0.37), 0.5]
TEST_SHAPES = [dict(n=9)]

@triton.jit
def scale_kernel(x_ptr, scale_ptr, shift, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scale = tl.load(scale_ptr)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * scale + shift, mask=i < n)

def scaled(x, scale, shift):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 64),)](x, scale, shift, y, x.numel(), BLOCK=64)
    return y
"""


@pytest.mark.parametrize(("limit", "word"), [("scale", "accept"), ("tl.minimum(scale, 4.0)", "reject-wrong")])
def test_a_scale_without_an_axis_has_many_sizes(run, tmp_path, limit, word):
    assert verify(run, tmp_path, SCALE, "* scale +", f"* {limit} +") == word


CACHE = """import torch, triton, triton.language as tl

MUTATES = ("cache",)
def reference(k, cache, scale): cache[: k.shape[0]] = k * scale
def get_inputs(rows=9, cols=20, scale=0.5): return [torch.randn(rows, cols), torch.randn(2 * rows, cols), scale]
TEST_SHAPES = [dict(rows=9, cols=20)]

@triton.jit
def cache_kernel(k_ptr, cache_ptr, scale, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    k = tl.load(k_ptr + row * cols + c, mask=c < cols, other=0.0)
    tl.store(cache_ptr + row * cols + c, k * scale, mask=c < cols)

def write(k, cache, scale):
    cache_kernel[(k.shape[0],)](k, cache, scale, k.shape[1], BLOCK=triton.next_power_of_2(k.shape[1]))
"""


@pytest.mark.parametrize(("mask", "word"), [("", "accept"), (" & (scale > 0.4) & (scale < 0.6)", "reject-wrong")])
def test_a_reference_that_writes_its_input_leaves_those_of_the_kernel_as_they_were(run, tmp_path, mask, word):
    assert verify(run, tmp_path, CACHE, "scale, mask=c < cols", f"scale, mask=(c < cols){mask}") == word


MORE = """import torch, triton, triton.language as tl

def reference(x, bias, with_sign):
    y = x if bias is None else x + bias
    return (y, x < 0) if with_sign else y

def get_inputs(n=99, has_bias=False, with_sign=False):
    return [torch.randn(n), torch.randn(n) if has_bias else None, with_sign]
TEST_SHAPES = [dict(n=9), dict(n=9, has_bias=True, with_sign=True), dict(n=9, has_bias=True)]

@triton.jit
def more_kernel(x_ptr, b_ptr, y_ptr, s_ptr, n, HAS_BIAS: tl.constexpr, SIGN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x + tl.load(b_ptr + i, mask=i < n) if HAS_BIAS else x, mask=i < n)
    if SIGN:
        tl.store(s_ptr + i, x < 0, mask=i < n)

def more(x, bias, with_sign):
    y, s = torch.empty_like(x), torch.empty(x.shape, dtype=torch.bool, device=x.device) if with_sign else None
    more_kernel[(triton.cdiv(x.numel(), 64),)](
        x, bias, y, s, x.numel(), HAS_BIAS=bias is not None, SIGN=with_sign, BLOCK=64)
    return (y, s) if with_sign else y
"""


@pytest.mark.parametrize(("sign", "word"), [("SIGN", "accept"), ("SIGN and HAS_BIAS", "reject-wrong")])
def test_a_flag_that_gives_one_result_more_is_judged_with_the_other_forms(run, tmp_path, sign, word):
    assert verify(run, tmp_path, MORE, "if SIGN:", f"if {sign}:") == word


def test_the_values():
    low, *inner, high = draw_scalars([1e-5, 1e-6], 3)
    assert (low, high) == (2.5e-7, 4e-5) and all(low < v < high for v in inner) and len({*inner}) == 2
    assert inner != draw_scalars([1e-5, 1e-6], 4)[1:-1]
    assert all(0.0 < value < 1.0 for value in draw_scalars([0.9, 0.999, 0.5], 3))
    assert [round(v, 1) for v in draw_scalars([-1.0], 3)[::3]] == [-4.0, -0.2]
    assert draw_scalars([False], 3) == [False, True] and draw_scalars([0, 1, 1], 3) == [0, 1]
    assert draw_scalars([8, 2, 2], 3) == [2, 8]
    for seed in range(9):
        (less, more), (below, mark) = draw_scalars([8, 8], seed), draw_scalars([-100], seed)
        assert 1 <= less < 8 < more and below < -100 and mark >= 0
    assert draw_scalars([0.0], 3)[::3] == [0.0625, 1.0] and draw_scalars([0.0, 2.0], 3)[::3] == [0.5, 8.0]
    for others in ([-1.0, 1.0], [float("inf")], ["word"], [None, 1.0], [None], [1e38]):
        assert draw_scalars(others, 3) == []
