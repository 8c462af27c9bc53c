"""The kinds of values: Triton's own promotion and broadcasting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.propose.analysis.kinds import FLOAT, ValueKind, broadcast_shapes, promote_kinds

DTYPES = ("u1", "i8", "i32", "i64", "fp16", "bf16", "fp32", "fp64")


@pytest.fixture(scope="module")
def triton_promotion():
    """Triton's own rule for two tensors, by Triton's names of the dtypes."""
    import triton.language as tl
    from triton.language.semantic import TritonSemantic

    names = {"u1": tl.int1, "i8": tl.int8, "i32": tl.int32, "i64": tl.int64, "fp16": tl.float16, "bf16": tl.bfloat16,
             "fp32": tl.float32, "fp64": tl.float64}  # fmt: skip
    back = {v.name: k for k, v in names.items()} | {"int1": "u1"}
    rule = TritonSemantic.__new__(TritonSemantic).computation_type_impl
    return lambda a, ac, b, bc, div: back[rule(names[a], ac, names[b], bc, div).name]


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_promotion_of_tensors_is_tritons(a, b, triton_promotion):
    assert promote_kinds(ValueKind(a), ValueKind(b)).dtype == triton_promotion(a, False, b, False, False)


@pytest.mark.parametrize("tensor", DTYPES)
@pytest.mark.parametrize("literal", ["i32", "fp32"])
def test_promotion_with_a_number_is_tritons(tensor, literal, triton_promotion):
    want = triton_promotion(tensor, False, literal, True, False)
    assert promote_kinds(ValueKind(tensor), ValueKind(literal, const=True)).dtype == want
    assert promote_kinds(ValueKind(literal, const=True), ValueKind(tensor)).dtype == want


def test_each_dtype_of_a_task_is_promoted_on_its_own():
    assert promote_kinds(ValueKind("bf16/fp32", ("B",)), ValueKind(FLOAT)).dtype == FLOAT
    assert promote_kinds(ValueKind("bf16/fp32", ("B",)), ValueKind(FLOAT, const=True)).dtype == "bf16/fp32"


dims = st.sampled_from(["1", "M", "N"])


@given(st.tuples(dims, dims), st.tuples(dims, dims))
def test_broadcast_gives_what_both_fit_into(a, b):
    both = broadcast_shapes(a, b)
    assert both == broadcast_shapes(b, a)
    fits = all("1" in (x, y) or x == y for x, y in zip(a, b, strict=True))
    assert (both is not None) == fits
    assert broadcast_shapes(a, ()) == a and broadcast_shapes(a, None) is None
