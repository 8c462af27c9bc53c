"""A refusal that an option of the task file would cure names it, with an example that the task file takes."""

import ast

import pytest
import torch

from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.literals import flatten_config
from kernelsearch.tasks.forms import OPTIONS
from kernelsearch.verify import precision, regimes
from kernelsearch.verify.cures import NOT_EXACT, NOT_FINITE, name_cures
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.judge import judge
from kernelsearch.worker.judging.verdicts import lie_outside


def wrong(ratio=None, regime="large", word=Word.WRONG, **detail):
    return Verdict(word, "judge", "r", error_ratio=ratio, detail={"regime": regime, **detail})


CASES = {
    "PRECISION": (Verdict(Word.PRECISION, "precision", "r", detail={"needs": "tf32"}), 1),
    "MUTATES": (wrong(word=Word.MEMORY, input="logits"), 1),
    "DOMAIN": (wrong(float("inf"), outside=True, inputs=["logits", "bias"]), 1),
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
        return lie_outside(values, drawn, rows, 16, regime)

    assert not outside([0]) and not outside([7]) and not outside([2, 4, 8])
    assert outside([40]) == outside([]), "a row of another output, of which inputs have fewer"
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
    assert name_cures(wrong(1.37, tolerance=7.6), own=True)[-1].endswith("TOLERANCE = 10.94")


@pytest.mark.parametrize("ratio, count", [(1.71, 1), (1.2, 300), (541.0, 2)])
def test_no_tolerance_is_advised_that_would_let_a_wrong_kernel_in(ratio, count):
    """2.1 was advised for a kernel that copies what the reference adds a dropout to: 1.71 times a limit."""
    (sentence,) = name_cures(wrong(ratio, wrong=count, of=1000), own=True)
    assert "TOLERANCE = " not in sentence and "is wrong" in sentence
    rare = name_cures(wrong(1.12, wrong=2, of=1000), own=True)
    assert rare[-1].endswith("TOLERANCE = 1.18")


def test_an_error_of_16_bits_under_a_float32_answer_names_the_rounding_as_its_cure():
    x, b = (torch.randn(16, 64, generator=torch.Generator().manual_seed(s)).bfloat16() for s in (1, 2))
    scale = torch.rand(64, generator=torch.Generator().manual_seed(3))

    def reference(x, b, scale):
        return x.float() @ (b.float() * scale).T

    def cast(x, b, scale):
        return x.float() @ (b.float() * scale).to(x.dtype).float().T

    expected = make_expectation(reference, reference, [x, b, scale])
    verdict = judge(expected, [cast(x, b, scale)], depth="full")
    assert verdict.word is Word.WRONG and verdict.error_ratio > 8
    (sentence,) = name_cures(verdict, own=True)
    assert "TOLERANCE" not in sentence and "(b * scale).to(x.dtype)" in sentence
    cured = make_expectation(cast, cast, [x, b, scale])
    assert judge(cured, [cast(x, b, scale)], depth="full").accepted
    assert not name_cures(judge(expected, [cast(x, b, scale) * 2], depth="full"), own=True)[0].startswith("if the")


@pytest.mark.parametrize("ratio", [10.1, 423402.2])
def test_a_large_error_is_no_matter_of_tolerance(ratio):
    *_, said = name_cures(wrong(ratio), own=True)
    assert "TOLERANCE =" not in said and said.startswith(
        "such an error is more than the reference's own roundings make"
    )
    assert "is wrong" not in str(name_cures(wrong(ratio, outside=True), own=True)), "it may err at such values alone"


@pytest.mark.parametrize("reason", ["needs 294912 bytes of shared memory, the target has 232448", "Assertion failed"])
def test_numbers_that_do_not_compile_may_be_others(reason):
    verdict = Verdict(Word.COMPILE, "compile", reason)
    (sentence,) = name_cures(verdict, own=True)
    example = sentence.partition("CONFIG = ")[2]
    assert flatten_config(ast.literal_eval(example[: example.index("}") + 1]), "CONFIG")
    assert name_cures(verdict, own=False) == ()


def test_a_candidate_is_not_told_to_loosen_the_task():
    assert name_cures(wrong(1.52), own=False) == name_cures(wrong(word=Word.MEMORY, input="logits"), own=False) == ()
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


def test_cures_name_the_inputs_as_the_file_does():
    for verdict in (wrong(word=Word.MEMORY, input="logits"), wrong(float("inf"), outside=True, inputs=["logits", "b"])):
        (said,) = (cure for cure in name_cures(verdict, own=True) if "MUTATES" in cure or "DOMAIN" in cure)
        assert '"logits"' in said and '"x"' not in said
