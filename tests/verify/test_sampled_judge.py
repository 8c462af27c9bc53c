"""A few programs of a large grid are judged by what they wrote, and a grid that mostly does nothing is not right."""

import pytest
import torch

from kernelsearch.core.types import Word
from kernelsearch.verify import regimes
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.sampled_judge import judge_sampled


def softmax(x):
    return torch.softmax(x, -1)


@pytest.fixture(scope="module")
def case():
    (x,) = regimes.make_inputs([torch.randn(400, 30)], "randn", 1)
    written = torch.full_like(x, float("nan"))
    written[[0, 17, 399]] = softmax(x)[[0, 17, 399]]
    return make_expectation(softmax, softmax, [x], shape="400x30"), x, written


def verdict(case, output, covers=1.0):
    expected, x, _ = case
    return judge_sampled(expected, [output], covers, [x], [x.clone()], ())


def test_what_was_not_run_is_not_judged(case):
    assert verdict(case, case[2]).accepted


@pytest.mark.parametrize("row, column", [(17, 3), (399, 29)])
def test_what_was_written_is(case, row, column):
    output = case[2].clone()
    output[row, column] *= 1.001
    found = verdict(case, output)
    assert found.word is Word.WRONG and found.detail["index"] == [row, column]
    assert (found.detail["wrong"], found.detail["of"]) == (1, 90) and found.detail["sampled"]
    assert found.reason.endswith("; 1 of the 90 elements that the few programs that ran wrote)")


def test_a_wrong_form_is_wrong(case):
    assert verdict(case, case[2].half()).word is Word.WRONG and verdict(case, case[2][:5]).word is Word.WRONG


@pytest.mark.parametrize("covers, word", [(0.8, Word.ACCEPT), (0.5, Word.WRONG), (0.0, Word.WRONG)])
def test_a_grid_that_mostly_writes_nothing(case, covers, word):
    assert verdict(case, case[2], covers).word is word
