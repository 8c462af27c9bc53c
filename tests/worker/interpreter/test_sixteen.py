"""Arithmetic on 16-bit floats in the interpreter gives the bits that PyTorch gives, and sums round at every step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DTYPES = ("torch.bfloat16", "torch.float16")


@pytest.fixture(scope="module")
def found():
    """What `sixteened.py` found in a process of its own, because one process is interpreter or compiler for life."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("sixteened.py")], env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", range(8))
def test_every_operation_rounds_as_pytorch_rounds(found, dtype, op):
    assert found[f"{dtype} {op}"] == 0  # elements of 1024 whose bits differ


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sum_is_a_tree_of_rounded_additions(found, dtype):
    got, tree = found[f"{dtype} tree"]
    assert got == tree
    assert found[f"{dtype} sum"] == 1024.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_matrix_product_adds_up_in_float32(found, dtype):
    assert found[f"{dtype} sum of products"] < 1e-5
