"""Fits the polynomials of `kernelsearch/propose/analysis/short_functions.py`: weighted minimax by Lawson's method.

Prints the coefficients, lowest power first. Lawson (1961): least squares whose weights are multiplied by the error at
each point until the error is level; the points are Chebyshev nodes. A weight is one over the error that is allowed:
2**-13 of the value, a quarter of an ulp of float16 where that is smallest, and for GELU besides what
0.5 * x * (1 + erf(x / sqrt(2))) loses itself in float32 next to x = -5, where the sum cancels.
"""

import math

import numpy as np

QUARTER = 2.0**-13


def fit(x, wanted, weight, degree, rounds=400):
    """Coefficients c with wanted = sum of c[i] * x**i, so that the largest weighted error is small."""
    powers, share, best = np.vander(x, degree + 1, increasing=True), np.full(len(x), 1.0 / len(x)), (math.inf, None)
    for _ in range(rounds):
        scale = np.sqrt(share) * weight
        c = np.linalg.lstsq(powers * scale[:, None], wanted * scale, rcond=None)[0]
        error = np.abs(powers @ c - wanted) * weight
        best = min(best, (error.max(), c), key=lambda pair: pair[0])
        share = share * error
        share /= share.sum()
    return [float(np.float32(value)) for value in best[1]]


def place(last, count=1000):
    """Chebyshev nodes between 0 and last."""
    return last / 2 * (1.0 - np.cos(np.pi * (np.arange(count) + 0.5) / count))


def fit_log2_of_phi(last=5.0, degree=5):
    """log2 of the normal distribution's tail: Phi(-t) = 2**q(t)."""
    t = place(last)
    tail = np.array([0.5 * math.erfc(v / math.sqrt(2.0)) for v in t])
    return fit(t, np.log2(tail), 1.0 / (QUARTER + 2.0**-24 / tail), degree)


def fit_erf(last=2.75, degree=7):
    """erf(x) / x as a polynomial in x * x."""
    x = place(last)
    ratio = np.array([math.erf(v) / v for v in x])
    return fit(x * x, ratio, 1.0 / ratio, degree)


if __name__ == "__main__":
    print("log2 of Phi(-t):", fit_log2_of_phi())
    print("erf(x) / x:", fit_erf())
