"""A float that no integer of a type can be becomes what a GPU makes of it (PTX ISA, `cvt.rzi`)."""

import numpy as np
import pytest

from kernelsearch.worker.interpreter.integers import saturate

VALUES = np.array([3e9, -3e9, 300.9, -1.9, np.nan, np.inf, -np.inf], dtype=np.float32)


@pytest.mark.parametrize("target, integers", [
    ("int32", [2**31 - 1, -(2**31), 300, -1, 0, 2**31 - 1, -(2**31)]),
    ("uint32", [3 * 10**9, 0, 300, 0, 0, 2**32 - 1, 0]),
    ("int16", [32767, -32768, 300, -1, 0, 32767, -32768]), ("int8", [-1, 0, 44, -1, 0, -1, 0]),
    ("int64", [3 * 10**9, -3 * 10**9, 300, -1, -(2**63), 2**63 - 1, -(2**63)]),
])  # fmt: skip
def test_out_of_range_is_the_end_of_the_range(target, integers):
    assert saturate(VALUES, np.dtype(target)).tolist() == integers
    assert saturate(VALUES.astype(np.float64), np.dtype(target)).tolist()[:4] == integers[:4]
