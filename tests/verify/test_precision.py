"""The precision contract on lines that Triton 3.7 emitted for sm_90."""

import pytest

from kernelsearch.core.types import Word
from kernelsearch.verify.precision import CONTRACTS, check

DOT = "%acc = tt.dot %a, %b, %c{} : tensor<64x32x{}> * tensor<32x64x{}> -> tensor<64x64x{}> loc(#loc52)"
SUM = """%acc_0 = scf.for %s = %c0 to %K step %c64 iter_args(%acc_1 = %acc) -> (tensor<64xf16>)  : i32 {
  %acc_7 = arith.addf %acc_1, %acc_6 : tensor<64xf16> loc(#loc25)
}"""
REDUCE = """%0 = "tt.reduce"(%acc_0) <{axis = 0 : i32}> ({
^bb0(%arg3: f16, %arg4: f16):
  %1 = arith.addf %arg3, %arg4 : f16 loc(#loc29)
  tt.reduce.return %1 : f16"""
TF32 = DOT.format(", inputPrecision = tf32", "f32", "f32", "f32")


@pytest.mark.parametrize(
    "ttir, ptx, contract, good",
    [
        (DOT.format("", "f32", "f32", "f32"), "", "ieee", True),
        (DOT.format("", "f16", "f16", "f32"), "", "ieee", True),
        (TF32, "", "ieee", False),
        (TF32, "", "tf32x3", False),
        (TF32, "", "tf32", True),
        (DOT.format(", inputPrecision = tf32x3", "f32", "f32", "f32"), "", "tf32x3", True),
        (DOT.format("", "f16", "f16", "f16"), "", "tf32", False),
        (DOT.format("", "f16", "f16", "f16"), "", "half-accumulate", True),
        (SUM, "", "ieee", False),
        (SUM, "", "half-accumulate", True),
        (SUM.replace("f16", "f32"), "", "ieee", True),
        (REDUCE, "", "ieee", False),
        (REDUCE.replace("f16", "f32"), "", "ieee", True),
        ("", "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {%r1}, %rd1, %rd2, %p4, 1, 1;", "ieee", False),
        ("", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r1};", "tf32", True),
        ("", "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%r1};", "ieee", True),
        ("", "wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16 {%r1};", "ieee", False),
        ("", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1};", "ieee", False),
        ("", "wgmma.fence.sync.aligned;", "ieee", True),
        ("", "", "ieee", True),
    ],
)
def test_contract(ttir, ptx, contract, good):
    verdict = check(ttir, ptx, contract)
    assert verdict.accepted == good, verdict.reason
    if not good:
        assert verdict.word is Word.PRECISION and verdict.detail["line"] >= 1


def test_unknown_contract():
    with pytest.raises(ValueError, match="precision contract"):
        check("", "", "loose")


def test_what_a_task_file_may_say_is_what_the_contract_knows():
    from kernelsearch.tasks.forms import PRECISIONS

    assert PRECISIONS == CONTRACTS
