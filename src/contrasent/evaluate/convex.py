"""Logistic regression to its optimum, for many training subsets and L2 weights at a time.

The loss is convex, so there is one answer and nothing to seed. All fits share the feature matrix:
one matrix product gives the scores of every fit, and a mask selects the rows of each. Steps
are those of the fixed upper bound of the Hessian (Böhning and Lindsay, 1988), which is diagonal in
the features' principal axes, with Nesterov's momentum restarted when it points uphill (O'Donoghue
and Candès, 2015).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contrasent.evaluate.folds import Rows

Matrix = NDArray[np.float32]

BLOCK = 3_000_000
"""Scores held at once: rows times fits times classes."""

ROUNDS = 500
TOLERANCE = 1e-6
"""A fit is done when the bound's estimate of its distance from the optimum is below this."""


class Logistic:
    """Fits on subsets of one feature matrix.

    Features are centred, and scaled by one number so that their mean variance is 1: an L2 weight
    then means the same for vectors of any length.

    ``features``: (n, d). ``labels``: (n,) classes from 0.
    """

    def __init__(
        self, features: NDArray[np.floating], labels: NDArray[np.int64], classes: int
    ) -> None:
        x = np.asarray(features, dtype=np.float64)
        self.mean = x.mean(axis=0)
        x = x - self.mean
        self.scale = float(np.sqrt((x**2).mean())) or 1.0
        x /= self.scale
        values, self.axes = np.linalg.eigh(x.T @ x / len(x))
        self.curvature = np.append(np.maximum(values, 0.0), 1.0)
        self.rows = _with_ones(x @ self.axes)
        # Two classes need one column.
        self.columns = 1 if classes == 2 else classes
        self.target = _targets(labels, self.columns)

    def fit(self, subsets: Sequence[Rows], penalties: Sequence[float]) -> Matrix:
        """Minimise mean cross-entropy + penalty / 2 * ||weights||^2, the bias free of penalty."""
        size = max(1, BLOCK // (len(self.rows) * self.columns))
        parts = [
            self._fit(subsets[i : i + size], np.asarray(penalties[i : i + size]))
            for i in range(0, len(subsets), size)
        ]
        return np.concatenate(parts)

    def predict(self, weights: Matrix, features: NDArray[np.floating]) -> NDArray[np.int64]:
        """(n,) classes of (n, d) features under one fit's weights (d + 1, c).

        ``features``: (n, d), any.
        """
        x = (np.asarray(features, dtype=np.float64) - self.mean) / self.scale
        return _decide(_with_ones(x @ self.axes) @ weights)

    def predict_rows(self, weights: Matrix, rows: Rows) -> NDArray[np.int64]:
        """(m,) classes of rows of the feature matrix under one fit's weights.

        ``rows``: (m,) of the feature matrix.
        """
        return _decide(self.rows[rows] @ weights)

    def _fit(self, subsets: Sequence[Rows], penalties: NDArray[np.float64]) -> Matrix:
        n, width = self.rows.shape
        share = np.zeros((n, len(subsets)), dtype=np.float32)
        for i, subset in enumerate(subsets):
            share[subset, i] = 1 / len(subset)
        ridge = np.tile(penalties[:, None], width)
        ridge[:, -1] = 0  # the bias
        bound = (0.25 if self.columns == 1 else 0.5) * n * share.max(axis=0)[:, None]
        pace = (1 / (bound * self.curvature + ridge + 1e-12)).astype(np.float32)[:, :, None]
        l2 = ridge.astype(np.float32)[:, :, None]
        result = np.zeros((len(subsets), width, self.columns), dtype=np.float32)
        going = np.arange(len(subsets))
        here = ahead = result.copy()
        momentum = np.ones(len(subsets))
        for _ in range(ROUNDS):
            gradient = self._gradient(ahead, share[:, going]) + l2[going] * ahead
            step = pace[going] * gradient
            new = ahead - step
            left = np.einsum("fdc,fdc->f", step, gradient)
            moved = new - here
            uphill = np.einsum("fdc,fdc->f", gradient, moved) > 0
            following = np.where(uphill, 1.0, (1 + np.sqrt(1 + 4 * momentum**2)) / 2)
            push = np.where(uphill, 0.0, (momentum - 1) / following).astype(np.float32)
            ahead, here, momentum = new + push[:, None, None] * moved, new, following
            done = left < TOLERANCE
            if done.any():
                result[going[done]] = here[done]
                stay = ~done
                going, here, ahead, momentum = going[stay], here[stay], ahead[stay], momentum[stay]
                if not len(going):
                    return result
        result[going] = here
        return result

    def _gradient(self, weights: Matrix, share: Matrix) -> Matrix:
        fits, width, columns = weights.shape
        scores = self.rows @ weights.transpose(1, 0, 2).reshape(width, -1)
        scores = scores.reshape(len(self.rows), fits, columns)
        if columns == 1:
            np.clip(scores, -60, 60, out=scores)
            scores = 1 / (1 + np.exp(-scores))
        else:
            scores -= scores.max(axis=2, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=2, keepdims=True)
        scores -= self.target[:, None, :]
        scores *= share[:, :, None]
        gradient: Matrix = self.rows.T @ scores.reshape(len(self.rows), -1)
        by_fit: Matrix = gradient.reshape(width, fits, columns).transpose(1, 0, 2)
        return by_fit


def _with_ones(x: NDArray[np.float64]) -> Matrix:
    rows: Matrix = np.concatenate([x, np.ones((len(x), 1))], axis=1).astype(np.float32)
    return rows


def _targets(labels: NDArray[np.int64], columns: int) -> Matrix:
    if columns == 1:
        return labels[:, None].astype(np.float32)
    target: Matrix = (labels[:, None] == np.arange(columns)).astype(np.float32)
    return target


def _decide(scores: Matrix) -> NDArray[np.int64]:
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0).astype(np.int64)
    classes: NDArray[np.int64] = np.argmax(scores, axis=1)
    return classes
