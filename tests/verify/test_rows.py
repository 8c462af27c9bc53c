"""A large output whose rows do not depend on each other is judged some rows at a time, with the same verdicts."""

import pytest
import torch

from kernelsearch.verify import expectation, pieces, rows
from kernelsearch.verify.judge import judge, measure_spread

torch.manual_seed(0)
WEIGHT = torch.randn(48)


def normalise(x, weight=WEIGHT):
    return x / x.abs().mean(1, keepdim=True) * weight.to(x.dtype)


ALONE = {
    "rows": (normalise, [torch.randn(48, 48)]),
    "rows and a vector as long": (normalise, [torch.randn(48, 48), WEIGHT]),
    "two tensors": (torch.add, [torch.randn(48, 4, 12), torch.randn(48, 4, 12)]),
    "one axis": (torch.sigmoid, [torch.randn(48 * 48)]),
}
TOGETHER = {
    "a norm of all": (lambda x: x / x.norm(), [torch.randn(48, 48)]),
    "a batch norm": (lambda x: (x - x.mean(0)) / x.std(0), [torch.randn(48, 48)]),
    "a number of the batch": (lambda x: x * len(x), [torch.randn(48, 48)]),
    "only one batch": (lambda x: torch.sigmoid(x).view(48, 6, 8), [torch.randn(48, 48)]),
    "two outputs": (lambda x: (x.exp(), x.sin()), [torch.randn(48, 48)]),
    "places of rows": (lambda t, i: t[i[:, 0]], [torch.randn(48, 48), torch.arange(47, -1, -1).view(48, 1)]),
    "floats of 8 bits": (lambda x: x.to(torch.float8_e4m3fn), [torch.randn(48, 48)]),
    "no tensor": (lambda x: 3, [torch.randn(48, 48)]),
    "integers": (lambda x: (100 * x).int(), [torch.randn(48, 48)]),
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(rows, "ELEMENTS", 48 * 10)
    for module in (pieces, expectation, rows):
        monkeypatch.setattr(module, "LARGE", 48 * 40)


def expect(compute, inputs):
    def make(some):
        return expectation.make_expectation(compute, compute, some, seed=3)

    return rows.expect_rows(make, compute, inputs), make(inputs)


@pytest.mark.parametrize("name", ALONE)
def test_rows_that_stand_alone_get_the_verdicts_of_the_whole(name):
    compute, inputs = ALONE[name]
    by_rows, whole = expect(compute, inputs)
    assert isinstance(by_rows.outputs[0], rows.RowsOutput)
    right = compute(*inputs)
    coarse = right + 0.25 * (right - right.bfloat16())
    last = right.clone()
    last.reshape(-1)[-1] *= 1.001
    hole = right.clone()
    hole[7:8] = torch.nan
    for answer in (right, right * (1 + 2e-7), coarse, last, hole, right[:-1], right.double()):
        mine, other = judge(by_rows, [answer]), judge(whole, [answer])
        assert (mine.word, mine.detail.get("index")) == (other.word, other.detail.get("index"))
    assert judge(by_rows, [last]).detail["index"] == [n - 1 for n in right.shape]
    assert 0 < measure_spread(by_rows, [right], [right * (1 + 2e-7)]) < 1 < measure_spread(by_rows, [right], [coarse])


@pytest.mark.parametrize("name", TOGETHER)
def test_rows_that_depend_on_others_are_judged_together(name):
    compute, inputs = TOGETHER[name]
    assert rows.expect_rows(lambda some: pytest.fail("judged by rows"), compute, inputs) is None


def test_what_fits_is_judged_at_once(monkeypatch):
    monkeypatch.setattr(rows, "LARGE", 48 * 48)
    assert expect(*ALONE["rows"])[0] is None


def test_a_regime_without_finite_answers_says_so():
    x = torch.full((48, 48), torch.inf)
    by_rows, _ = expect(torch.exp, [x])
    assert by_rows.dropped == "regime randn is dropped: output 0 is non-finite in 2304 of 2304 elements"
    x.fill_(torch.nan)
    x[0] = 1.0
    assert expect(torch.exp, [x])[0].dropped
    x[:30] = 1.0
    assert not expect(torch.exp, [x])[0].dropped


def expect_some(compute, inputs, some=(3, 5, 40)):
    def make(few):
        return expectation.make_expectation(compute, compute, few, seed=3)

    return rows.expect_written(make, compute, inputs, some)


@pytest.mark.parametrize("name", [n for n in ALONE if n not in ("rows and a vector as long", "one axis")])
def test_some_rows_have_the_answers_that_they_have_among_all(name):
    compute, inputs = ALONE[name]
    some, whole = expect_some(compute, inputs).outputs[0], expectation.make_expectation(compute, compute, inputs)
    assert torch.equal(some.rounded, whole.outputs[0].rounded[[3, 5, 40]])


@pytest.mark.parametrize("name", [n for n in TOGETHER if n not in ("floats of 8 bits", "no tensor")])
def test_rows_that_depend_on_others_are_not_judged_alone(name):
    compute, inputs = TOGETHER[name]
    assert expect_some(compute, inputs) is None
