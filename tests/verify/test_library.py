"""Flags of cuDNN while answers are judged."""

import pytest
import torch

from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.library import CutConvolutions, round_to_tf32, steady_library


@pytest.mark.parametrize("timed", [False, True])
def test_flags_are_as_before_afterwards(timed):
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.allow_tf32
    with pytest.raises(ZeroDivisionError), steady_library(tf32=timed):
        assert (cudnn.deterministic, cudnn.allow_tf32) == (True, timed and before[1])
        raise ZeroDivisionError
    assert (cudnn.deterministic, cudnn.allow_tf32) == before


def test_tf32_that_the_user_forbids_stays_forbidden(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with steady_library(tf32=True):
        assert not torch.backends.cudnn.allow_tf32


def test_values_are_rounded_to_the_bits_of_tf32():
    generator = torch.Generator().manual_seed(0)
    x = torch.tensor([1.0, 1.0 + 2.0**-10, -3.0, 1e-30, float("inf"), float("nan")])
    x[-1] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)  # what a GPU's arithmetic gives
    cut = round_to_tf32(x, generator)
    assert cut[:3].tolist() == x[:3].tolist()
    assert abs(cut[3] / x[3] - 1) < 2.0**-10 and cut[4] == float("inf") and cut[5].isnan()
    between = round_to_tf32(torch.full((4000,), -1.0 - 2.0**-12), generator)
    assert between.unique().tolist() == [-1.0 - 2.0**-10, -1.0]
    assert between.double().mean() == pytest.approx(-1.0 - 2.0**-12, abs=2.0**-15)


@pytest.mark.parametrize("transposed", [False, True])
def test_eager_errs_by_tf32_in_convolutions_only_where_that_is_allowed(transposed, monkeypatch):
    convolve = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    x, w = torch.randn(2, 8, 9, 9), torch.randn(8, 8, 3, 3)
    right = convolve(x.double(), w.double())
    with CutConvolutions() as cut:
        product = x[0, 0] @ x[0, 1]
        assert not cut.used
        error = (convolve(x, w) - right).abs().max()
        assert cut.used and not torch.equal(convolve(x, w), convolve(x, w))
    assert torch.equal(product, x[0, 0] @ x[0, 1])
    assert 2.0**-13 < error / right.abs().mean() < 2.0**-7
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with CutConvolutions():
        assert (convolve(x, w) - right).abs().max() / right.abs().mean() < 2.0**-18


@pytest.mark.parametrize("clamped", [True, False])
def test_a_lone_element_of_a_tile_may_err_by_tf32(clamped):
    """Few of a row's elements are above 0, or at the edge of a leaky one: eager's error there is small by accident."""
    convolve, refused, lone = torch.nn.functional.conv2d, 0, 0
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(2, 64, 18, 130, generator=generator)
        w = (torch.rand(32, 64, 3, 3, generator=generator) * 2 - 1) / 24
        y = convolve(x, w)
        least = (y.mean((0, 2, 3)) + 2.6 * y.std((0, 2, 3)))[:, None, None]

        def compute(x, w, least):
            y = convolve(x, w) - least
            return y.relu() if clamped else torch.nn.functional.leaky_relu(y)

        expected = make_expectation(compute, compute, [x, w, least], seed=seed, cut=CutConvolutions(seed)).outputs[0]
        cut = (x.view(torch.int32) & (-1 << 13)).view(torch.float32)  # as matrix units cut off what they do not read
        error = (compute(cut, w, least).double() - expected.expected).abs()
        refused += int((error > expected.limits.element).sum())
        lone += int((expected.expected > 0).sum())
    assert lone > 1000
    assert refused == 0
