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


def verdict(case, output, covers=1.0, masks=()):
    expected, x, _ = case
    return judge_sampled(expected, [output], covers, masks, [x], [x.clone()], ())


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


def test_a_mask_of_what_was_written_decides_and_not_the_poison(case):
    _, x, written = case
    mask = torch.zeros_like(x, dtype=torch.bool)
    mask[[0, 17, 399]] = True
    assert verdict(case, torch.where(mask, written, 0.0), masks=[mask]).accepted
    nothing = written.clone()
    nothing[17] = float("nan")
    assert verdict(case, nothing, masks=[mask]).word is Word.WRONG and verdict(case, nothing).accepted


def test_a_wrong_form_is_wrong(case):
    assert verdict(case, case[2].half()).word is Word.WRONG and verdict(case, case[2][:5]).word is Word.WRONG


@pytest.mark.parametrize("covers, word", [(0.8, Word.ACCEPT), (0.5, Word.WRONG), (0.0, Word.WRONG)])
def test_a_grid_that_mostly_writes_nothing(case, covers, word):
    assert verdict(case, case[2], covers).word is word
