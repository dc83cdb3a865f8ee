"""Predictions of a saved model for a file of any size, group by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ..compute import track
from ..results import Intervals
from .console import say, show_progress
from .files import formulas_in
from .newrows import Group, NewRows, spread
from .outcome import Outcome
from .stored import Stored
from .tables.rows import About
from .totals import totals_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..records import Array

MOST_SHOWN = 50_000  # rows in figures and in the table of a report
MOST_COMPARED = 2000  # rows that are compared with the training rows


class Part(NamedTuple):
    """Intervals of some rows, with their names and target if they have any."""

    intervals: Intervals
    ids: pd.Series | None
    y: Array | None

    def at(self, places: NDArray[np.intp]) -> Part:
        """Return some of the rows."""
        ends = {name: getattr(self.intervals, name)[places] for name in ("point", "lower", "upper")}
        found = replace(self.intervals, **ends, index=None)
        ids = None if self.ids is None else self.ids.iloc[places]
        return Part(found, ids, None if self.y is None else self.y[places])


def predict_stored(stored: Stored, append: Callable[[pd.DataFrame], object]) -> Outcome:
    """Predict all rows of a file, and return what is said of them.

    Parameters
    ----------
    stored
        The model, and the file that has been looked through.
    append
        Takes the intervals of consecutive rows, as a table.

    """
    model, rows = stored.model, stored.rows
    shown, compared = spread(rows.rows, MOST_SHOWN), spread(rows.rows, MOST_COMPARED)
    totals, parts, features, formulas = [], [], [], 0
    for group in _tracked(rows):
        part = _predicted(stored, group)
        append(table_of(part.intervals, part.ids))
        totals.append(totals_of(part.intervals, part.y))
        formulas += formulas_in(part.ids)
        parts.append(part.at(_inside(shown, group)))
        features.append(group.features.iloc[_inside(compared, group)])
    if rows.rows > len(shown):
        say(f"note: {len(compared):,} of the new rows are compared with the training rows.")
    kept = _joined(parts)
    columns = len(model.feature_names_in_)
    return Outcome(
        About(model.n_samples_fit_, columns, kept.y, kept.ids, rows.notes),
        kept.intervals,
        sum(totals[1:], totals[0]),
        tuple(model.certify(alpha=level) for level in stored.levels),
        len(model.loo_.residuals),
        model.check_exchangeable(pd.concat(features, ignore_index=True)),
        stored.notes.target or "y",
        None if rows.rows <= len(shown) else shown,
        formulas,
    )


def _tracked(rows: NewRows) -> Iterator[Group]:
    """Yield the groups, with a progress bar if there are several."""
    groups = rows.groups()
    show = show_progress() and rows.rows > rows.group_rows
    return track(groups, "predicting", -(-rows.rows // rows.group_rows), show)


def _predicted(stored: Stored, group: Group) -> Part:
    levels = stored.levels
    asked = list(levels) if len(levels) > 1 else levels[0]
    found = stored.model.predict_interval(group.features, alpha=asked)
    return Part(in_unit(found, stored.notes.unit), group.ids, group.y)


def _inside(places: NDArray[np.intp], group: Group) -> NDArray[np.intp]:
    """Return the places within a group."""
    end = group.start + len(group.features)
    here = slice(*np.searchsorted(places, (group.start, end)))
    return places[here] - group.start


def _joined(parts: Sequence[Part]) -> Part:
    first = parts[0]
    intervals = Intervals.concat(part.intervals for part in parts)
    ids = None if first.ids is None else pd.concat([p.ids for p in parts], ignore_index=True)
    y = None if first.y is None else np.concatenate([part.y for part in parts])
    return Part(intervals, ids, y)


def table_of(intervals: Intervals, ids: Any) -> pd.DataFrame:
    """Return the table of an output: names of rows, if there are any, and their intervals."""
    frame: pd.DataFrame = intervals.to_frame()
    if ids is not None:
        frame.insert(0, str(ids.name), ids)
    return frame


def in_unit(found: Intervals, unit: float) -> Intervals:
    """Return intervals in the target's own unit, rounded outwards: y ÷ unit was rounded, too."""
    if unit == 1:
        return found
    point, lower, upper = (unit * part for part in (found.point, found.lower, found.upper))
    more = 2 * np.finfo(np.float64).eps
    lower, upper = lower - more * np.abs(lower), upper + more * np.abs(upper)
    return replace(found, point=point, lower=lower, upper=upper)
