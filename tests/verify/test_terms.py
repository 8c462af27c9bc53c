"""What a reference sums is counted, and a long axis along which nothing is summed excuses no error."""

import math

import pytest
import torch
from torch.nn import functional

from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.judge import judge
from kernelsearch.verify.terms import TermsMode
from kernelsearch.verify.tolerance import FEW, SHORT, estimate_accumulation

X, W = torch.randn(6, 96), torch.randn(32, 96)
IMAGE, FILTER = torch.randn(2, 8, 9, 9), torch.randn(4, 8, 3, 3)
COUNTS = {
    "elements": (lambda: torch.nn.functional.gelu(X * 2 + X[:, :1]).clamp(min=0).view(-1), 1, 1),
    "moved": (lambda: torch.cat([X.t(), X.t()]).contiguous()[:, [0, 2]], 1, 1),
    "a sum of rows": (lambda: X.sum(1), 96, 1),
    "a mean of all after a sum": (lambda: X.sum(1).exp().mean(), 96 * 6, 1),
    "two results of each element": (lambda: torch.nn.functional.logsigmoid(X), 1, 1),
    "a product": (lambda: X @ W.t(), 96, 1),
    "a product and its bias": (lambda: functional.linear(X, W, torch.randn(32)).relu(), 96, 1),
    "a convolution": (lambda: functional.conv2d(IMAGE, FILTER), 72, 72),
    "a convolution of groups": (lambda: functional.conv2d(IMAGE, torch.randn(8, 1, 3, 3), groups=8), 9, 9),
    "a transposed convolution": (lambda: functional.conv_transpose2d(IMAGE, torch.randn(8, 5, 3, 3)), 72, 72),
    "a transposed convolution of channels": (
        lambda: functional.conv_transpose2d(IMAGE, torch.randn(8, 1, 4, 4), stride=2, groups=8),
        4,
        4,
    ),
    "a product in place": (lambda: torch.zeros(6, 32).addmm_(X, W.t()), 96, 1),
    "halves": (lambda: X[:, :48] + X[:, 48:], 2, 1),
    "a sum of its own": (lambda: sum((X[:, i] for i in range(1, 96)), X[:, 0]), 2.0**95, 1),
    "a bias and a residual": (lambda: (X + X[:1]).relu() + X - 3, 2, 1),
    "attention": (lambda: functional.scaled_dot_product_attention(IMAGE, IMAGE, IMAGE), math.inf, 1),
    "a transform": (lambda: torch.fft.irfft(torch.fft.rfft(X)), math.inf, 1),
    "complex numbers": (lambda: torch.view_as_complex(X.view(6, 48, 2)).abs(), math.inf, 1),
    "a pool": (lambda: functional.avg_pool2d(IMAGE, 3), math.inf, 1),
    "scattered": (lambda: torch.zeros(3, 96).index_add(0, torch.tensor([0, 0, 0, 0, 1, 2]), X), math.inf, 1),
    "distances": (lambda: torch.cdist(X, W), math.inf, 1),
    "a softmax": (lambda: torch.softmax(X, 1), math.inf, 1),
    "a running sum": (lambda: X.exp().cumsum(1), math.inf, 1),
    "nothing of torch": (lambda: 3, math.inf, 1),
}


@pytest.mark.parametrize("name", COUNTS)
def test_terms_are_those_of_the_operations(name):
    compute, most, longest = COUNTS[name]
    with TermsMode() as counted:
        compute()
    assert (counted.most, counted.longest) == (most, longest)


@pytest.mark.parametrize("zero_mean", [True, False])
def test_a_count_lowers_the_error_of_a_long_axis_and_never_below_that_of_few(zero_mean):
    long = torch.zeros(2**20)
    plain = estimate_accumulation([long], long.numel(), zero_mean)
    assert plain == (512 if zero_mean else 0.375 * 2**20)
    assert estimate_accumulation([long], long.numel(), zero_mean, most=1) == FEW
    assert estimate_accumulation([long], 1, zero_mean, most=2.0**20) == plain
    assert estimate_accumulation([torch.zeros(8)], 8, zero_mean, most=1) <= SHORT
    few, terms = torch.zeros(2, 8, 9, 9), 4096.0
    wanted = math.sqrt(terms) / 2 if zero_mean else 0.375 * terms
    assert estimate_accumulation([few], few.numel(), zero_mean, most=terms, longest=terms) == wanted


def test_an_elementwise_result_of_a_long_vector_may_not_be_cut_short():
    torch.manual_seed(0)
    x = torch.randn(2**18)

    def cut(x):
        turns = (-x * 1.4426950408889634).clamp(max=126.0)
        whole = torch.floor(turns + 0.5)
        f = (turns - whole) * 0.6931471805599453
        series = 1.0 + f * (1.0 + f * (0.5 + f * (0.16666667 + f * 0.041666668)))
        return x / (1.0 + series * torch.exp2(whole))

    expected = make_expectation(functional.silu, functional.silu, [x])
    assert judge(expected, [x / (1.0 + torch.exp2(-x * 1.4426950408889634))]).error_ratio < 0.5
    assert not judge(expected, [cut(x)]).accepted
