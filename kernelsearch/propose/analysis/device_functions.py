"""Device functions that seeds have in place of Inductor's runtime helpers: also for what reads seeds."""

from __future__ import annotations

import re

_TEXT = """
@triton.jit
def any_of(x, axis: tl.constexpr):
    return tl.max(x.to(tl.int32), axis) != 0

@triton.jit
def _multiply(a, b):
    return a * b

@triton.jit
def product(x, axis: tl.constexpr):
    return tl.reduce(x, axis, _multiply)

@triton.jit
def welford_add(x, mean, m2, count, is_first):
    # one more value in a running mean and sum of squared deviations; the first one finds zeros
    n = count + 1
    delta = x - mean
    moved = mean + delta / n
    return moved, m2 + delta * (x - moved), n

@triton.jit
def welford_merge(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    # Chan's formula for the moments of two parts
    n = count_a + count_b
    share = tl.where(n == 0.0, 0.0, count_b / n)
    delta = mean_b - mean_a
    return mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share, n

@triton.jit
def welford_along(mean, m2, count, axis: tl.constexpr):
    return tl.reduce((mean, m2, count), axis, welford_merge)

@triton.jit
def online_add(highest, total, x):
    # one more value in a running maximum and the sum of exponentials below it
    new = tl.maximum(highest, x)
    finite = tl.where(new == float('-inf'), 0.0, new)
    return new, total * tl.exp(highest - finite) + tl.exp(x - finite)

@triton.jit
def online_merge(highest_a, total_a, highest_b, total_b):
    # a part without finite values has a maximum of -inf and any total
    new = tl.maximum(highest_a, highest_b)
    a = tl.where(highest_a == float('-inf'), 0.0, total_a * tl.exp(highest_a - new))
    b = tl.where(highest_b == float('-inf'), 0.0, total_b * tl.exp(highest_b - new))
    return new, a + b

@triton.jit
def online_along(highest, total, axis: tl.constexpr):
    # without any finite value the total is NaN, as exp(-inf - -inf) is
    new = tl.max(highest, axis)
    rescaled = total * tl.exp(highest - tl.expand_dims(new, axis))
    total = tl.sum(tl.where(highest == float('-inf'), 0.0, rescaled), axis)
    return new, tl.where(new == float('-inf'), float('nan'), total)

@triton.jit
def larger_and_index(a, i, b, j):
    # NaN before all, of equal values the first
    take = (a > b) | ((a == b) & (i < j)) | ((a != a) & ((b == b) | (i < j)))
    return tl.where(take, a, b), tl.where(take, i, j)

@triton.jit
def smaller_and_index(a, i, b, j):
    # NaN before all, of equal values the first
    take = (a < b) | ((a == b) & (i < j)) | ((a != a) & ((b == b) | (i < j)))
    return tl.where(take, a, b), tl.where(take, i, j)

@triton.jit
def max_and_index(x, index, axis: tl.constexpr):
    return tl.reduce((x, index), axis, larger_and_index)

@triton.jit
def min_and_index(x, index, axis: tl.constexpr):
    return tl.reduce((x, index), axis, smaller_and_index)

@triton.jit
def pick_one(x, is_it, dim: tl.constexpr, keep_dims: tl.constexpr = False):
    # the only element of an axis at which is_it holds
    return tl.sum(tl.where(is_it, x, 0), dim, keep_dims=keep_dims)

@triton.jit
def divide_down(a, b):
    # rounded towards minus infinity, as in Python
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)

@triton.jit
def modulo(a, b):
    # with the divisor's sign, as in Python
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
"""
DEVICE_FUNCTIONS = {
    re.search(r"def (\w+)", text)[1]: f"\n@triton.jit\n{text.strip()}\n"  # type: ignore[index]
    for text in _TEXT.split("@triton.jit\n")[1:]
}
"""The texts by name, each after those that it calls."""


def find_helpers(text: str) -> list[str]:
    """The texts of the device functions that a kernel's text uses, directly or through another one, in their order."""
    used: set[str] = set()
    seen = text
    for name in reversed(DEVICE_FUNCTIONS):
        if re.search(rf"\b{name}\b", seen):
            used.add(name)
            seen += DEVICE_FUNCTIONS[name]
    return [DEVICE_FUNCTIONS[name].strip() for name in DEVICE_FUNCTIONS if name in used]
