"""Arithmetic on 16-bit floats in the interpreter gives the bits that PyTorch gives, and sums round at every step."""

import pytest

DTYPES = ("torch.bfloat16", "torch.float16")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", range(8))
def test_every_operation_rounds_as_pytorch_rounds(results, dtype, op):
    assert results[f"{dtype} {op}"] == 0  # elements of 1024 whose bits differ


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sum_is_a_tree_of_rounded_additions(results, dtype):
    got, tree = results[f"{dtype} tree"]
    assert got == tree
    assert results[f"{dtype} sum"] == 1024.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_matrix_product_adds_up_in_float32(results, dtype):
    assert results[f"{dtype} sum of products"] < 1e-5
