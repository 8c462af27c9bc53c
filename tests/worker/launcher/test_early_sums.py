"""Sums, means and pools of products and convolutions, computed from the operands, give the same values."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from kernelsearch.verify.library import CutConvolutions
from kernelsearch.worker.launcher.early_sums import move_sums

LIBRARY = ("mm", "matmul", "convolution")


def move(function, *sizes, symbolic=True):
    """(The largest difference after the move, the products and convolutions that are left or None without a move)."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(size, dtype=torch.float64, generator=generator) for size in sizes]
    graph = make_fx(function, tracing_mode="symbolic" if symbolic else "fake")(*inputs)
    moved = move_sums(graph)
    expected, found = function(*inputs), graph(*inputs)
    assert found.shape == expected.shape
    left = [str(n.target) for n in graph.graph.nodes if any(name in str(n.target) for name in LIBRARY)]
    return float((found - expected).abs().max()), left if moved else None


X, W, B = (5, 7), (11, 7), (11,)
PRODUCTS = [
    (lambda x, w: (x @ w.T / 2).sum(1, keepdim=True) * 1.5, X, W),
    (lambda x, w, b: functional.linear(x, w, b).mean(1), X, W, B),
    (lambda x, w, b: (3 - (functional.linear(x, w, b) - b)).mean(-1), X, W, B),
    (lambda x, w, b, c: (c - functional.linear(x, w, b)).sum(1), X, W, B, (5, 1)),
    (lambda x, w, b, c: (c * -functional.linear(x, w, b) / c + 2).sum(1), X, W, B, (5, 1)),
    (lambda x, w, b: (functional.linear(x, w, b) * b + 2).sum(0), X, W, B),
    (lambda x, w, b: (functional.linear(x, w, b) - b + 2).sum((0, 1)), X, W, B),
    (lambda x, w, b: functional.avg_pool1d(functional.linear(x, w, b).unsqueeze(1), 4).squeeze(1), X, W, B),
]


@pytest.mark.parametrize("case", PRODUCTS)
def test_sums_of_products_keep_their_values(case):
    error, left = move(*case)
    assert error < 1e-12 and left is not None
    assert len(left) == ("avg_pool1d" in case[0].__code__.co_names)  # a pool leaves a smaller product


STAY = [
    (lambda x, w, b: (functional.linear(x, w, b) * b).sum(1), X, W, B),
    (lambda x, w, b: functional.linear(x, w, b).relu().sum(1), X, W, B),
    (lambda x, w: (y := x @ w.T).sum(1) + y[:, 0], X, W),
    (lambda x, w: (x @ w.T).to(torch.float16).sum(1).to(torch.float64), X, W),
]


@pytest.mark.parametrize("case", STAY)
def test_other_sums_stay(case):
    assert move(*case) == (0.0, None)


TRANSPOSED = [
    (1, 0, 0, 3),
    (2, 1, 1, 3),
    (2, 0, 0, 3),
    (3, 2, 1, 5),
    (3, 2, 2, 4),
    (2, 3, 1, 7),
    (1, 2, 0, 4),
    (2, 0, 1, 1),
]


@pytest.mark.parametrize("stride, padding, more, window", TRANSPOSED)
@pytest.mark.parametrize("axes", [(2, 3), (2,), (3,)])
def test_means_of_transposed_convolutions(stride, padding, more, window, axes):
    def mean(x, w, b):
        return functional.conv_transpose2d(x, w, b, stride, padding, more).mean(axes, keepdim=True)

    error, left = move(mean, (2, 3, 9, 8), (3, 5, window, window), (5,), symbolic=False)
    assert error < 1e-12 and left is not None and len(left) == 2 - len(axes)


@pytest.mark.parametrize("padding, dilation, window", [(0, 1, 3), (1, 1, 3), (2, 2, 3), (0, 2, 2), (3, 1, 3)])
@pytest.mark.parametrize("axes", [(2, 3), (3,)])
def test_sums_of_convolutions(padding, dilation, window, axes):
    def total(x, w, b):
        return (functional.conv2d(x, w, b, 1, padding, dilation) * 2 + 1).sum(axes)

    error, left = move(total, (2, 3, 9, 8), (5, 3, window, window), (5,), symbolic=False)
    assert error < 1e-12 and left is not None and len(left) == 2 - len(axes)


@pytest.mark.parametrize("stride, padding, more, window", [case for case in TRANSPOSED if case[0] > 1])
def test_pools_of_transposed_convolutions(stride, padding, more, window):
    def pool(x, w, b, c):
        return functional.avg_pool2d(functional.conv_transpose2d(x, w, b, stride, padding, more) * c, stride)

    error, left = move(pool, (2, 3, 9, 8), (3, 5, window, window), (5,), (), symbolic=False)
    assert error < 1e-12 and left == ["aten.convolution.default"]


@pytest.mark.parametrize(
    "stride, padding, window, pool, groups", [(1, 0, 3, 2, 1), (1, 1, 3, (3, 2), 3), (2, 1, 5, 2, 1)]
)
def test_pools_of_convolutions(stride, padding, window, pool, groups):
    def pooled(x, w, b, c):
        return functional.avg_pool2d(functional.conv2d(x, w, b, stride, padding, 1, groups) * 2 + c, pool)

    error, left = move(pooled, (2, 3, 13, 12), (6, 3 // groups, window, window), (6,), (6, 1, 1), symbolic=False)
    assert error < 1e-12 and left == ["aten.convolution.default"]


def test_volumes():
    def mean(x, w, b):
        return functional.avg_pool3d(functional.conv_transpose3d(x, w, b, 2, 1), 2)

    error, left = move(mean, (2, 3, 4, 5, 6), (3, 5, 3, 3, 3), (5,), symbolic=False)
    assert error < 1e-12 and left == ["aten.convolution.default"]


@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 1}, {"ceil_mode": True}])
def test_pools_with_padding_or_steps_of_their_own_stay(options):
    def pool(x, w):
        return functional.avg_pool2d(functional.conv2d(x, w), 2, **options)

    assert move(pool, (1, 3, 9, 9), (4, 3, 3, 3), symbolic=False)[1] is None


def test_a_convolution_of_sums_errs_no_more_in_tf32_than_the_sum_of_a_convolution():
    """Sums of 32 values near a half are near 16, and tf32 would round them once, where it rounds each value before."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1, 16, 32, 24, 24, generator=generator)
    w = (torch.rand(16, 48, 3, 3, 3, generator=generator) * 2 - 1) / 36

    def compute(x, w):
        return functional.conv_transpose3d(x, w, padding=1).mean(2)

    graph = make_fx(compute, tracing_mode="fake")(x, w)
    assert move_sums(graph)
    right = compute(x.double(), w.double())
    with CutConvolutions():
        ours, usual = ((f(x, w).double() - right).abs() for f in (graph, compute))
    assert float(ours.square().mean()) < 1.1 * float(usual.square().mean()) and float(ours.max()) < 1.2 * float(
        usual.max()
    )
