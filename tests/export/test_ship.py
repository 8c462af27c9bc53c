"""What of a task file is shipped, and what is refused with line and reason."""

import pytest

from kernelsearch.export import ExportError
from kernelsearch.export.layouts import layout
from kernelsearch.export.ship import extract_module

HEAD = """\
import os
import torch, triton
import triton.language as tl
from math import prod, sqrt

{more}

@triton.jit
def my_kernel(x_ptr): ...

def helper(x):
    return prod(x.shape)

def launcher(x):
    {body}
    my_kernel[(helper(x),)](x)
    return x

def reference(x):
    return x

if __name__ == "__main__":
    launcher(torch.ones(3))
"""


def module(more="", body="pass"):
    return extract_module(
        HEAD.format(more=more, body=body), "task.py", ["launcher", "reference"], ["my_kernel"], "head"
    )


def test_only_what_is_used_is_kept():
    text = module(
        more="BASELINES = {'numpy': __import__}\nprint('hello')\ntorch.manual_seed(0)\nassert torch.ones(3).sum() == 3"
    )
    assert "from math import prod\n" in text and "def helper" in text and "from .sites import my_kernel" in text
    for gone in ("import os", "sqrt", "BASELINES", "hello", "manual_seed", "assert", "__main__", "triton.jit"):
        assert gone not in text
    compile(text, "task.py", "exec")


def test_what_is_defined_in_pieces_is_kept_in_order():
    text = module(
        more="TABLE = {}\nTABLE['a'] = 1\ntry:\n    LIMIT = 3\nexcept ValueError:\n    LIMIT = 4", body="TABLE, LIMIT"
    )
    assert text.index("TABLE = {}") < text.index("TABLE['a'] = 1") < text.index("LIMIT = 3") < text.index("def helper")


def test_a_wrapped_kernel_becomes_the_kernel_itself():
    text = module(more="from torch.library import wrap_triton", body="wrap_triton(my_kernel)[(1,)](x)")
    assert (
        "    my_kernel[(1,)](x)\n    my_kernel[(helper(x),)](x)" in text
        and "wrap_triton" not in text.partition("def ")[2]
    )


@pytest.mark.parametrize(
    ("more", "body", "said"),
    [
        ("import numpy as np", "np.ones(3)", "line 6 imports numpy"),
        ("", "import mylib", "line 15 imports mylib"),
        ("from . import other", "other.f()", "line 6 imports relatively"),
        ("from torch import *", "pass", "imports everything from torch"),
        ("TEXT = open('weights.txt').read()", "TEXT", "line 6 uses open"),
        ("", "print(__file__)", "uses __file__"),
        ("from pathlib import Path", "Path('x')", "imports pathlib"),
        ("", "my_kernel.warmup(x, grid=(1,))", "uses kernel my_kernel other than as"),
        ("", "helper(my_kernel)", "uses kernel my_kernel other than as"),
    ],
)
def test_what_cannot_be_shipped_is_refused_with_its_line(more, body, said):
    from_torch = more.startswith("from torch import *")
    with pytest.raises(ExportError) as refused:
        text = HEAD.format(more=more, body=body)
        roots = ["launcher", "reference", *(["*"] if from_torch else [])]
        extract_module(text, "task.py", roots, ["my_kernel"], "head")
    assert said in str(refused.value) and "task.py cannot be shipped" in str(refused.value)


def test_a_kernel_from_elsewhere_is_refused():
    with pytest.raises(ExportError, match="kernel other is launched, but not defined at the file's top level"):
        extract_module(HEAD.format(more="", body="pass"), "task.py", ["launcher"], ["my_kernel", "other"], "head")


def test_layouts_have_words():
    assert layout((4, 8), (8, 1)) == "contiguous" == layout((4, 1, 8), (8, 99, 1)) == layout((), ())
    assert layout((4, 8), (1, 4)) == "axes 1 0"
    assert layout((4, 8), (16, 1)) == "rows with gaps"
    assert layout((4, 8), (16, 2)) == "rows with gaps everywhere"
    assert layout((4, 8), (0, 1)) == "strides 0 1"
