"""Factors of widths by one model after another, row by row."""

from dataclasses import dataclass

import numpy as np

from lazyknife.choosing.shape import (
    AVERAGES,
    FARTHEST,
    MINIMUM_GAIN,
    PRIOR,
    SHIFT_GAIN,
    SHIFT_ROWS,
    SLOPES,
    TIE,
)
from reference import Array


@dataclass(frozen=True)
class OwnFactors:
    """One model: its rows, its errors and predictions there, and the scale of its features."""

    X: Array
    y: Array
    sizes: Array
    predicted: Array
    scale: Array

    def weights(self, k: int, x: Array) -> Array:
        gaps = (self.X - x) / self.scale * AVERAGES[k].scale / np.sqrt(self.X.shape[1])
        if AVERAGES[k].kind == "laplace":
            return np.exp(-np.abs(gaps).sum(axis=1))
        return np.exp(-np.square(gaps).sum(axis=1) / 2)

    def average(self, k: int, x: Array, skip: int | None = None) -> float:
        weights, mean = self.weights(k, x), self.sizes.mean()
        if skip is not None:
            weights[skip] = 0.0
        return float((PRIOR * mean + weights @ self.sizes) / (PRIOR + weights.sum()) / mean)

    def level(self, slope: float, prediction: float) -> float:
        level = (prediction - self.predicted.mean()) / self.y.std()
        return float(np.exp(slope * np.clip(level, -FARTHEST, FARTHEST)))

    def at(self, k: int, x: Array, prediction: float, skip: int | None = None) -> float:
        """Factor k of 1, the averages and the slopes."""
        if k == 0:
            return 1.0
        if k <= len(AVERAGES):
            return self.average(k - 1, x, skip)
        return self.level(SLOPES[k - len(AVERAGES) - 1], prediction)

    @property
    def chosen(self) -> int:
        best, chosen = np.inf, 0
        for k in range(1 + len(AVERAGES) + len(SLOPES)):
            own = [self.at(k, x, self.predicted[i], i) for i, x in enumerate(self.X)]
            value = np.mean(np.log(own)) + np.log(np.mean(self.sizes / own))
            value += MINIMUM_GAIN / len(self.y) if k else 0.0
            if value < best - TIE:
                best, chosen = value, k
        return chosen

    def shift(self, alpha: float) -> float:
        """The middle of the quantiles of signed errors over their widths, or 0."""
        k, n = self.chosen, len(self.y)
        factors = [self.at(k, x, self.predicted[i], i) for i, x in enumerate(self.X)]
        errors = np.sort(self.sizes * np.sign(self.y - self.predicted) / factors)
        rank = int(alpha / 2 * n)
        middle = float(errors[rank] + errors[-1 - rank]) / 2

        def score(c: float) -> float:
            sizes = np.sort(np.abs(errors - c))
            margin = sizes[int(np.ceil((1 - alpha) * n)) - 1]
            return float(2 * margin + 2 / alpha * np.maximum(sizes - margin, 0).mean())

        least = 1 - SHIFT_GAIN * max(1, SHIFT_ROWS / n)
        return middle if score(middle) < least * score(0.0) else 0.0


def names_in_order() -> list[str]:
    averages = [f"leverage × local average ({kind} {kind.scale:g})" for kind in AVERAGES]
    return ["leverage", *averages, *(f"leverage × level ({slope:+g})" for slope in SLOPES)]
