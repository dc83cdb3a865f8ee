"""What is measured of intervals, added up over any number of parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..records import Array
    from ..results import Intervals


@dataclass(frozen=True)
class Totals:
    """Sums over rows; the arrays have an entry for each level.

    Attributes
    ----------
    rows
        Number of rows.
    widths, scores
        Sums of widths and of interval scores; no scores where y is not known.
    covered
        Number of rows whose interval contains y, where that is known.

    """

    rows: int
    widths: Array
    scores: Array | None = None
    covered: Array | None = None

    def __add__(self, other: Totals) -> Totals:
        """Return the sums over the rows of both."""
        scores, covered = self.scores, self.covered
        return Totals(
            self.rows + other.rows,
            self.widths + other.widths,
            None if scores is None or other.scores is None else scores + other.scores,
            None if covered is None or other.covered is None else covered + other.covered,
        )

    def width(self, level: int) -> float:
        """Mean width."""
        return float(self.widths[level]) / self.rows

    def score(self, level: int) -> float | None:
        """Mean interval score."""
        return None if self.scores is None else float(self.scores[level]) / self.rows

    def coverage(self, level: int) -> tuple[float, float] | None:
        """Share of covered rows, and its standard error."""
        if self.covered is None:
            return None
        share = int(self.covered[level]) / self.rows
        return share, math.sqrt(share * (1 - share) / self.rows)


def totals_of(intervals: Intervals, y: Array | None) -> Totals:
    """Add up widths and, where y is known, scores and covered rows."""
    import numpy as np

    from ..metrics import interval_score, mean_width

    count = len(intervals)
    widths = count * np.atleast_1d(mean_width(intervals).value)
    if y is None:
        return Totals(count, widths)
    scores = count * np.atleast_1d(interval_score(y, intervals).value)
    covered = np.atleast_1d(np.asarray(intervals.covers(y)).sum(axis=0))
    return Totals(count, widths, scores, covered)
