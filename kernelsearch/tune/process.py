"""A Gaussian process over the points of a small space: what values to expect, and how surely.

The covariance of two points is `s * (prod_i k_i + w * mean_i k_i)` with a Matern 5/2 function `k_i` of the distance
along axis i: the product learns interactions, the mean (an additive process; Duvenaud et al., 2011) what an axis does
everywhere, which few values already show. Length scales, s, w and the noise maximise the posterior under log-normal
priors (Rasmussen and Williams, 2006, chapter 5). Since an axis has few values, `k_i` is a small table.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtrs
from scipy.optimize import minimize

JITTER = 1e-8
STEPS = 12
"""Of L-BFGS per fit: further ones change the predictions little."""

ROOT5 = math.sqrt(5.0)


class Process:
    """distances has one table a axis, values in [0, 1]. Fit it, then predict; points are rows of ranks.

    The parameters, as logarithms: a length scale an axis, the scale s, the noise, the weight w of the additive part.
    """

    def __init__(self, distances: list[np.ndarray]) -> None:
        self.distances, d = distances, len(distances)
        self.mean = np.log(np.array([0.7] * d + [1.0, 1e-3, 0.3]))
        self.spread = np.array([0.3] * d + [0.7, 1.0, 1.0])
        low, high = [0.05] * d + [0.02, 1e-5, 0.0025], [20.0] * d + [50.0, 0.3, 20.0]
        self.bounds = list(zip(np.log(low), np.log(high), strict=True))
        self.parameters = self.mean.copy()

    def learn(self, points: np.ndarray, values: np.ndarray) -> None:
        """Chooses the parameters by these values, from the prior's mean, whatever was learnt before."""
        told = (values - values.mean()) / (values.std() + 1e-12)
        found = minimize(
            self._loss, self.mean, (points, told), jac=True, method="L-BFGS-B", bounds=self.bounds, options={"maxiter": STEPS}
        )
        self.parameters = found.x

    def fit(self, points: np.ndarray, values: np.ndarray) -> None:
        """Conditions the process on values at points, with the parameters as they are."""
        self.points, self.centre, self.unit = points, values.mean(), values.std() + 1e-12
        self.tables = [_matern(t * math.exp(-scale))[0] for t, scale in zip(self.distances, self.parameters, strict=False)]
        covariance = self._covariance(points, points)
        covariance.flat[:: len(points) + 1] += math.exp(self.parameters[-2]) + JITTER
        self.factor, failed = dpotrf(covariance, lower=1)
        if failed:
            raise np.linalg.LinAlgError("the covariance is not positive definite")
        self.weights = dpotrs(self.factor, (values - self.centre) / self.unit, lower=1)[0]

    def predict(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the value at each point, without noise."""
        across = self._covariance(self.points, points)
        known = dtrtrs(self.factor, across, lower=1)[0]
        prior = math.exp(self.parameters[-3]) * (1.0 + math.exp(self.parameters[-1]))
        variance = np.maximum(prior - np.einsum("ij,ij->j", known, known), 1e-10)
        return self.weights @ across * self.unit + self.centre, np.sqrt(variance) * self.unit

    def _covariance(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        product, total = np.ones((len(one), len(other))), np.zeros((len(one), len(other)))
        for i, table in enumerate(self.tables):
            k = table[one[:, i]][:, other[:, i]]
            product *= k
            total += k
        share = math.exp(self.parameters[-1]) / len(self.tables)
        return math.exp(self.parameters[-3]) * (product + share * total)

    def _loss(self, parameters: np.ndarray, points: np.ndarray, told: np.ndarray) -> tuple[float, np.ndarray]:
        """The negative log posterior of the parameters, up to a constant, and its gradient."""
        n, d = len(told), len(self.distances)
        scale, noise, share = np.exp(parameters[-3:])
        both = [_matern(t * math.exp(-length)) for t, length in zip(self.distances, parameters, strict=False)]
        ks = [k[points[:, i]][:, points[:, i]] for i, (k, _) in enumerate(both)]
        slopes = [s[points[:, i]][:, points[:, i]] for i, (_, s) in enumerate(both)]
        product, mean = np.prod(ks, axis=0), np.mean(ks, axis=0)
        clean = scale * (product + share * mean)
        covariance = clean.copy()
        covariance.flat[:: n + 1] += noise + JITTER
        factor, failed = dpotrf(covariance, lower=1)
        if failed:
            return 1e10, np.zeros_like(parameters)
        weights = dpotrs(factor, told, lower=1)[0]
        inverse = dpotri(factor, lower=1)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        outer = inverse - np.outer(weights, weights)
        shared = outer * product
        gradient = np.empty_like(parameters)
        for i in range(d):
            whole = np.vdot(shared, slopes[i] / np.maximum(ks[i], 1e-12))
            gradient[i] = scale * (whole + share / d * np.vdot(outer, slopes[i]))
        gradient[-3:] = np.vdot(outer, clean), noise * np.trace(outer), scale * share * np.vdot(outer, mean)
        away = (parameters - self.mean) / self.spread
        loss = 0.5 * told @ weights + np.log(np.diagonal(factor)).sum() + 0.5 * away @ away
        return loss, 0.5 * gradient + away / self.spread


def _matern(distance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Matern 5/2 of a distance in length scales, and its derivative by the logarithm of the length scale."""
    a = ROOT5 * distance
    decay = np.exp(-a)
    return (1.0 + a + a * a / 3.0) * decay, a * a * (1.0 + a) / 3.0 * decay
