"""Questions about a fitted model: a check on its own rows, what each row does, more rows.

- *The check.* The share of training rows missed by the intervals of the other rows has as its mean
  exactly the probability of a miss with a row less (intervals/games.py has those intervals).
- *Influence.* Models without a row, and without two, say what the row does to the others.
- *The learning curve.* Models of blocks of the rows, which predict the other blocks, have the
  widths of smaller tables. Curves through them, with and without a floor, say what more rows would
  do: they differ by as much as nobody knows.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from ..dask import is_dask
from ..data.checks import check_level, check_positive_int, check_reasonable
from ..data.rows import backend_of, finite_numbers, is_stream, make_frame, row_labels, take
from ..intervals import kappa, rows_needed
from ..intervals.asked import some_models
from ..intervals.chosen import ChosenModels
from ..intervals.games import games, has_pairs, parts
from ..intervals.order import kth_largest
from ..intervals.outputs import OutputModels
from ..records import Array, to_array
from ..report import page_of
from .questions import answering, count_rows, label_columns, refuse_with_dask

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .base import IntervalRegressor

Places = NDArray[np.intp]
MOST_VALUES, BINS = 10, 5  # numbers with more distinct values are binned
NORMAL = 0.6745  # the median size of a standard normal number
BLOCKS, PREDICTED = 4, 500  # of a learning curve, and rows that each of its fits predicts
FEWEST, MOST_PLANNED = 10, 1e9  # rows of a block, and rows that a plan asks for
MOST_PRINTED = 2000  # rows that are left out of which ``print`` shows the check, in a second
PAIRED = ("plus", "minmax")  # constructions whose models without two rows are known
EXPONENTS = (0.5, 1.0, 2.0)  # with which widths fall to a floor


@dataclass(frozen=True, eq=False, repr=False)
class SelfCheck:
    """How many training rows the intervals of the other rows contain; prints as a sentence.

    Attributes
    ----------
    alpha
        The level of the intervals.
    rows
        Numbers of the rows that were checked, among those of ``fit``, shape (m,).
    covered
        Whether the interval of the other rows contains y, shape (m,).
    exact
        Whether these are the intervals of fits without the row. Otherwise settings were chosen
        without one of the two rows that a model leaves out, not without both.
    parts
        Name, number of rows and coverage of each part that was asked for.
    construction
        Whose intervals these are, if not those of the fit's construction.

    """

    alpha: float
    rows: Places
    covered: NDArray[np.bool_]
    exact: bool
    parts: tuple[tuple[str, int, float], ...] = ()
    construction: str = ""

    @property
    def coverage(self) -> float:
        """The share of rows that are covered."""
        return float(self.covered.mean())

    @property
    def error(self) -> float:
        """Its standard error, as if rows were independent; never 0."""
        count = len(self.covered) + 4
        share = (self.covered.sum() + 2) / count
        return math.sqrt(share * (1 - share) / count)

    def __repr__(self) -> str:
        count = len(self.covered)
        aim = f"{100 * (1 - self.alpha):.4g}%"
        by = f" (construction {self.construction!r})" if self.construction else ""
        found = (
            f"Checked on {count:,} training rows, each by the other rows{by}: {self.coverage:.1%} "
            f"± {self.error:.1%} of their y lie inside, and {aim} is the aim. This is an estimate, "
            "not a guarantee."
        )
        if not self.parts:
            return found
        size = max(len(name) for name, _, _ in self.parts)
        lines = [f"{name:{size}}  {rows:5,} rows  {part:6.1%}" for name, rows, part in self.parts]
        return "\n".join([found, *lines])


@dataclass(frozen=True, eq=False, repr=False)
class Influence:
    """What each training row does to the model without it; the most unusual rows come first.

    Attributes
    ----------
    row
        Numbers of the rows among those of ``fit``, shape (m,).
    residual
        y minus its prediction without the row.
    studentized
        The same over its width there, in standard deviations of the other rows: y of the rows with
        the largest sizes are likely to be wrong.
    moves
        Root mean square, over the other rows, of what the row changes in predictions, in units of
        y.
    widens
        By how much the row widens the intervals of the others, relative to their width.
    index, backend
        Row labels and library of the caller's frame.

    """

    row: Places
    residual: Array
    studentized: Array
    moves: Array
    widens: Array
    index: Any = None
    backend: str | None = None

    def to_frame(self) -> Any:
        """Return a frame of the caller's library, with the caller's row labels."""
        names = ("row", "residual", "studentized", "moves", "widens")
        return make_frame({n: getattr(self, n) for n in names}, self.backend, self.index)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how unusual each row is against how much it moves predictions."""
        from ..plots import plot_influence

        return plot_influence(self, ax)

    def __len__(self) -> int:
        return len(self.row)

    def __repr__(self) -> str:
        cells = [["row", "residual", "studentized", "moves", "widens"]]
        for k in range(min(len(self), BINS)):
            numbers = self.residual[k], self.studentized[k], self.moves[k]
            label = self.row[k] if self.index is None else self.index[k]
            cells.append([str(label), *(f"{x:.4g}" for x in numbers), f"{self.widens[k]:+.1%}"])
        sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(c.rjust(k) for c, k in zip(row, sizes, strict=True)) for row in cells]
        more = f"… and {len(self) - BINS:,} more rows"
        return "\n".join([*lines, *([more] if len(self) > BINS else [])])


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

        Of four forms of curve through the means of the fits: three that fall to a floor, ever
        faster, and one without a floor. The lowest and the highest are 2 standard errors beyond all
        of them, by leaving out each series of fits.
        """
        size = np.asarray(rows, dtype=np.float64)
        series = np.arange(self.widths.shape[1])
        means = [self.widths.mean(axis=1)]
        means += [self.widths[:, series != k].mean(axis=1) for k in series]
        every = np.stack([_curves(self.sizes, mean, size) for mean in means])  # (series, forms, ..)
        found, left = every[0], every[1:]
        variance = (len(series) - 1) * left.var(axis=0)
        error = 2 * np.sqrt(variance)
        ends = (found - error).min(axis=0), np.median(found, axis=0), (found + error).max(axis=0)
        return np.stack(ends, axis=-1).clip(min=0.0)

    def rows(self, width: float) -> Array:
        """Rows for a mean width: the lowest, the middle and the highest guess, shape (3,).

        At least those of the smallest fits; infinite where no number of rows is enough.
        """
        sizes = np.geomspace(self.sizes[0], MOST_PLANNED, 2000)
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


def _curves(sizes: Places, widths: Array, at: Array) -> Array:
    """Each form of curve, by least squares, at some sizes: shape (forms, ...)."""
    found = list[Array]()
    for power in EXPONENTS:
        floor, fall = np.polynomial.polynomial.polyfit(sizes**-power, widths, 1)
        found.append(floor + fall * at**-power)
    start, slope = np.polynomial.polynomial.polyfit(np.log(sizes), np.log(widths), 1)
    return np.stack([*found, np.exp(start + slope * np.log(at))])


def _rounded(rows: float) -> str:
    """A number of rows with two digits."""
    return f"{float(f'{rows:.2g}'):,.0f}"


# What ``print`` showed last of each model: its certificate, its level and the check.
_PRINTED: WeakKeyDictionary[Any, tuple[Any, float, str]] = WeakKeyDictionary()


class FittedModelMixin:
    """The questions, as methods of an estimator."""

    def __str__(self) -> str:
        """The settings and, after a fit, the certificate and the check on training rows."""
        model = cast("IntervalRegressor", self)
        try:
            check_is_fitted(model)
            certificate = model.certificate_
        except NotFittedError:  # or settings have changed since
            return repr(self)
        return "\n".join(filter(None, [repr(self), str(certificate), _printed_check(model)]))

    def self_check(
        self,
        by: Any = None,
        *,
        alpha: float | None = None,
        rows: int = 200,
        refit: tuple[Any, Any] | None = None,
    ) -> SelfCheck:
        """Check coverage on training rows: whether the interval of the other rows contains y.

        The models without two rows are in closed form: nothing is fitted again. The mean of the
        share that is covered, over training sets, is the coverage with one row less.

        Parameters
        ----------
        by
            The name of a column of X, or a value for each row of ``fit``: coverage of each label,
            or of fifths of the numbers. None: of each group that was passed to ``fit``.
        alpha
            The level; None is the estimator's own.
        rows
            How many rows to check at most, drawn at random.
        refit
            ``(X, y)`` of ``fit``: fit without each of the rows, which takes as many fits, but is
            exact for all settings.

        """
        model = cast("IntervalRegressor", self)
        check_is_fitted(model)
        level = check_level("alpha", model.alpha if alpha is None else alpha)
        model._check_unchanged()
        count = min(check_positive_int("rows", rows), len(model.kept_))
        chosen = np.sort(np.random.default_rng(0).permutation(len(model.kept_))[:count])
        numbers, loo, exact = model.kept_numbers_[chosen], model.loo_, True
        if refit is not None:
            if not (isinstance(refit, tuple | list) and len(refit) == 2):
                raise TypeError(f"refit is a {type(refit).__name__}: give (X, y), the rows of fit")
            covered = np.array([_covers(model, *refit, int(row), level) for row in numbers])
        else:
            _check_pairs(model, "refit=(X, y)")
            played = games(loo, _tensor(model.kept_[chosen], loo))
            rank = kappa(level, len(loo.residuals) - 1)
            covered = ~played.missed(rank, answering(model, PAIRED)).numpy()
            chose = (
                getattr(model, "ridge", "") == "auto" and len(loo.residuals) == model.n_samples_fit_
            )
            exact = not (chose or isinstance(loo, ChosenModels))
        instead = "" if refit is not None else _instead(model)
        found = _parts(model, by, chosen, covered)
        return SelfCheck(level, numbers, covered, exact, tuple(found), instead)

    def influence(self, alpha: float | None = None) -> Influence:
        """Say how each training row moves predictions and widths, the most unusual rows first.

        Of the rows that models leave out, at most 2,000. Nothing is fitted again.

        Parameters
        ----------
        alpha
            The level whose widths are meant; None is the estimator's own.

        """
        model = cast("IntervalRegressor", self)
        check_is_fitted(model)
        level = check_level("alpha", model.alpha if alpha is None else alpha)
        model._check_unchanged()
        _check_pairs(model)
        loo, count = model.loo_, len(model.kept_)
        kept = _tensor(model.kept_, loo)
        own = torch.zeros(2, count, dtype=torch.float64)
        places = torch.full((len(loo.residuals),), -1)
        places[model.kept_] = torch.arange(count)
        for part in parts(loo, kept, kept):
            mine, (*_, scores, before, alone) = places[part.rows.cpu()], part.pairs
            before = before.where(part.rows[:, None] != kept, torch.nan)
            unit = before.nanmedian(dim=1).values / NORMAL
            every = torch.cat([before.nan_to_num(-torch.inf), alone.abs()[:, None]], dim=1)
            ranks = kappa(level, count), kappa(level, count - 1)
            size = kth_largest(every, [ranks[0]]) if ranks[0] else every[:, :1]
            less = kth_largest(scores.nan_to_num(-torch.inf), [ranks[1]]) if ranks[1] else size
            own[0, mine], own[1, mine] = (alone / unit).cpu(), (size / less - 1)[:, 0].cpu()
        residual, moves = _moves(model, kept)
        order = np.argsort(-own[0].abs().numpy(), kind="stable")
        labels = None if model.kept_rows_ is None else row_labels(model.kept_rows_)
        unusual = np.copysign(own[0].numpy(), residual)  # a falling scale of y turns signs
        return Influence(
            model.kept_numbers_[order],
            residual[order],
            unusual[order],
            moves[order],
            own[1].numpy()[order],
            None if labels is None else labels[order],
            None if model.kept_rows_ is None else backend_of(model.kept_rows_),
        )

    def report(
        self, X: Any, y: Any = None, path: str | Path | None = None, *, alpha: Any = None
    ) -> str:
        """Return an HTML report of the intervals of new rows, and write it if a path is given.

        The page of ``lazyknife predict --html``: what to expect, figures, tables, the check on
        training rows, whether the new rows look like these, and settings. It needs the extra
        ``lazyknife[cli]``.

        Parameters
        ----------
        X
            Rows to predict, at least one, as one array or frame.
        y
            Their true values, if known.
        path
            A file to write, ending in .html.
        alpha
            The level, or a list of levels; None is the estimator's own.

        """
        model = cast("IntervalRegressor", self)
        refuse_with_dask(X=X if is_dask(X) else None)
        if is_stream(X):
            raise TypeError(f"X={X!r} yields batches: give all rows as one array or frame")
        found: Any = model.predict_interval(X, alpha)
        signature = inspect.signature(type(model)).parameters
        given = model.get_params(deep=False).items()
        settings = {k: v for k, v in given if repr(v) != repr(signature[k].default)}
        return page_of(found, y, path, model, model.check_exchangeable(X), settings)

    def plan(
        self, X: Any, y: Any, width: float | None = None, *, alpha: float | None = None
    ) -> LearningCurve:
        """Say how widths fall with more rows, and how many rows give a wanted mean width.

        Quarters, halves and three quarters of the rows are fitted with the same settings, twelve
        fits that predict the other rows.

        Parameters
        ----------
        X, y
            The rows of ``fit``.
        width
            The wanted mean width.
        alpha
            The level; None is the estimator's own.

        """
        model = cast("IntervalRegressor", self)
        refuse_with_dask(X=X if is_dask(X) else None)
        level = check_level("alpha", model.alpha if alpha is None else alpha)
        wanted = None if width is None else check_reasonable("width", width)
        n, needed = count_rows(X), BLOCKS * max(rows_needed(level), FEWEST)
        if n < needed:
            raise ValueError(
                f"X has {n} rows: a learning curve at alpha={level:g} takes at least {needed}"
            )
        blocks = np.array_split(np.random.default_rng(0).permutation(n), BLOCKS)
        widths = np.empty((BLOCKS - 1, BLOCKS))
        for size, first in np.ndindex(*widths.shape):
            order = np.concatenate([blocks[(first + k) % BLOCKS] for k in range(BLOCKS)])
            count = sum(len(blocks[(first + k) % BLOCKS]) for k in range(size + 1))
            inside, outside = np.sort(order[:count]), np.sort(order[count:][:PREDICTED])
            found = _fitted(model, X, y, inside).predict_interval(take(X, outside), alpha=level)
            widths[size, first] = to_array(found.width).mean()
            if not np.isfinite(widths[size, first]):
                raise ValueError(
                    f"X has {n} rows: intervals of {len(inside)} of them are infinite at "
                    f"alpha={level:g}; give more rows or a larger alpha"
                )
        sizes = np.array([(k + 1) * n // BLOCKS for k in range(BLOCKS - 1)])
        return LearningCurve(level, sizes, widths, wanted)


def _instead(model: IntervalRegressor) -> str:
    """The construction whose intervals are checked, if not those of the fit's."""
    own = answering(model, PAIRED)
    return "" if own == model.construction_ else str(own)


def _printed_check(model: IntervalRegressor) -> str:
    """The check in words, kept for the next time; how to get it where there are many rows."""
    if len(model.loo_.residuals) > MOST_PRINTED:
        return "model.self_check() checks the intervals on 200 of the training rows."
    known = _PRINTED.get(model)
    if known is None or known[0] is not model._certificate or known[1] != model.alpha:
        try:
            found = str(model.self_check())
        except (ValueError, NotFittedError):  # nothing is known without two rows
            found = ""
        known = _PRINTED[model] = model._certificate, model.alpha, found
    return known[2]


def _tensor(places: Places, loo: Any) -> torch.Tensor:
    return torch.from_numpy(places).to(loo.residuals.device)


def _check_pairs(model: IntervalRegressor, instead: str = "") -> None:
    """Refuse models of which nothing is known without two rows."""
    _refuse_clusters(model)
    if isinstance(model.loo_, OutputModels):
        raise ValueError(f"y has {len(model.loo_.columns)} outputs: fit each of them on its own")
    simple = answering(model, PAIRED) in PAIRED and model.nu == 0
    if not (simple and has_pairs(model.loo_)):
        other = f", or give {instead}" if instead else ""
        raise ValueError(
            "models without two rows are not known in closed form here: use construction='plus' or "
            "'minmax', nu=0, the squared loss, readout='tangent' and a network that is infinitely "
            f"wide or has more parameters than there are rows{other}"
        )


def _refuse_clusters(model: IntervalRegressor) -> None:
    if getattr(model, "clusters_", None) is not None:
        raise ValueError("clusters are left out as a whole: fits without single rows say nothing")


def _fitted(model: IntervalRegressor, X: Any, y: Any, places: Places) -> Any:
    """The same estimator, fitted to some of the rows."""
    _refuse_clusters(model)
    truth, n = finite_numbers(y, "y"), count_rows(X)
    if truth.shape[:1] != (n,):
        raise ValueError(f"y has shape {truth.shape}: give a number for each of the {n} rows of X")
    other: IntervalRegressor = clone(model).set_params(verbose=False)
    return other.fit(take(X, places), truth[places])


def _covers(model: IntervalRegressor, X: Any, y: Any, row: int, alpha: float) -> bool:
    """Whether the interval of a fit without a row contains its y."""
    if count_rows(X) != model.n_samples_fit_:
        raise ValueError(
            f"refit has {count_rows(X)} rows: give the {model.n_samples_fit_} rows of fit"
        )
    other = _fitted(model, X, y, np.delete(np.arange(model.n_samples_fit_), row))
    found = other.predict_interval(take(X, np.array([row])), alpha=alpha)
    return bool(found.covers(finite_numbers(y, "y")[[row]])[0])


def _parts(
    model: IntervalRegressor, by: Any, chosen: Places, covered: NDArray[np.bool_]
) -> Iterator[tuple[str, int, float]]:
    """Coverage of parts of the rows that were checked, which are some of those kept."""
    columns = list[list[Any]]()
    if by is not None:
        if isinstance(by, str):
            if model.kept_rows_ is None:
                raise ValueError(f"by={by!r}: a saved model has no rows: give a value for each")
            found = label_columns(by, model.kept_rows_, len(model.kept_), "by")
        else:
            every = label_columns(by, None, model.n_samples_fit_, "by")
            found = [[column[k] for k in model.kept_numbers_] for column in every]
        columns = [_binned([column[k] for k in chosen]) for column in found]
    elif model.groups_ is not None:
        own = model.groups_.some(model.kept_[chosen])
        for labels, codes in zip(own.labels, own.codes.T, strict=True):
            columns.append([str(labels[code]) for code in codes])
    for column in columns:
        for name in dict.fromkeys(sorted(column, key=_number)):
            inside = np.array([value == name for value in column])
            yield name, int(inside.sum()), float(covered[inside].mean())


def _number(name: str) -> tuple[float, str]:
    """Fifths in the order of their numbers, then labels by name."""
    start = name.split(" to ")[0]
    try:
        return float(start), name
    except ValueError:
        return math.inf, name


def _binned(values: list[Any]) -> list[str]:
    """Labels as text; numbers of which there are many as fifths."""
    is_number = [isinstance(v, int | float) and not isinstance(v, bool) for v in values]
    numbers = [v for v, known in zip(values, is_number, strict=True) if known]
    if len(set(numbers)) <= MOST_VALUES:
        return [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, BINS + 1)))
    places = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(edges) - 2)
    names = iter(f"{edges[k]:.4g} to {edges[k + 1]:.4g}" for k in places)
    return [next(names) if known else str(v) for v, known in zip(values, is_number, strict=True)]


def _moves(model: IntervalRegressor, kept: torch.Tensor) -> tuple[Array, Array]:
    """Left-out residuals, and how far the models without each row are from the full one."""
    loo: Any = model.loo_
    rows = loo.out.rows if hasattr(loo, "out") else getattr(loo, "full", loo).basis.features.X
    count = len(kept)
    some = loo if count == len(loo.residuals) else some_models(loo, kept)
    with torch.no_grad():
        found = some.scaled(rows[kept.to(rows.device)])
    each = found.each.clone()
    for members, way in found.elsewhere:
        each[:, members] = way.there(each[:, members])
    each, point = each.cpu(), found.point.cpu()
    y = point + loo.training_residuals[kept].cpu()
    to_y = model.target_.point
    residual = to_y(y) - to_y(y - loo.residuals[kept].cpu())
    gaps = (to_y(each) - to_y(point)[:, None]).fill_diagonal_(0.0)
    return residual.numpy(), (gaps.square().sum(dim=0) / max(count - 1, 1)).sqrt().numpy()
