"""A refusal that an option of the task file would cure names it, with an example that the task file takes."""

import ast

import pytest
import torch

from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.literals import flatten_config
from kernelsearch.tasks.forms import OPTIONS
from kernelsearch.verify import precision, regimes
from kernelsearch.verify.cures import NOT_EXACT, NOT_FINITE, name_cures


def wrong(ratio=None, regime="large", word=Word.WRONG, **detail):
    return Verdict(word, "judge", "r", error_ratio=ratio, detail={"regime": regime, **detail})


CASES = {
    "PRECISION": (Verdict(Word.PRECISION, "precision", "r", detail={"needs": "tf32"}), 1),
    "MUTATES": (wrong(word=Word.MEMORY, input=0), 1),
    "DOMAIN": (wrong(float("inf"), outside=True), 1),
    "TOLERANCE": (wrong(1.52), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_example_is_a_line_of_a_task_file(name):
    verdict, count = CASES[name]
    sentences = name_cures(verdict, own=True)
    assert len(sentences) == count
    line = next(s for s in sentences if f"{name} = " in s).partition(f"{name} = ")[2]
    value = ast.literal_eval(line[: line.index("}") + 1] if name == "DOMAIN" else line)
    assert OPTIONS[name][0](value)
    assert name != "TOLERANCE" or value > 1.52


def test_values_that_get_inputs_draws_need_no_domain():
    """Rows of mixed regimes are normal values, 20 times as large, near 10, with an outlier, ...: row 8 is as row 0."""
    x, weight = torch.randn(16, 64), torch.rand(64)
    mixed = regimes.make_inputs([x], "mixed", 0, rows=16)

    def outside(rows, regime="mixed", values=mixed, drawn=(x,)):
        return regimes.lie_outside(values, drawn, rows, 16, regime)

    assert not outside([0]) and not outside([7]) and not outside([2, 4, 8])
    assert outside([4]) and outside([2, 3, 4]) and outside([])
    for regime, is_outside in (("randn", False), ("negative", False), ("huge", True), ("offset", True)):
        assert outside([1], regime, regimes.make_inputs([x], regime, 0)) == is_outside
    assert outside([0], "randn", regimes.make_inputs([x.abs()], "randn", 0), [x.abs()]), "none of its own is negative"
    both = regimes.make_inputs([x, weight], "mixed", 0, rows=16)
    assert outside([0], values=both, drawn=[x, weight]), "nor of its weights"
    assert not outside([0], values=[mixed[0], weight], drawn=[x, weight])
    assert name_cures(wrong(float("inf"), outside=False), own=True) == ()


@pytest.mark.parametrize("sign", [NOT_EXACT, NOT_FINITE])
def test_an_index_of_equal_values_may_be_another(sign):
    tied = Verdict(
        Word.WRONG, "judge", f"output 1: {sign} (first at [7])", detail={"regime": "sparse", "outside": False}
    )
    (said,) = name_cures(tied, own=True)
    assert "may be equal" in said and "DOMAIN = " in said and name_cures(tied, own=False) == ()


def test_a_tolerance_is_raised_from_the_one_in_the_file():
    assert name_cures(wrong(2.37, tolerance=7.6), own=True)[-1].endswith("TOLERANCE = 21.7")


@pytest.mark.parametrize("ratio", [10.1, 423402.2])
def test_a_large_error_is_no_matter_of_tolerance(ratio):
    *_, said = name_cures(wrong(ratio), own=True)
    assert "TOLERANCE =" not in said and said.endswith("the kernel or its reference is wrong")
    assert "is wrong" not in str(name_cures(wrong(ratio, outside=True), own=True)), "it may err at such values alone"


@pytest.mark.parametrize("reason", ["needs 294912 bytes of shared memory, the target has 232448", "Assertion failed"])
def test_numbers_that_do_not_compile_may_be_others(reason):
    verdict = Verdict(Word.COMPILE, "compile", reason)
    (sentence,) = name_cures(verdict, own=True)
    example = sentence.partition("CONFIG = ")[2]
    assert flatten_config(ast.literal_eval(example[: example.index("}") + 1]), "CONFIG")
    assert name_cures(verdict, own=False) == ()


def test_a_candidate_is_not_told_to_loosen_the_task():
    assert name_cures(wrong(1.52), own=False) == name_cures(wrong(word=Word.MEMORY, input=0), own=False) == ()
    assert name_cures(wrong(0.5), own=True) == name_cures(wrong(float("nan")), own=True), "no ratio, no factor"
    assert name_cures(Verdict(Word.COMPILE, "compile", "NameError('undefined')"), own=True) == (), "no number cures it"
    assert name_cures(Verdict(Word.CRASH, "run", "r", detail={"regime": "large"}), own=True) == ()


DOT = "%1 = tt.dot %a, %b, %c, inputPrecision = {} : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16x{}>"


@pytest.mark.parametrize("line, needs", [
    (DOT.format("tf32", "f32"), "tf32"),
    (DOT.format("tf32x3", "f32"), "tf32x3"),
    (DOT.format("ieee", "f16"), "half-accumulate"),
    (DOT.format("bf16x3", "f32"), "tf32"),
])  # fmt: skip
def test_the_first_contract_that_allows_it_is_named(line, needs):
    verdict = precision.check(line)
    assert verdict.detail["needs"] == needs and precision.check(line, contract=needs).accepted
    assert f'PRECISION = "{needs}"' in name_cures(verdict, own=False)[0]
