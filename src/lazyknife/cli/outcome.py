"""The result of ``lazyknife predict``, and how its coverage compares with the certificates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..certificate import Certificate
    from ..records import Intervals
    from .tables import Encoded

FAR = 3.0  # standard errors below the certificate
FALSE_ALARMS = 0.01  # largest share of runs with exchangeable rows that are warned about, per level
LOOK_FOR = (
    "The two files do not look exchangeable, or the training rows are not independent; the "
    "certificate does not apply then. Possible causes: files split by time or sorted by a column, "
    "new rows from another population, the target in another unit, rows selected by hand or by "
    "their values, duplicated training rows, settings chosen on these rows."
)


@dataclass(frozen=True)
class Outcome:
    """Rows, intervals and guarantees."""

    rows: Encoded  # both files as arrays
    intervals: Intervals  # of the new rows, at one or several levels
    certificates: tuple[Certificate, ...]  # one for each level
    models: int  # n, the number of training rows whose residuals the intervals rest on

    @property
    def levels(self) -> list[Intervals]:
        """The intervals of each level."""
        whole = self.intervals
        if not isinstance(whole.alpha, tuple):
            return [whole]
        return [
            replace(whole, lower=whole.lower[:, k], upper=whole.upper[:, k], alpha=alpha)
            for k, alpha in enumerate(whole.alpha)
        ]


def measured(outcome: Outcome) -> list[tuple[str, str]]:
    """Return rows of a table: sizes, widths and, where the new rows have a target, coverage."""
    from ..metrics import coverage, interval_score, mean_width

    rows = outcome.rows
    found = [
        ("training rows", f"{len(rows.X)}"),
        ("new rows", f"{len(rows.X_new)}"),
        ("features", f"{rows.X.shape[1]}"),
    ]
    for part in outcome.levels:
        level = f"alpha = {part.alpha:g}"
        found.append((f"mean width, {level}", f"{mean_width(part):.4g}"))
        if rows.y_new is not None:
            share = coverage(rows.y_new, part)
            found += [
                (f"coverage of the new rows, {level}", f"{share.value:.3f} ± {share.error:.3f}"),
                (f"interval score, {level}", f"{interval_score(rows.y_new, part):.4g}"),
            ]
    return found


def shortfalls(outcome: Outcome) -> list[str]:
    """Return a sentence for each level with too little coverage, and then the possible causes."""
    truth = outcome.rows.y_new
    if truth is None:
        return []
    found = []
    for part, certificate in zip(outcome.levels, outcome.certificates, strict=True):
        covered, count = int(part.covers(truth).sum()), len(truth)
        certified = certificate.coverage
        if certified and is_too_low(covered, count, certified, outcome.models):
            found.append(
                f"COVERAGE BELOW THE CERTIFICATE at alpha = {part.alpha:g}: {covered / count:.3f} "
                f"of the {count} new rows are covered, {certified:.3f} is certified. With "
                f"exchangeable rows this warning appears in at most {FALSE_ALARMS:.0%} of the runs."
            )
    return [*found, LOOK_FOR] if found else []


def is_too_low(covered: int, count: int, certified: float, models: int) -> bool:
    """Whether coverage of m = ``count`` new rows is significantly below the certified p.

    The coverage of many new rows given one training set of n = ``models`` rows varies as well, with
    variance p(1 − p)/(n + 2) and a Beta law where the ranks of residuals are exact. So the
    shortfall must exceed 3 standard errors, √(p(1 − p)(1/m + 1/(n + 2))). That law is skewed and m
    may be small: so few covered rows must also have a probability of at most 1 %, which bounds the
    false alarms.
    """
    from scipy.stats import betabinom

    variance = certified * (1 - certified) * (1 / count + 1 / (models + 2))
    if certified - covered / count <= FAR * math.sqrt(variance):
        return False
    if certified == 1.0:
        return True
    wins, losses = certified * (models + 1), (1 - certified) * (models + 1)
    return bool(betabinom.cdf(covered, count, wins, losses) <= FALSE_ALARMS)
