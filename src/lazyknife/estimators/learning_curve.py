"""The learning curve: mean widths of fits to blocks of the rows, and what more rows would bring.

Four blocks give four fits each to one, two and three quarters of the n rows. Log widths of fits to
m rows have the mean

    a + log(p + (1 − p)(m/m₁)^−b),    p in [0, 1] the share of a floor, b a rate of decay.

Every p and b of a grid counts by how well it explains the three means, whatever a is. If the rows
of a fit move its log width by a sum of small terms of variance V, fits to m rows have the variance
V/m, which fits that share rows show in part: of those to s of four blocks (4 − s)/3. All three
means are off by the same sum over the n rows, of variance V/n; with N rows it counts n/N. Where
only some rows are left out, widths vary as if there were no others. Besides every fit has an error
of its own, from what it chose and which rows it predicts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from ..choosing.rows import MANY, Leaving
from ..data.checks import check_reasonable
from ..data.rows import finite_numbers
from ..records import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Places = NDArray[np.intp]
BLOCKS, PREDICTED = 4, 500  # of the rows, and rows that each fit predicts
FEWEST, MOST_PLANNED = 10, 1e9  # rows of a block, and rows that a plan asks for
FLOORS, DECAYS = np.linspace(0.0, 1.0, 41), (0.25, 0.5, 1.0, 2.0)  # p and b
OWN = 0.04  # standard deviation of a fit's own error of its log width
CHANGE = 0.1  # the same where more rows are many, of which a part makes the choices
FREEDOM = 5  # degrees of freedom of the variances
SHARE = 0.5  # of V, in what the means of the fits differ by
ENDS = (0.1, 0.5, 0.9)  # quantiles that are the lowest, the middle and the highest guess
STEPS = (np.arange(25) + 0.5) / 25


@dataclass(frozen=True, eq=False, repr=False)
class LearningCurve:
    """Mean widths of intervals by the number of rows, and what more rows would bring.

    Attributes
    ----------
    alpha
        The level of the intervals.
    sizes
        Numbers of rows, shape (k,).
    widths
        Mean widths of the fits with so many rows, shape (k, fits).
    wanted
        The width that was asked for, or None.

    """

    alpha: float
    sizes: Places
    widths: Array
    wanted: float | None = None

    def width(self, rows: ArrayLike) -> Array:
        """Widths with so many rows: the lowest, the middle and the highest guess, shape (..., 3).

        Quantiles at .1, .5 and .9 of the mean width of a fit, over curves with and without a
        floor that explain the fits, and over the differences between fits.
        """
        size = finite_numbers(rows, "rows")
        if (size < 1).any():
            raise ValueError(f"rows={rows!r}: give numbers of at least 1")
        middles, shares, variance = self._curves(size.reshape(-1))
        known, every = self.sizes[-1] * BLOCKS / (BLOCKS - 1), size.reshape(-1)
        left = np.array([Leaving.choosing(int(rows)).rows for rows in every])
        parts = (1 / known - 1 / every).clip(min=0.0) + (1 / left - 1 / every)
        changes = CHANGE * ((every > MANY) & (known <= MANY))
        spread = np.sqrt(variance * parts + OWN**2 + changes**2)
        guesses = middles[:, :, None] + spread[:, None] * student.ppf(STEPS, FREEDOM)
        guesses = guesses.swapaxes(0, 1).reshape(len(every), -1)
        order = guesses.argsort(axis=1)
        reached = shares.repeat(len(STEPS))[order].cumsum(axis=1) / len(STEPS)
        found = [
            np.take_along_axis(guesses, order, axis=1)[
                np.arange(len(every)), np.minimum((reached < end).sum(axis=1), order.shape[1] - 1)
            ]
            for end in ENDS
        ]
        ends: Array = np.exp(np.stack(found, axis=-1)).reshape(*size.shape, len(ENDS))
        return ends

    def _curves(self, at: Array) -> tuple[Array, Array, float]:
        """Log widths of each curve at some sizes, (curves, sizes), shares of curves, and V."""
        logs, sizes = (
            np.log(self.widths.clip(min=np.finfo(float).tiny)),
            self.sizes.astype(np.float64),
        )
        means, fits = logs.mean(axis=1), logs.shape[1]
        shown = (BLOCKS - 1 - np.arange(len(sizes))) / (BLOCKS - 1) if fits > 1 else 1.0
        variance = float((logs.var(axis=1, ddof=1) * sizes / shown).mean())
        floor, decay = (each.reshape(-1, 1) for each in np.meshgrid(FLOORS, DECAYS))

        def shape(size: Array) -> Array:
            found: Array = np.log(floor + (1 - floor) * (size / sizes[0]) ** -decay)
            return found

        weights = 1 / (OWN**2 + SHARE * variance / sizes)
        left = means - shape(sizes)
        levels = (left * weights).sum(axis=1, keepdims=True) / weights.sum()
        misfit = fits * ((left - levels) ** 2 * weights).sum(axis=1)
        shares = (1 + misfit / FREEDOM) ** (-(FREEDOM + 1) / 2)
        return levels + shape(at), shares / shares.sum(), variance

    def rows(self, width: float) -> Array:
        """Rows for a mean width: the lowest, the middle and the highest guess, shape (3,).

        At least those of the smallest fits; infinite where no number of rows is enough.
        """
        sizes = np.geomspace(self.sizes[0], MOST_PLANNED, 400)
        reached = self.width(sizes) <= check_reasonable("width", width)
        return np.where(reached.any(axis=0), sizes[reached.argmax(axis=0)], np.inf)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the widths of the fits and the range of the curves."""
        from ..plots import plot_learning_curve

        return plot_learning_curve(self, ax)

    def __repr__(self) -> str:
        shown = zip(self.sizes, self.widths.mean(axis=1), strict=True)
        lines = [f"Mean width of intervals at alpha = {self.alpha:g}:"]
        lines += [f"{size:9,} rows  {width:.4g}" for size, width in shown]
        if self.wanted is not None:
            low, middle, high = self.rows(self.wanted)
            known = np.isfinite(middle)
            about = f"about {_rounded(middle)} rows" if known else "never, by the middle curve"
            end = f" to {_rounded(high)}" if np.isfinite(high) else " or more, perhaps never"
            found = f"{about} ({_rounded(low)}{end})" if np.isfinite(low) else "never"
            lines.append(f"Width {self.wanted:g}: {found}.")
        return "\n".join(lines)


def _rounded(rows: float) -> str:
    """A number of rows with two digits."""
    return f"{float(f'{rows:.2g}'):,.0f}"


def curve_of(
    mean_width: Callable[[Places, Places], float], n: int, alpha: float, wanted: float | None
) -> LearningCurve:
    """The curve of n rows, from the mean width of a fit to some rows that predicts others."""
    blocks = np.array_split(np.random.default_rng(0).permutation(n), BLOCKS)
    widths = np.empty((BLOCKS - 1, BLOCKS))
    for size, first in np.ndindex(*widths.shape):
        turned = blocks[first:] + blocks[:first]
        inside, outside = np.concatenate(turned[: size + 1]), np.concatenate(turned[size + 1 :])
        widths[size, first] = mean_width(np.sort(inside), np.sort(outside[:PREDICTED]))
    sizes = np.array([(k + 1) * n // BLOCKS for k in range(BLOCKS - 1)])
    return LearningCurve(alpha, sizes, widths, wanted)
