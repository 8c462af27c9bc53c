"""The precision contract on lines that Triton 3.7 emitted for sm_90."""

import pytest
import torch

from kernelsearch.core.types import Word
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.judge import judge
from kernelsearch.verify.precision import CONTRACTS, check

DOT = "%acc = tt.dot %a, %b, %c{} : tensor<64x32x{}> * tensor<32x64x{}> -> tensor<64x64x{}> loc(#loc52)"
SUM = """%acc_0 = scf.for %s = %c0 to %K step %c64 iter_args(%acc_1 = %acc) -> (tensor<64xf16>)  : i32 {
  %acc_7 = arith.addf %acc_1, %acc_6 : tensor<64xf16> loc(#loc25)
}"""
REDUCE = """%0 = "tt.reduce"(%acc_0) <{axis = 0 : i32}> ({
^bb0(%arg3: f16, %arg4: f16):
  %1 = arith.addf %arg3, %arg4 : f16 loc(#loc29)
  tt.reduce.return %1 : f16"""
MEAN = """%mean = "tt.reduce"(%x_6) <{axis = 0 : i32}> ({
^bb0(%mean_13: f32 loc("mean"(#loc29)), %mean_14: f32 loc("mean"(#loc29))):
  %mean_15 = arith.addf %mean_13, %mean_14 : f32 loc(#loc44)
  tt.reduce.return %mean_15 : f32 loc(#loc41)
}) : (tensor<64xf32>) -> f32 loc(#loc41)
%mean_8 = arith.divf %mean, %mean_7 : f32 loc(#loc31)
%mean_9 = arith.truncf %mean_8 : f32 to bf16 loc(#loc32)
%mean_10 = arith.extf %mean_9 : bf16 to f32 loc(#loc33)
%c = tt.splat %mean_10 : f32 -> tensor<64xf32> loc(#loc34)
%c_11 = arith.subf %x_6, %c : tensor<64xf32> loc(#loc34)"""
LOOPED_MEAN = """%t:2 = scf.for %s = %c0 to %n step %c64 iter_args(%a = %b, %t_8 = %t_4) -> (i32, tensor<4xf32>) : i32 {
  %t_28 = "tt.reduce"(%t_27) <{axis = 1 : i32}> ({
  ^bb0(%t_30: f32 loc(unknown), %t_31: f32 loc(unknown)):
    %t_32 = arith.addf %t_30, %t_31 : f32 loc(#loc48)
    tt.reduce.return %t_32 : f32 loc(#loc28)
  }) : (tensor<4x64xf32>) -> tensor<4xf32> loc(#loc28)
  %t_29 = arith.addf %t_8, %t_28 : tensor<4xf32> loc(#loc47)
  scf.yield %n_9, %t_29 : i32, tensor<4xf32> loc(#loc20)
} loc(#loc46)
%mean_6 = arith.divf %t#1, %mean_5 : tensor<4xf32> loc(#loc48)
%mean_7 = arith.truncf %mean_6 : tensor<4xf32> to tensor<4xf16> loc(#loc49)
scf.for %s = %c0_i32 to %n_cols step %c64_i32  : i32 {
  %4 = tt.expand_dims %mean_7 {axis = 1 : i32} : tensor<4xf16> -> tensor<4x1xf16> loc(#loc35)
  %5 = tt.broadcast %4 : tensor<4x1xf16> -> tensor<4x64xf16> loc(#loc35)
  %6 = arith.subf %x_24, %5 : tensor<4x64xf16> loc(#loc35)
} loc(#loc36)"""
SUM_OF, ROUNDED = MEAN.split("%mean_8")[0], "%mean_8" + MEAN.partition("%mean_8")[2].replace("%mean,", "%w,")
WHILE = f"""%w = scf.while (%a = %b) : (f32) -> f32 {{
  scf.condition(%c) %a : f32
}} do {{
^bb0(%a: f32 loc(unknown)):
  {SUM_OF}
  scf.yield %mean : f32 loc(#loc4)
}} loc(#loc3)
{ROUNDED}"""
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
        (MEAN, "", "ieee", False),
        (MEAN, "", "half-accumulate", True),
        (MEAN.replace("mean_15 = arith.addf", "mean_15 = arith.maxnumf"), "", "ieee", True),  # a maximum is no sum
        (MEAN.replace("tt.splat %mean_10", "tt.splat %mean_8"), "", "ieee", True),  # what is rounded is not used
        (MEAN.replace("arith.subf %x_6, %c", "tt.store %x_6, %c"), "", "ieee", True),  # an output in 16 bits
        (LOOPED_MEAN, "", "ieee", False),
        (WHILE, "", "ieee", False),
        (WHILE.replace("arith.addf", "arith.maxnumf"), "", "ieee", True),
        (LOOPED_MEAN.replace("tensor<4xf16>", "tensor<4xf32>").replace("truncf", "negf"), "", "ieee", True),
        (LOOPED_MEAN.replace("tt.expand_dims", "arith.addf").replace("tt.broadcast", "arith.addf"), "", "ieee", True),
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


def sum_as_hopper(a, b, skip=0):
    """A product whose partial sums are cut to 13 bits behind the point after every 32 terms, as Hopper's are."""
    total = torch.zeros(a.shape[0], b.shape[0])
    for start in range(skip, a.shape[1], 32):
        total = total + a[:, start : start + 32].float() @ b[:, start : start + 32].float().T
        fraction, exponent = torch.frexp(total)
        total = torch.ldexp(torch.trunc(fraction * 2**14) / 2**14, exponent)
    return total


def test_sums_of_8_bit_floats_may_err_as_those_of_a_matrix_unit():
    for seed, depth in ((1, 128), (2, 1024), (3, 4096)):
        generator = torch.Generator().manual_seed(seed)
        a, b = (torch.randn(24, depth, generator=generator).to(torch.float8_e4m3fn) for _ in range(2))

        def reference(a, b):
            return (a.float() @ b.float().T).to(torch.bfloat16)

        expected = make_expectation(reference, reference, [a, b], seed=seed)
        assert any("torch._scaled_mm" in note for note in expected.notes)
        verdict = judge(expected, [sum_as_hopper(a, b).bfloat16()], depth="full")
        assert verdict.accepted and verdict.error_ratio < 0.8, verdict
        assert not judge(expected, [sum_as_hopper(a, b, skip=32).bfloat16()], depth="full").accepted
        wide = [a.float(), b.float()]
        plain = make_expectation(lambda a, b: a @ b.T, lambda a, b: a @ b.T, wide, seed=seed)
        assert not plain.notes and not judge(plain, [sum_as_hopper(a, b)], depth="full").accepted
