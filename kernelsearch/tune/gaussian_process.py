"""A Gaussian process over the points of a small space: expected values, and how certain they are.

The covariance of two points is `s * (prod_i k_i + w * mean_i k_i)` with a Matern 5/2 function `k_i` of the distance
along axis i: the product learns interactions, the mean (an additive process; Duvenaud et al., 2011) an axis' effect
everywhere, which few values already show. Length scales, s, w and the noise maximise the posterior under log-normal
priors (Rasmussen and Williams, 2006, chapter 5). Since an axis has few values, `k_i` is a small table, and a matrix of
covariances is that table between two matrices of zeros and ones: a third of the time of looking each entry up.
"""

from __future__ import annotations

import functools
import math
import operator

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtrs
from scipy.optimize import minimize

JITTER = 1e-8
STEPS = 12
"""L-BFGS steps per fit: further ones change the predictions little."""

ROOT5 = math.sqrt(5.0)


class GaussianProcess:
    """A Gaussian process: `fit` it, then `predict`; points are rows of ranks, distances one table per axis in [0, 1].

    Values have one row per point and one column per output: outputs are processes of their own with equal parameters.

    The parameters, as logarithms: one length scale per axis, the scale s, the noise, the weight w of the additive part.
    """

    def __init__(self, distances: list[np.ndarray]) -> None:
        self.distances, d = distances, len(distances)
        self.mean = np.log(np.array([0.7] * d + [1.0, 1e-3, 0.3]))
        self.spread = np.array([0.3] * d + [0.7, 1.0, 1.0])
        low, high = [0.05] * d + [0.02, 1e-5, 0.0025], [20.0] * d + [50.0, 0.3, 20.0]
        self.bounds = list(zip(np.log(low), np.log(high), strict=True))
        self.parameters = self.mean.copy()

    def learn(self, points: np.ndarray, values: np.ndarray) -> None:
        """Fits the parameters to these values, starting from the prior's mean, not from earlier parameters."""
        scaled = (values - values.mean(0)) / (values.std(0) + 1e-12)
        options = {"maxiter": STEPS}
        self.parameters = minimize(
            self._loss, self.mean, (points, scaled), jac=True, method="L-BFGS-B", bounds=self.bounds, options=options
        ).x

    def fit(
        self, points: np.ndarray, values: np.ndarray, flying: np.ndarray | None = None, unit: float | None = None
    ) -> None:
        """Conditions the process on values at points, with the parameters as they are.

        flying are points without a value yet, believed to take their predicted value: means stay as they are, and
        predictions near these points become more certain. unit is the assumed spread of the values, None for their own;
        with it there may be no values.
        """
        self.count = len(values)
        self.centre = values.mean(0) if self.count else np.zeros(values.shape[1])
        self.unit = values.std(0) + 1e-12 if unit is None else np.full(values.shape[1], unit)
        self.points = points if flying is None else np.concatenate([points, flying])
        self.tables = [
            _matern(t * math.exp(-scale))[0] for t, scale in zip(self.distances, self.parameters, strict=False)
        ]
        covariance = self._covariance(self.points, self.points)
        covariance.flat[:: len(self.points) + 1] += math.exp(self.parameters[-2]) + JITTER
        self.factor: np.ndarray
        self.factor, failed = dpotrf(covariance, lower=1) if len(self.points) else (covariance, 0)
        if failed:
            raise np.linalg.LinAlgError("the covariance is not positive definite")
        own = self.factor[: self.count, : self.count]  # the factor of the first points alone
        self.weights = dpotrs(own, (values - self.centre) / self.unit, lower=1)[0] if self.count else values

    def predict(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each output at each point, without noise: one row per point."""
        across = self._covariance(self.points, points)
        known = dtrtrs(self.factor, across, lower=1)[0] if len(self.points) else across
        prior = math.exp(self.parameters[-3]) * (1.0 + math.exp(self.parameters[-1]))
        variance = np.maximum(prior - np.einsum("ij,ij->j", known, known), 1e-10)
        return across[: self.count].T @ self.weights * self.unit + self.centre, np.sqrt(variance)[:, None] * self.unit

    def _covariance(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        rows, hots = _look_up_rows(self.tables, one), _encode_one_hot(self.tables, other)
        product = _multiply_axes(rows, hots)
        product += np.hstack(rows) @ np.hstack(hots).T * (math.exp(self.parameters[-1]) / len(self.tables))
        product *= math.exp(self.parameters[-3])
        return product

    def _loss(self, parameters: np.ndarray, points: np.ndarray, values: np.ndarray) -> tuple[float, np.ndarray]:
        """The negative log posterior of the parameters, mean over the outputs, up to a constant, and its gradient."""
        (n, outputs), d = values.shape, len(self.distances)
        scale, noise, share = np.exp(parameters[-3:])
        both = [_matern(t * math.exp(-length)) for t, length in zip(self.distances, parameters, strict=False)]
        tables, hots = [k for k, _ in both], _encode_one_hot(self.distances, points)
        rows, every = _look_up_rows(tables, points), np.hstack(hots)
        product = _multiply_axes(rows, hots)
        mean = np.hstack(rows) @ every.T / d
        clean = scale * (product + share * mean)
        covariance = clean.copy()
        covariance.flat[:: n + 1] += noise + JITTER
        factor, failed = dpotrf(covariance, lower=1)
        if failed:
            return 1e10, np.zeros_like(parameters)
        weights = dpotrs(factor, values, lower=1)[0]
        outer = dpotri(factor, lower=1)[0]
        outer += np.tril(outer, -1).T
        outer -= weights @ weights.T / outputs
        # Sums over pairs of points become sums over pairs of values first: tables are small.
        joint, apart = (outer * product) @ every, outer @ every
        gradient, at = np.empty_like(parameters), 0
        for i, ((k, slope), hot) in enumerate(zip(both, hots, strict=True)):
            own = slice(at, at + len(k))
            at += len(k)
            interacting = np.vdot(hot.T @ joint[:, own], slope / np.maximum(k, 1e-12))
            gradient[i] = scale * (interacting + share / d * np.vdot(hot.T @ apart[:, own], slope))
        gradient[-3:] = np.vdot(outer, clean), noise * np.trace(outer), scale * share * np.vdot(outer, mean)
        away = (parameters - self.mean) / self.spread
        loss = 0.5 * np.vdot(values, weights) / outputs + np.log(np.diagonal(factor)).sum() + 0.5 * away @ away
        return loss, 0.5 * gradient + away / self.spread


def _multiply_axes(rows: list[np.ndarray], hots: list[np.ndarray]) -> np.ndarray:
    return functools.reduce(operator.imul, (row @ hot.T for row, hot in zip(rows, hots, strict=True)))


def _look_up_rows(tables: list[np.ndarray], points: np.ndarray) -> list[np.ndarray]:
    """For each axis the table's rows of these points."""
    return [table[points[:, i]] for i, table in enumerate(tables)]


def _encode_one_hot(tables: list[np.ndarray], points: np.ndarray) -> list[np.ndarray]:
    """For each axis one row per point, 1 at its value and 0 elsewhere."""
    return [np.eye(len(table))[points[:, i]] for i, table in enumerate(tables)]


def _matern(distance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Matern 5/2 of a distance in length scales, and its derivative by the logarithm of the length scale."""
    a = ROOT5 * distance
    decay = np.exp(-a)
    return (1.0 + a + a * a / 3.0) * decay, a * a * (1.0 + a) / 3.0 * decay
