"""What users get of new rows, and how it prints: intervals, boxes, and predictive distributions.

Model j gives the value f_{−j}(x) + σ_{−j}(x)·z_j, where z_j is the error of the row that it leaves
out, over its width there. The values of all models, sorted, are the predictive distribution at x:
what is known of y beyond one interval. Its quantile at 1 − α is the upper limit at level α, its
quantile at α the lower one: each of them has the guarantee of one side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .certificate import Certificate
from .data.checks import check_choice, check_fraction, check_positive_int
from .data.rows import finite_numbers, make_frame, stack
from .intervals.order import mass_largest, mass_smallest
from .records import Array, Side, to_array
from .sentences import rounded_down

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUMBERS = ("point", "lower", "upper")
SHOWN = 5  # rows that are printed
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of distributions in frames
DRAWN = (0.02, 0.1, 0.5)  # levels of nested intervals


@dataclass(frozen=True, eq=False, repr=False)
class Intervals:
    """Prediction intervals for m rows, at one level or several.

    ``lower, upper = result`` gives the two ends, ``result[2:10]`` or ``result[mask]`` the intervals
    of some rows, ``len(result)`` the number of rows and ``np.asarray(result)`` the ends of
    ``to_numpy``. ``point``, ``lower`` and ``upper`` are numpy arrays, or tensors on the device of
    the rows if the rows were a tensor.

    Attributes
    ----------
    point
        Point predictions, shape (m,). An interval need not contain its point prediction: with more
        than 1,000 rows its middle follows quantiles of errors, the point prediction their mean.
    lower, upper
        Ends of the intervals, shape (m,), or (m, levels) when several levels were asked for.
        They are −inf and inf if there are too few training rows for the level, and for a row at
        which rounding might decide the shape of the interval, which hardly ever happens.
    alpha
        The level, or the tuple of levels.
    index, backend
        The row labels of the caller's frame, and its library, such as ``"polars"``, if it was one.
    certificate
        The coverage guarantee, or a tuple of them, one for each level; None where none is known.
    side
        ``"both"``; or ``"upper"`` or ``"lower"``, where only this end was asked for.
    name
        The name of the y that models were fitted to, if it had one, for plots and reports.

    """

    point: Any
    lower: Any
    upper: Any
    alpha: float | tuple[float, ...]
    index: Any = None
    backend: str | None = None
    certificate: Certificate | tuple[Certificate, ...] | None = None
    side: Side = "both"
    name: str | None = None

    @classmethod
    def concat(cls, parts: Iterable[Intervals]) -> Intervals:
        """Join intervals of the same levels, such as those of a stream, in their order.

        Row labels, the kind of frame and the certificate are kept where all parts have them, and
        the last two where they agree.
        """
        found = list(parts)
        if not found:
            raise ValueError("parts is empty: give at least one Intervals")
        if any(not isinstance(part, Intervals) for part in found):
            raise TypeError("parts must contain Intervals only")
        levels = list(dict.fromkeys(part.alpha for part in found))
        if len(levels) > 1:
            raise ValueError(
                f"parts have different levels, alpha={levels}: join those of one level"
            )
        if len(sides := {part.side for part in found}) > 1:
            raise ValueError(f"parts have different sides, {sorted(sides)}: join those of one side")
        first, labels = found[0], [part.index for part in found]
        labelled = all(index is not None for index in labels)
        agree = all(part.certificate == first.certificate for part in found)
        return replace(
            first,
            **{end: stack([getattr(part, end) for part in found]) for end in NUMBERS},
            index=labels[0].append(labels[1:]) if labelled else None,
            backend=first.backend if len({part.backend for part in found}) == 1 else None,
            certificate=first.certificate if agree else None,
        )

    @property
    def width(self) -> Any:
        """Upper minus lower end; 0 where the interval is empty (alpha above one half only)."""
        with np.errstate(over="ignore"):  # then the width is infinite
            return (self.upper - self.lower).clip(min=0.0)

    def covers(self, y: ArrayLike | Tensor) -> NDArray[np.bool_]:
        """Whether each interval contains the true y; an array of the shape of ``lower``."""
        truth, (point, lower, upper) = finite_numbers(y, "y"), self._arrays()
        if truth.shape != point.shape:
            raise ValueError(
                f"y has shape {truth.shape}, but there are {len(point)} intervals: "
                f"pass y with shape ({len(point)},)"
            )
        if lower.ndim == 2:
            truth = truth[:, None]
        return (lower <= truth) & (truth <= upper)

    def to_numpy(self) -> Array:
        """Lower and upper ends, shape (m, 2), or (m, 2, levels)."""
        return np.stack(self._arrays()[1:], axis=1)

    def to_frame(self) -> Any:
        """Return a frame of the caller's library, with the caller's row labels.

        Its columns are point, lower, upper and width; with several levels lower_0.1, upper_0.1,
        width_0.1 and so on. Rows that were no frame give a pandas frame.
        """
        return make_frame(self._columns(), self.backend, self.index)

    def _columns(self) -> dict[str, Array]:
        arrays = self.with_arrays()
        ends = {"lower": arrays.lower, "upper": arrays.upper, "width": arrays.width}
        if not isinstance(arrays.alpha, tuple):
            return {"point": arrays.point, **ends}
        return {"point": arrays.point} | {
            f"{name}_{float(alpha)!r}": values[:, k]  # digits that tell any two levels apart
            for k, alpha in enumerate(arrays.alpha)
            for name, values in ends.items()
        }

    def with_arrays(self) -> Intervals:
        """Return the same intervals in numpy arrays."""
        point, lower, upper = self._arrays()
        return replace(self, point=point, lower=lower, upper=upper)

    def plot(self, y: ArrayLike | Tensor | None = None, ax: Axes | None = None) -> Axes:
        """Draw the intervals, sorted by prediction, with the true values if they are known.

        Parameters
        ----------
        y
            True values, shape (m,).
        ax
            Where to draw; by default the current axes.

        """
        from .plots import plot_intervals
        from .plots.figures import literal

        return plot_intervals(self, y, ax, label=literal(self.name_of(y)))

    def name_of(self, y: Any = None) -> str:
        """The name of true values, or that of the y that models were fitted to."""
        return str(getattr(y, "name", None) or self.name or "y")

    def to_html(self, path: str | Path | None = None, y: ArrayLike | Tensor | None = None) -> str:
        """Return a self-contained HTML report of the intervals, and write it if a path is given.

        ``model.report(X, y, path)`` says more. It needs the extra ``lazyknife[cli]``.

        Parameters
        ----------
        path
            A file to write, ending in .html.
        y
            True values, shape (m,), for the coverage of these rows.

        """
        from .report import page_of

        return page_of(self, y, path)

    def _arrays(self) -> tuple[Array, Array, Array]:
        return to_array(self.point), to_array(self.lower), to_array(self.upper)

    def __len__(self) -> int:
        return len(self.point)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the two ends, not over the rows."""
        return iter((self.lower, self.upper))

    def __getitem__(self, rows: Any) -> Intervals:
        """Return the intervals of some rows: a number, a slice, a mask or a list of numbers."""
        chosen = _positions(rows, len(self))
        kept = {end: getattr(self, end)[chosen] for end in NUMBERS}
        return replace(self, **kept, index=None if self.index is None else self.index[chosen])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.to_numpy().astype(dtype or np.float64)

    def __eq__(self, other: object) -> bool:
        """Whether levels, numbers, row labels and certificates are equal, in any container."""
        if not isinstance(other, Intervals):
            return NotImplemented
        ends = zip(self._arrays(), other._arrays(), strict=True)
        return (
            self.alpha == other.alpha
            and self.certificate == other.certificate
            and all(np.array_equal(mine, theirs) for mine, theirs in ends)
            and (self.index is None) == (other.index is None)
            and (self.index is None or bool(self.index.equals(other.index)))
        )

    def __repr__(self) -> str:
        return "\n".join([self._headline(), *_text_lines(self)])

    def _repr_html_(self) -> str:
        names, *rows = [[escape(cell) for cell in row] for row in _cells(self)]
        head = "".join(f"<th>{name}</th>" for name in names)
        lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        notes = "".join(f"<div>{line}</div>" for line in _rest(self))
        return (
            f"<div>{escape(self._headline())}</div>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"
        )

    def _headline(self) -> str:
        count = len(self)
        one = "interval" if self.side == "both" else f"{self.side} limit"
        parts = [f"{count:,} {one if count == 1 else one + 's'}"]
        parts[0] += f": alpha = {_listed(self.alpha, '{!r}')}"
        if count and self.side == "both":
            means = np.atleast_1d(to_array(self.width).mean(axis=0))
            parts.append(f"mean width {_listed(tuple(means), '{:.5g}')}")
        if self.certificate is not None:
            every = self.certificate if isinstance(self.certificate, tuple) else (self.certificate,)
            shown = tuple(rounded_down(c.coverage) if c.coverage else "none" for c in every)
            parts.append(f"guaranteed coverage {_listed(shown, '{}')}")
        return ", ".join(parts)


@dataclass(frozen=True, eq=False, repr=False)
class Boxes:
    """Boxes for m rows of several outputs: intervals that hold together.

    Attributes
    ----------
    point
        Point predictions, shape (m, outputs).
    lower, upper
        Ends of the boxes, shape (m, outputs); tensors if the rows were a tensor.
    alpha
        The level.
    index, backend
        The row labels of the caller's frame, and its library, if it was one.
    certificate
        The coverage guarantee, for all outputs of a row together.

    """

    point: Any
    lower: Any
    upper: Any
    alpha: float
    index: Any = None
    backend: str | None = None
    certificate: Certificate | None = None

    @property
    def width(self) -> Any:
        """Upper minus lower ends, shape (m, outputs)."""
        return self.upper - self.lower

    def covers(self, y: ArrayLike | Tensor) -> NDArray[np.bool_]:
        """Whether each box contains all outputs of the true y, shape (m,)."""
        truth, shape = finite_numbers(y, "y"), tuple(self.point.shape)
        if truth.shape != shape:
            raise ValueError(f"y has shape {truth.shape}: pass y with shape {shape}")
        lower, upper = to_array(self.lower), to_array(self.upper)
        inside: NDArray[np.bool_] = ((lower <= truth) & (truth <= upper)).prod(axis=1, dtype=bool)
        return inside

    def to_frame(self) -> Any:
        """Return a frame of the caller's library with point_0, lower_0, upper_0, point_1 etc."""
        columns = {
            f"{name}_{k}": to_array(getattr(self, name))[:, k]
            for k in range(self.point.shape[1])
            for name in NUMBERS
        }
        return make_frame(columns, self.backend, self.index)

    def __len__(self) -> int:
        return len(self.point)

    def __repr__(self) -> str:
        means = ", ".join(f"{width:.5g}" for width in to_array(self.width).mean(axis=0))
        shown = f"{len(self):,} boxes: alpha = {self.alpha!r}, mean widths {means}"
        if self.certificate is None:
            return shown
        coverage = self.certificate.coverage
        return f"{shown}, guaranteed coverage {rounded_down(coverage) if coverage else 'none'}"


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

    def to_frame(self, q: Sequence[float] = QUANTILES) -> Any:
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
        return "\n".join([f"{len(self):,} predictive distributions", *_text_lines(self)])

    @property
    def _finite(self) -> tuple[Array, Array]:
        """Shares of the finite values, NaN where there are none, and these; 0 for others."""
        finite = np.isfinite(self.values) & np.isfinite(self.lows)
        masses = np.where(finite, self.masses, 0.0)
        with np.errstate(invalid="ignore"):
            return masses / masses.sum(axis=1, keepdims=True), np.where(finite, self.values, 0.0)

    def _columns(self, q: Sequence[float] = QUANTILES) -> dict[str, Array]:
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


def _text_lines(result: Intervals | Distribution) -> list[str]:
    cells = _cells(result)
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    padded = ([cell.rjust(k) for cell, k in zip(row, sizes, strict=True)] for row in cells)
    return [*map("  ".join, padded), *_rest(result)]


def _cells(result: Intervals | Distribution) -> list[list[str]]:
    """The names of the columns, and the first rows."""
    first = result[:SHOWN]
    columns, labels = first._columns(), range(len(first)) if first.index is None else first.index
    rows = zip(labels, *columns.values(), strict=True)
    return [["", *columns], *([str(a), *(f"{x:.5g}" for x in row)] for a, *row in rows)]


def _rest(result: Intervals | Distribution) -> list[str]:
    """A line on the rows that are not shown, if there are any."""
    more = len(result) - SHOWN
    return [f"… and {more:,} more {'row' if more == 1 else 'rows'}"] if more > 0 else []


def _listed(values: Any, form: str) -> str:
    """One value, or a tuple of them separated by commas."""
    return ", ".join(map(form.format, values if isinstance(values, tuple) else (values,)))


def _positions(rows: Any, count: int) -> NDArray[np.intp]:
    """Return the numbers of the rows that an index asks for, out of so many."""
    if isinstance(rows, Integral) and not isinstance(rows, bool):
        return np.arange(count)[[int(rows)]]
    if isinstance(rows, slice):
        return np.arange(count)[rows]
    asked = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
    numbers = asked.dtype.kind in "biu" or not asked.size
    if isinstance(rows, tuple) or asked.ndim != 1 or not numbers:
        raise TypeError(
            f"cannot index intervals by {rows!r}: give a row number, a slice, a boolean mask or a "
            "list of row numbers; the ends are result.lower and result.upper"
        )
    chosen: NDArray[np.intp] = np.arange(count)[asked if asked.size else asked.astype(np.intp)]
    return chosen
