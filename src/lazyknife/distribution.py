"""Predictive distributions: what is known of y at new rows, beyond one interval.

Model j gives the value f_{−j}(x) + σ_{−j}(x)·z_j, where z_j is the error of the row that it leaves
out, over its width there. The values of all models, sorted, are the distribution at x. Its quantile
at 1 − α is the upper limit at level α, its quantile at α the lower one: each of them has the
guarantee of one side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from .certificate import Certificate
from .data.checks import check_choice, check_fraction, check_positive_int
from .data.rows import finite_numbers, make_frame
from .intervals.order import mass_largest, mass_smallest
from .records import Array, Side
from .results import Intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = (0.05, 0.25, 0.5, 0.75, 0.95)  # quantiles in frames and pictures
SHOWN_ROWS = 5
DRAWN = (0.02, 0.1, 0.5)  # levels of nested intervals


@dataclass(frozen=True, eq=False, repr=False)
class Distribution:
    """Predictive distributions of y at m rows.

    Attributes
    ----------
    point
        Point predictions, those of ``predict``, shape (m,).
    lows, values
        Where the distributions have mass, rounded down and up, in order, shape (m, k). Infinite
        ones, of models of which rounding leaves nothing known, have no part in means, scores and
        draws.
    masses
        How much, shape (m, k), and
    open
        how much lies beyond all values, on either side, shape (m,): that of the new row itself.
    index, backend
        Row labels and library of the caller's frame.

    """

    point: Array
    lows: Array
    values: Array
    masses: Array
    open: Array
    index: Any = None
    backend: str | None = None
    certified: Callable[[float, Side], Certificate] | None = None

    def quantile(self, q: float | Sequence[float]) -> Array:
        """Quantiles, shape (m,), or (m, len(q)) for a list.

        Above one half they are upper limits, below it lower ones, and infinite where there are too
        few rows for that.
        """
        asked = [q] if np.ndim(q) == 0 else list(q)  # type: ignore[arg-type]
        levels = [check_fraction("q", each) for each in asked]
        if not levels:
            raise ValueError(f"q={q!r}: give at least one level")
        own, new = torch.from_numpy(self.masses), torch.from_numpy(self.open)
        above, below = torch.from_numpy(self.values), torch.from_numpy(self.lows)
        upper = mass_largest(above, own, new, [1 - level for level in levels]).numpy()
        lower = mass_smallest(below, own, new, levels).numpy()
        level = np.array(levels)
        with np.errstate(invalid="ignore"):
            known = np.isfinite(lower) & np.isfinite(upper)
            halves = np.where(known, (lower + upper) / 2, self.point[:, None])
        found: Array = np.where(level > 0.5, upper, np.where(level < 0.5, lower, halves))
        return found[:, 0] if np.ndim(q) == 0 else found

    def cdf(self, y: ArrayLike) -> Array:
        """P(Y ≤ y) at each row, for a y for each of them or one for all, shape (m,)."""
        below, equal, total = self._around(y)
        found: Array = (below + (equal + self.open) / 2) / total
        return found

    def p_value(self, y: ArrayLike, side: Side = "both") -> Array:
        """P-values of values of y, shape (m,): the true y has one of at most p with probability p.

        ``side="upper"`` is small where y is large, ``"lower"`` where it is small. As the bound of
        jackknife+ they are twice the share of models that exceed y. A private base adds to the
        probability what it adds to that of a miss.
        """
        check_choice("side", side, ("both", "upper", "lower"))
        below, equal, total = self._around(y)
        above = total - self.open - below - equal
        upper, lower = (
            np.minimum((2 * (part + equal) + self.open) / total, 1.0) for part in (above, below)
        )
        either = np.minimum(2 * np.minimum(upper, lower), 1.0)
        found: Array = {"both": either, "upper": upper, "lower": lower}[side]
        return found

    def crps(self, y: ArrayLike) -> Array:
        """Continuous ranked probability score of the true y at each row, shape (m,)."""
        truth, (shares, values) = self._truth(y), self._finite
        distance = (shares * np.abs(values - truth[:, None])).sum(axis=1)
        ranks = 2 * shares.cumsum(axis=1) - shares - 1
        found: Array = distance - (shares * ranks * values).sum(axis=1)
        return found

    def mean(self) -> Array:
        """Means, shape (m,)."""
        shares, values = self._finite
        found: Array = (shares * values).sum(axis=1)
        return found

    def var(self) -> Array:
        """Variances, shape (m,)."""
        shares, values = self._finite
        found: Array = (shares * (values - self.mean()[:, None]) ** 2).sum(axis=1)
        return found

    def sample(self, size: int = 1, random_state: Any = None) -> Array:
        """Draws of y, shape (m, size)."""
        check_positive_int("size", size)
        rng, (shares, values) = np.random.default_rng(random_state), self._finite
        steps = shares.cumsum(axis=1)
        uniform = rng.random((len(self), size)) * steps[:, -1:]  # in [0, 1): "right" skips mass 0
        rows = zip(steps, uniform, values, strict=True)
        found = [row[np.searchsorted(s, u, "right").clip(max=len(row) - 1)] for s, u, row in rows]
        return np.where(np.isnan(uniform), np.nan, np.reshape(found, uniform.shape))

    def certify(self, q: float) -> Certificate:
        """The guarantee of a quantile as a limit: of the upper one above one half, else lower."""
        if self.certified is None:
            raise ValueError("nothing is known of these distributions: predict them again")
        level = check_fraction("q", q)
        return self.certified(1 - level, "upper") if level > 0.5 else self.certified(level, "lower")

    def to_frame(self, q: Sequence[float] = SHOWN) -> Any:
        """Means and quantiles as a frame of the caller's library, with the caller's labels."""
        return make_frame(self._columns(q), self.backend, self.index)

    def plot(self, y: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
        """Draw nested intervals of 98, 90 and 50 %, sorted by prediction, and the true values."""
        from .plots import plot_band
        from .plots.figures import DOT, legend_on_top

        order = np.argsort(self.point, kind="stable")
        lower, upper = (
            self[order].quantile([abs(end - level / 2) for level in DRAWN]) for end in (0, 1)
        )
        nested, rows = Intervals(self.point[order], lower, upper, DRAWN), np.arange(len(order))
        drawn = plot_band(rows, nested, ax=ax)
        drawn.set_xlabel("rows, sorted by prediction")
        if y is not None:
            drawn.plot(rows, self._truth(y)[order], ".", color=DOT, ms=4, label="y")
            legend_on_top(drawn)
        return drawn

    def __len__(self) -> int:
        return len(self.point)

    def __getitem__(self, rows: Any) -> Distribution:
        """Return the distributions of some rows: a slice, a mask or a list of numbers."""
        chosen: NDArray[np.intp] = np.atleast_1d(np.arange(len(self))[rows])
        names = ("point", "lows", "values", "masses", "open")
        kept = {name: getattr(self, name)[chosen] for name in names}
        return replace(self, **kept, index=None if self.index is None else self.index[chosen])

    def __repr__(self) -> str:
        names = ["", *self._columns(SHOWN)]
        first = self[:SHOWN_ROWS]
        labels = range(len(first)) if self.index is None else first.index
        rows = zip(labels, *first._columns(SHOWN).values(), strict=True)
        cells = [names, *([str(a), *(f"{x:.5g}" for x in row)] for a, *row in rows)]
        sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
        count, more = len(self), len(self) - SHOWN_ROWS
        lines = ["  ".join(c.rjust(k) for c, k in zip(row, sizes, strict=True)) for row in cells]
        rest = [f"… and {more:,} more"] if more > 0 else []
        return "\n".join([f"{count:,} predictive distributions", *lines, *rest])

    @property
    def _finite(self) -> tuple[Array, Array]:
        """Shares of the finite values, NaN where there are none, and these; 0 for others."""
        finite = np.isfinite(self.values) & np.isfinite(self.lows)
        masses = np.where(finite, self.masses, 0.0)
        with np.errstate(invalid="ignore"):
            return masses / masses.sum(axis=1, keepdims=True), np.where(finite, self.values, 0.0)

    def _columns(self, q: Sequence[float]) -> dict[str, Array]:
        found = zip(q, self.quantile(list(q)).T, strict=True)
        return {"mean": self.mean(), **{f"q{float(level)!r}": each for level, each in found}}

    def _truth(self, y: ArrayLike) -> Array:
        found = finite_numbers(y, "y")
        if found.shape not in ((), (len(self),)):
            raise ValueError(
                f"y has shape {found.shape}: give one number, or one for each of {len(self)} rows"
            )
        return np.broadcast_to(found, (len(self),))

    def _around(self, y: ArrayLike) -> tuple[Array, Array, Array]:
        """Mass below y, mass at y, and all mass with that beyond, each (m,)."""
        truth = self._truth(y)[:, None]
        below = np.where(self.values < truth, self.masses, 0.0).sum(axis=1)
        tied = (self.lows <= truth) & (truth <= self.values)
        equal = np.where(tied, self.masses, 0.0).sum(axis=1)
        return below, equal, self.masses.sum(axis=1) + self.open
