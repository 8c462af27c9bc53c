"""The seed as a kernel file: self-contained, canonical names, nothing executed."""

import sys
import textwrap

import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks.module import import_file
from kernelsearch.tasks.seed import extract_seed
from kernelsearch.verify import gate

HELPERS = '''
import triton
import triton.language as T
from triton.language import constexpr as ce

LIMIT = ce(3)

@triton.jit
def clamp(v):
    """Keeps v small."""
    return T.minimum(v, LIMIT)  # from the helper module
'''

TASK = """
import torch
import triton
import triton.language as lang
from triton.language import load, arange as ar, float32
from triton.language.extra import libdevice as ld
import seed_helpers
from seed_helpers import clamp as tame

EPS: lang.constexpr = 1e-5
WIDE = lang.constexpr(True)

@triton.jit
def double(v):
    return v * 2

@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit(do_not_specialize=["n"], debug=True)
def kernel(x_ptr: torch.Tensor, y_ptr, n: int, BLOCK: lang.constexpr, EVEN: lang.constexpr) -> None:
    i = lang.program_id(0) * BLOCK + ar(0, BLOCK)
    x = load(x_ptr + i, mask=i < n, other=0.0).to(float32)
    if WIDE:
        x = double(x) + EPS
    x = seed_helpers.clamp(tame(x))
    y = ld.erf(x) + lang.math.exp(x) + lang.sum(x, axis=0)
    lang.store(y_ptr + i, y, mask=i < n)
"""


@pytest.fixture
def module(tmp_path):
    (tmp_path / "seed_helpers.py").write_text(HELPERS)
    path = tmp_path / "task.py"
    path.write_text(textwrap.dedent(TASK))
    sys.modules.pop("seed_helpers", None)
    yield import_file(path, f"seed_task_{id(tmp_path)}")
    sys.modules.pop("seed_helpers", None)
    sys.path.remove(str(tmp_path))


def test_everything_that_it_needs_comes_along(module):
    seed = extract_seed({"kernel": module.kernel})
    kernel = seed.kernel
    assert seed.notes == ()
    assert set(kernel.names) == {"double", "clamp", "kernel"} and kernel.entries == ("kernel",)
    text = kernel.render()
    for piece in ("tl.program_id(0)", "tl.arange(0, BLOCK)", "tl.load(x_ptr", ".to(tl.float32)", "double(x) + EPS",
                  "clamp(clamp(x))", "libdevice.erf(x)", "+ tl.exp(x)", "tl.sum(x, axis=0)", "tl.minimum(v, LIMIT)",
                  "EPS = tl.constexpr(1e-05)", "WIDE = tl.constexpr(True)", "LIMIT = tl.constexpr(3)",
                  "# from the helper module",
                  "def kernel(x_ptr, y_ptr, n: int, BLOCK: tl.constexpr, EVEN: tl.constexpr):",
                  "from triton.language.extra import libdevice"):  # fmt: skip
        assert piece in text, (piece, text)
    assert "autotune" not in text and "lang." not in text and "debug" not in text
    assert text.count("@triton.jit\n") == 2 and "@triton.jit(do_not_specialize=['n'])" in text
    assert Kernel.parse(text).digest == kernel.digest
    assert gate.check(text).accepted, gate.check(text).reason


def test_what_a_kernel_file_cannot_hold_is_said(tmp_path):
    path = tmp_path / "strange.py"
    path.write_text(
        "import math\nimport triton\n@triton.jit\ndef kernel(x_ptr):\n"
        "    v = math.tau\n    w = len(SIZES)\nSIZES = [1]\n"
    )
    seed = extract_seed({"kernel": import_file(path, "strange_seed").kernel})
    assert seed.notes == ("the seed's kernel uses SIZES, which a kernel file cannot hold",)


def test_infinities_and_nan_are_words_that_triton_reads(tmp_path):
    path = tmp_path / "endless.py"
    path.write_text(
        "import triton, triton.language as tl\nLOW = tl.constexpr(float('-inf'))\nNONE: tl.constexpr = float('nan')\n"
        "HIGH = tl.constexpr(float('inf'))\n@triton.jit\ndef kernel(x_ptr):\n"
        "    tl.store(x_ptr, tl.maximum(LOW, HIGH) + NONE)\n"
    )
    text = extract_seed({"kernel": import_file(path, "endless_seed").kernel}).kernel.render()
    assert 'tl.maximum(float("-inf"), float("inf")) + float("nan"))' in text
    assert gate.check(text).accepted


def test_one_name_from_two_modules(tmp_path):
    (tmp_path / "one_mod.py").write_text(
        "import triton\nN = triton.language.constexpr(1)\n@triton.jit\ndef f(v):\n    return v + N\n"
    )
    (tmp_path / "two_mod.py").write_text(
        "import triton\nN = triton.language.constexpr(2)\n@triton.jit\ndef f(v):\n    return v + N\n"
    )
    path = tmp_path / "both.py"
    path.write_text(
        "import triton, one_mod, two_mod\n@triton.jit\ndef kernel(x_ptr):\n    v = one_mod.f(two_mod.f(1))\n"
    )
    text = extract_seed({"kernel": import_file(path, "both_seed").kernel}).kernel.render()
    sys.path.remove(str(tmp_path))
    assert "v = f(f_(1))" in text
    assert "def f(v):\n    return v + N\n" in text and "def f_(v):\n    return v + N_\n" in text
    assert "N = tl.constexpr(1)" in text and "N_ = tl.constexpr(2)" in text
