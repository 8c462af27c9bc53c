"""Flags of cuDNN while answers are judged."""

import pytest
import torch

from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.judge import judge
from kernelsearch.verify.library import CutConvolutions, cut_to_tf32, steady_library
from kernelsearch.verify.tolerance import COMPUTE_EPS


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
    x = torch.tensor([1.0, 1.0 + 2.0**-10, 1.0 + 2.0**-11, -1.0 - 2.0**-12, 1e-30, float("inf"), float("nan")])
    x[-1] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)  # what a GPU's arithmetic gives
    cut = cut_to_tf32(x)
    assert cut[:4].tolist() == [1.0, 1.0 + 2.0**-10, 1.0 + 2.0**-10, -1.0]
    assert abs(cut[4] / x[4] - 1) < 2.0**-11 and cut[5] == float("inf") and cut[6].isnan()
    y = torch.randn(5, dtype=torch.float64)
    assert cut_to_tf32(y) is y


@pytest.mark.parametrize("transposed", [False, True])
def test_eager_errs_by_tf32_in_convolutions_only_where_that_is_allowed(transposed, monkeypatch):
    convolve = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    x, w = torch.randn(2, 8, 9, 9), torch.randn(8, 8, 3, 3)
    right = convolve(x.double(), w.double())
    with CutConvolutions():
        error = (convolve(x, w) - right).abs().max()
        product = x[0, 0] @ x[0, 1]
    assert torch.equal(product, x[0, 0] @ x[0, 1])
    assert 2.0**-13 < error / right.abs().mean() < 2.0**-7
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with CutConvolutions():
        assert (convolve(x, w) - right).abs().max() / right.abs().mean() < 2.0**-18


@pytest.mark.slow
@pytest.mark.parametrize("clamped", [True, False])
def test_honest_errors_of_tf32_may_cross_an_edge(clamped):
    """Operands that are cut off move sums across a clamp at 0, or a leaky one, where eager's own error stays before."""
    convolve, refused, crossed = torch.nn.functional.conv2d, 0, 0
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(2, 64, 18, 130, generator=generator)
        w = (torch.rand(32, 64, 3, 3, generator=generator) * 2 - 1) / 24
        y = convolve(x, w)
        least = (y.mean((0, 2, 3)) + 2.6 * y.std((0, 2, 3)))[:, None, None]

        def compute(x, w, least):
            y = convolve(x, w) - least
            return y.relu() if clamped else torch.nn.functional.leaky_relu(y)

        def eager(*inputs):
            with CutConvolutions():
                return compute(*inputs)

        made = make_expectation(compute, eager, [x, w, least], seed=seed, convolution_eps=COMPUTE_EPS["tf32"])
        right, limits = made.outputs[0].expected, made.outputs[0].limits
        cut = [(t.view(torch.int32) & (-1 << 13)).view(torch.float32) for t in (x, w)]
        error = (compute(*cut, least).double() - right).abs()
        refused += int((error > limits.element).sum()) + int(
            (limits.tiles.rms(error, limits.counts) > limits.rms).sum()
        )
        crossed += int(((right > 0) != (compute(*cut, least) > 0)).sum())
    assert crossed > 10
    assert refused == 0


@pytest.mark.parametrize("length", [512, 65536])
def test_what_tf32_may_do_does_not_grow_with_an_axis_that_nothing_is_summed_along(length):
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(1, 16, length, generator=generator)
    w = (torch.rand(16, 16, 9, generator=generator) * 2 - 1) / 12
    convolve = torch.nn.functional.conv1d

    def eager(x, w):
        with CutConvolutions():
            return convolve(x, w)

    expected = make_expectation(convolve, eager, [x, w], seed=1, convolution_eps=COMPUTE_EPS["tf32"])
    assert judge(expected, [eager(x, w)]).accepted
    assert not judge(expected, [convolve(x.bfloat16().float(), w.bfloat16().float())]).accepted
