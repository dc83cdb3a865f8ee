"""Privacy loss of DP-SGD: of one step on a grid, and of many steps by a Fourier transform.

One step of DP-SGD is the Gaussian mechanism on a Poisson sample. In units of the clipping norm its
output has the law (1 − q)·N(0, σ²) + q·N(1, σ²) with a row and N(0, σ²) without it; the privacy
loss is the logarithm of their ratio. It is put on a grid by "connect the dots" (Doroshenko, Ghazi,
Kamath, Kumar, Manurangsi, arXiv 2207.04380): the mass of a cell is divided between its two ends
such that its probability under both laws stays the same. The two laws on the grid are easier to
tell apart than the true ones, so every δ and ε below is an upper bound. The loss of T steps is a
sum of T independent losses, computed by a Fourier transform.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..records import Array

WIDEST_GRID = 0.05
MOST_CELLS = 2**18
MOST_POINTS = 2**22
# A normal law is cut off at so many standard deviations, a composed one at such a probability.
REACH = 10.0
TAIL = 1e-16
ROUNDING = 1e-15  # of a probability, in every step
LEAST_SHIFT = 1e-9  # smaller displacements, in units of the noise, and losses are rounding


@dataclass(frozen=True)
class Mixture:
    """A normal law around 0, or a mixture with one around a second centre."""

    sigma: float
    rate: float
    centres: tuple[float, ...]

    def log_density(self, x: Array) -> Array:
        return self._mix([-0.5 * ((x - centre) / self.sigma) ** 2 for centre in self.centres])

    def log_masses(self, x: Array) -> Array:
        """Log probabilities of the cells between the ordered points ``x``."""
        return self._mix([_log_masses((x - centre) / self.sigma) for centre in self.centres])

    def below(self, x: float, side: int = 1) -> float:
        """Probability below x, or above it with ``side=-1``."""
        from scipy.special import log_ndtr

        logs = [log_ndtr(np.array(side * (x - centre) / self.sigma)) for centre in self.centres]
        return float(np.exp(self._mix(logs)))

    def _mix(self, logs: list[Array]) -> Array:
        if len(logs) == 1:
            return logs[0]
        if self.rate == 1:
            return logs[1]
        return np.logaddexp(math.log1p(-self.rate) + logs[0], math.log(self.rate) + logs[1])


def _log_masses(z: Array) -> Array:
    """Log probabilities of a standard normal law between neighbouring ``z``."""
    from scipy.special import log_ndtr

    flipped = z[:-1] > 0  # so that the upper tail is as precise as the lower one
    low, high = np.where(flipped, -z[1:], z[:-1]), np.where(flipped, -z[:-1], z[1:])
    below, above = log_ndtr(low), log_ndtr(high)
    with np.errstate(divide="ignore", invalid="ignore"):
        masses = above + np.log(-np.expm1(below - above))
    return np.where(np.isneginf(above), -np.inf, masses)


def _removed(losses: Array, sigma: float, rate: float) -> Array:
    odds = (1 - rate) / rate
    with np.errstate(divide="ignore"):
        rest = np.log1p(np.maximum(-odds * np.expm1(-losses), -1.0)) if odds else 0.0
    return np.asarray(sigma**2 * (losses + rest) + 0.5)


def _added(losses: Array, sigma: float, rate: float) -> Array:
    return -_removed(-losses, sigma, rate)


def _replaced(losses: Array, sigma: float, rate: float) -> Array:
    odds = (1 - rate) / rate
    half = np.abs(losses) / 2  # x/σ² = l/2 + arsinh(odds·exp(1/2σ²)·sinh(l/2)), by logarithms
    with np.errstate(divide="ignore"):
        log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
        inside = np.log(odds) + 0.5 / sigma**2 + log_sinh
    arsinh = np.logaddexp(0.5 * np.logaddexp(0, 2 * inside), inside)
    return np.asarray(sigma**2 * np.sign(losses) * (half + arsinh))


class Relation(NamedTuple):
    """How neighbouring data sets differ: centres of the two laws, so that the loss rises with x.

    ``outputs`` finds x by its privacy loss, σ and q; −∞ below the least possible loss.
    """

    upper: tuple[float, ...]
    lower: tuple[float, ...]
    outputs: Callable[[Array, float, float], Array]


RELATIONS = {
    "remove": Relation((0.0, 1.0), (0.0,), _removed),
    "add": Relation((0.0,), (0.0, -1.0), _added),
    "replace": Relation((0.0, 1.0), (0.0, -1.0), _replaced),
}


@dataclass(frozen=True)
class Step:
    """One step's privacy loss on a grid: (first + k)·grid with ``probabilities[k]``."""

    grid: float
    first: int
    probabilities: Array
    infinite: float  # probability of an infinite loss
    deviation: float  # standard deviation of the loss


def discretise(sigma: float, rate: float, relation: str, fineness: float) -> Step | None:
    """Put one step's privacy loss on a grid; None if that takes too many points.

    ``fineness`` is the grid's width in standard deviations of the loss.
    """
    *centres, outputs = RELATIONS[relation]
    upper, lower = (Mixture(sigma, rate, each) for each in centres)
    x = np.linspace(-REACH * sigma, max(upper.centres) + REACH * sigma, 2001)
    logs = upper.log_density(x)
    loss = logs - lower.log_density(x)
    deviation = max(math.sqrt(np.cov(loss, aweights=np.exp(logs))), LEAST_SHIFT)
    grid = min(max(fineness * deviation, (loss[-1] - loss[0]) / MOST_CELLS), WIDEST_GRID)
    if (loss[-1] - loss[0]) / grid > MOST_POINTS:
        return None
    first = math.floor(loss[0] / grid)
    losses = np.arange(first, math.floor(loss[-1] / grid) + 3) * grid
    ends = outputs(losses, sigma, rate)
    logs = upper.log_masses(ends)
    # A share s of a cell's mass goes to its upper end. The cell's probability under the second law
    # stays the same if exp(−l)·(1 − s + s·exp(−grid)) is the ratio of its two probabilities.
    with np.errstate(invalid="ignore"):
        share = np.expm1(losses[:-1] + lower.log_masses(ends) - logs) / math.expm1(-grid)
    share = np.clip(np.nan_to_num(share, nan=1.0), 0.0, 1.0)
    mass = np.exp(logs)
    probabilities = np.append(mass * (1 - share), 0.0) + np.append(0.0, mass * share)
    probabilities[0] += upper.below(ends[0])
    return Step(grid, first, probabilities, upper.below(ends[-1], side=-1), deviation)


@dataclass(frozen=True)
class PrivacyLoss:
    """Privacy loss of a whole run, as far as it is above 0."""

    losses: Array  # points of the grid above 0, and infinity
    tail: Array  # probabilities of a finite loss of at least losses[j]
    discounted: Array  # expectations of exp(losses[j] − loss) over those losses
    infinite: float  # probability of an infinite loss

    def delta(self, epsilons: Array) -> Array:
        """δ(ε), the expectation of 1 − exp(ε − loss) over losses above ε."""
        j = np.searchsorted(self.losses, epsilons)
        decay = np.exp(epsilons - self.losses[j])
        return np.asarray(self.infinite + self.tail[j] - decay * self.discounted[j])

    def epsilon(self, delta: float) -> float:
        """Return the least ε ≥ 0 with δ(ε) ≤ δ."""
        enough = self.infinite + self.tail - self.discounted <= delta
        if not enough.any():
            return math.inf
        j = int(np.argmax(enough))  # ε lies between losses[j − 1] and losses[j]
        excess = self.infinite + self.tail[j] - delta
        if excess <= 0 or self.discounted[j] <= 0:
            return float(self.losses[j - 1]) if j else 0.0
        return max(0.0, float(self.losses[j] + math.log(excess / self.discounted[j])))


def compose(step: Step, steps: int) -> PrivacyLoss | None:
    """Privacy loss of independent equal steps; None if that takes too many points."""
    from scipy import fft, signal

    low, high = _window(step, steps)
    size = fft.next_fast_len(max(high - low + 1, len(step.probabilities)), real=True)
    if size > MOST_POINTS:
        return None
    whole = fft.irfft(_power(fft.rfft(step.probabilities, size), steps), size)
    law = np.maximum(np.roll(whole, -(low % size))[: high - low + 1], 0.0)
    losses = (steps * step.first + low + np.arange(len(law))) * step.grid
    falling = law[losses > 0][::-1]
    discounted = signal.lfilter([1.0], [1.0, -math.exp(-step.grid)], falling)
    # Losses above the window wrapped around to its lower end: they count as infinite.
    infinite = -math.expm1(steps * math.log1p(-step.infinite)) + TAIL + ROUNDING * steps
    return PrivacyLoss(
        np.append(losses[losses > 0], math.inf),
        np.append(np.cumsum(falling)[::-1], 0.0),
        np.append(discounted[::-1], 0.0),
        infinite,
    )


def _power(values: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """Integer power by repeated squaring, which is faster than numpy's."""
    result = np.ones_like(values)
    while exponent:
        if exponent % 2:
            result *= values
        values, exponent = values * values, exponent // 2
    return result


def _window(step: Step, steps: int) -> tuple[int, int]:
    """First and last place of the composed loss, but for ``TAIL`` on either side (Chernoff)."""
    places = np.arange(float(len(step.probabilities)))
    low, high = 0.0, float(places[-1]) * steps
    unit = step.grid / (step.deviation * math.sqrt(steps))
    for order in np.geomspace(min(0.1 * unit, 1 / places[-1]), 20 * unit, 10):
        room = math.log(1 / TAIL) / order
        high = min(high, room + steps * _log_mean(order, places, step.probabilities) / order)
        low = max(low, -room - steps * _log_mean(-order, places, step.probabilities) / order)
    return math.floor(low), math.ceil(high)


def _log_mean(order: float, places: Array, probabilities: Array) -> float:
    """Logarithm of the expectation of exp(order·place), or more where it underflows."""
    shift = max(order * float(places[-1]), 0.0)
    return shift + math.log(max(float(probabilities @ np.exp(order * places - shift)), 1e-300))
