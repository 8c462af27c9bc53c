"""The right answer where float64 and eager PyTorch overflow differently, and where a reference names float32."""

import pytest
import torch

from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.judge import judge


def difference(x, y):
    """Two terms that overflow in float32: what is left of them, -infinity or NaN, is the order's."""
    return x * 10 - y * 20


def far(size=4e37):
    """300 elements, of which few are so large that float32 overflows on the way to them."""
    x, y = (torch.randn(4, 75, generator=torch.Generator().manual_seed(s)) for s in (1, 2))
    x[1, 7], y[1, 7] = size, size
    return x, y


@pytest.mark.parametrize("given, right", [("nan", True), ("inf", True), ("-inf", True), ("0", False), ("1e30", False)])
def test_where_float64_and_eager_are_infinite_in_different_ways_any_such_value_is_right(given, right):
    x, y = far()
    expected = make_expectation(difference, difference, [x, y])
    eager, wide = difference(x, y), difference(x.double(), y.double()).float()
    assert torch.isnan(eager[1, 7]) and torch.isinf(wide[1, 7])
    assert judge(expected, [eager]).accepted
    eager[1, 7] = float(given)
    assert judge(expected, [eager]).accepted == right


@pytest.mark.parametrize("given", ["nan", "-inf", "3"])
def test_where_they_agree_the_value_is_judged(given):
    x, y = far(torch.finfo(torch.float32).max)
    expected = make_expectation(torch.add, torch.add, [x, y])
    got = x + y
    assert got[1, 7] == torch.inf and judge(expected, [got]).accepted
    got[1, 7] = float(given)
    assert not judge(expected, [got]).accepted


NAMING = {
    "float": lambda x, w: x.float() @ w,
    "to": lambda x, w: x.to(torch.float32) @ w,
    "to, by keyword": lambda x, w: x.to(dtype=torch.float32) @ w,
    "type": lambda x, w: x.type(torch.float32) @ w,
    "factory": lambda x, w: torch.zeros(x.shape[0], w.shape[1]).addmm_(x, w),
    "factory, by keyword": lambda x, w: torch.ones(x.shape, dtype=torch.float32) * x @ w,
    "sum": lambda x, w: (x[:, :, None] * w).sum(1, dtype=torch.float32),
    "softmax": lambda x, w: torch.softmax(x, -1, dtype=torch.float32) @ w,
    "place by place": lambda x, w: fill(torch.empty(x.shape[0], w.shape[1], dtype=torch.float32), x, w),
}
"""Ways of naming float32 in a reference."""


def fill(out, x, w):
    for row in range(len(out)):
        out[row] = x[row].float() @ w
    return out


@pytest.mark.parametrize("way", NAMING)
def test_a_reference_that_names_float32_is_exact_all_the_same(way):
    x, w = torch.randn(6, 50), torch.randn(50, 20)
    (output,) = (expected := make_expectation(NAMING[way], NAMING[way], [x, w])).outputs
    exact = x.double().softmax(-1) @ w.double() if way == "softmax" else x.double() @ w.double()
    assert not expected.notes
    assert torch.allclose(output.expected, exact, rtol=1e-12, atol=1e-13)
    assert output.dtype is torch.float32 and judge(expected, [NAMING[way](x, w)]).accepted


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("way", NAMING)
def test_a_reference_that_names_float32_hides_no_lower_precision(way, dtype):
    x, w = torch.randn(6, 50), torch.randn(50, 20)
    expected = make_expectation(NAMING[way], NAMING[way], [x, w])
    verdict = judge(expected, [NAMING[way](x.to(dtype).float(), w)])
    assert not verdict.accepted and verdict.error_ratio > 10


def test_limits_are_those_of_the_same_reference_without_a_cast():
    x, w = torch.randn(6, 50), torch.randn(50, 20)
    named, plain = (make_expectation(f, f, [x, w]).outputs[0].limits for f in (NAMING["to"], torch.matmul))
    assert torch.equal(named.element, plain.element) and torch.equal(named.rms, plain.rms)


def test_only_the_exact_run_has_float64():
    seen = []

    def remember(x):
        seen.append(x.float().dtype)
        return x.float() * 2

    make_expectation(lambda x: x * 2, remember, [torch.randn(4, 20)], draws=1)
    assert set(seen) == {torch.float32}
    seen.clear()
    make_expectation(remember, lambda x: x * 2, [torch.randn(4, 20)], draws=1)
    assert set(seen) == {torch.float64}


def test_a_cast_remains_a_copy():
    def changes_a_copy(x):
        wide = x.float()
        wide.mul_(3)
        other = x.to(torch.float32)
        other.mul_(5)
        return wide + other + x

    x = torch.randn(4, 20, dtype=torch.float16)
    (output,) = make_expectation(changes_a_copy, changes_a_copy, [x]).outputs
    assert torch.allclose(output.expected, x.double() * 9)


def test_drawn_numbers_stay_those_of_eager():
    def drop(x):
        torch.manual_seed(5)
        noise = torch.rand(x.shape, dtype=torch.float32) + torch.rand(x.shape) + torch.randn(x.shape, dtype=torch.float)
        return x.float() + noise

    x = torch.randn(4, 20)
    (output,) = make_expectation(drop, drop, [x]).outputs
    assert torch.allclose(output.expected, drop(x).double(), rtol=1e-5, atol=1e-6)


def cut_bits(x):
    return (x.float().view(torch.int32) & -65536).view(torch.float32)


def exponents(x):
    return x.to(torch.float32).view(torch.int32).sum(-1)


@pytest.mark.parametrize("bits", [cut_bits, exponents])
def test_bits_stay_those_of_float32(bits):
    x = torch.randn(4, 20)
    expected = make_expectation(bits, bits, [x])
    assert torch.equal(expected.outputs[0].rounded, bits(x))


def test_a_reference_that_names_16_bits_is_exact_where_it_could_not_run_otherwise():
    def mixed(x, w, cast=torch.Tensor.half):
        return cast(torch.sigmoid(x.float())) @ w

    x = torch.randn(64, 48, generator=torch.Generator().manual_seed(1))
    w = torch.randn(48, 32, generator=torch.Generator().manual_seed(2)).half()
    expected = make_expectation(mixed, mixed, [x, w])
    assert not expected.notes and judge(expected, [mixed(x, w)]).accepted
    unrounded = (torch.sigmoid(x.double()) @ w.double()).half()
    assert judge(expected, [unrounded]).accepted
    assert not judge(expected, [mixed(x, w, lambda y: y.bfloat16().half())]).accepted


def test_a_gpu_without_memory_is_no_reason_to_compute_in_float32():
    def reference(x):
        if x.dtype is torch.float64:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 12.00 GiB")
        return x + 1

    with pytest.raises(torch.OutOfMemoryError):
        make_expectation(reference, reference, [torch.ones(3)])


@pytest.mark.parametrize("first, most", [(lambda x: x, 1.0), (torch.sigmoid, 30.0), (lambda x: x.softmax(-1), 30.0)])
def test_a_rounding_makes_no_probability_larger_than_one(first, most):
    """torch's own loss refuses it, and a GPU that stops for it is lost to the process."""
    x, t = torch.tensor([0.0, 1.0, 0.25, most]), torch.eye(4)[0]

    def loss(x, t):
        return torch.nn.functional.binary_cross_entropy(first(x), t, reduction="none")

    expected = make_expectation(loss, loss, [x, t])
    assert judge(expected, [loss(x, t)]).accepted and not judge(expected, [loss(x, t) * 1.01]).accepted
