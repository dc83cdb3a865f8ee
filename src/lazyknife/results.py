"""The record of prediction intervals, and how it prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from .data.rows import finite_numbers, make_frame
from .records import Array, Side, to_array
from .sentences import rounded_down

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUMBERS = ("point", "lower", "upper")
SHOWN = 5  # rows that are printed


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
    index
        The row labels of the caller's frame, if it had any.
    backend
        The library of the caller's frame, such as ``"polars"``; None if the rows were no frame.
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
            **{end: _join([getattr(part, end) for part in found]) for end in NUMBERS},
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
        """The numbers as columns of shape (m,), by the names that they have in a frame."""
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
        kept = {end: _take(getattr(self, end), chosen) for end in NUMBERS}
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
        cells = self._cells()
        sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
        padded = ([cell.rjust(k) for cell, k in zip(row, sizes, strict=True)] for row in cells)
        return "\n".join([self._headline(), *map("  ".join, padded), *self._rest()])

    def _repr_html_(self) -> str:
        names, *rows = [[escape(cell) for cell in row] for row in self._cells()]
        head = "".join(f"<th>{name}</th>" for name in names)
        lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        notes = "".join(f"<div>{line}</div>" for line in self._rest())
        return (
            f"<div>{escape(self._headline())}</div>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"
        )

    def _headline(self) -> str:
        """The number of rows, the levels, mean widths and what is guaranteed."""
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

    def _cells(self) -> list[list[str]]:
        """The names of the columns, and the first rows."""
        first = self[:SHOWN]
        columns, labels = first._columns(), range(len(first)) if self.index is None else first.index
        rows = zip(labels, *columns.values(), strict=True)
        return [["", *columns], *([str(a), *(f"{x:.5g}" for x in row)] for a, *row in rows)]

    def _rest(self) -> list[str]:
        """A line on the rows that are not shown, if there are any."""
        more = len(self) - SHOWN
        return [f"… and {more:,} more {'row' if more == 1 else 'rows'}"] if more > 0 else []


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
    index
        The row labels of the caller's frame, if it had any.
    backend
        The library of the caller's frame; None if the rows were no frame.
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


def _take(values: Any, rows: NDArray[np.intp]) -> Any:
    """Return rows of an array or a tensor."""
    if isinstance(values, Tensor):
        return values[torch.from_numpy(rows).to(values.device)]
    return values[rows]


def _join(parts: Sequence[Any]) -> Any:
    """Concatenate along the rows: tensors to a tensor, anything else to an array."""
    if all(isinstance(part, Tensor) for part in parts):
        return torch.cat(list(parts))
    return np.concatenate([to_array(part) for part in parts])
