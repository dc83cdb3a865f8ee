"""The result of ``lazyknife predict``: measured, compared with its certificates, reported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .files import safe_cells
from .report import Figure, Report, Table
from .words import verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..certificate import Certificate
    from ..results import Intervals
    from ..shift import Shift
    from .tables.rows import About
    from .totals import Totals

SHOWN = 1000  # rows of the table in a report
SIZE, READABLE = (5.0, 3.8), 1.6  # inches, and the scale of letters that a phone needs
FAR = 3.0  # standard errors below the certificate
FALSE_ALARMS = 0.01  # largest share of runs with exchangeable rows that are warned about, per level
LOOK_FOR = (
    "The two files do not look exchangeable, or the training rows are not independent; the "
    "certificate does not apply then. Possible causes: files split by time or sorted by a column, "
    "new rows from another population, the target in another unit, rows selected by hand or by "
    "their values, duplicated training rows, settings chosen on these rows."
)

SHIFTED = (
    "The guarantee is about new rows like the training rows, so do not rely on it here: coverage "
    "may be lower. Possible causes: files split by time or sorted by a column, new rows from "
    "another place or population. With rows split at random this warning appears in at most "
    f"{FALSE_ALARMS:.0%} of the runs."
)


@dataclass(frozen=True)
class Outcome:
    """Rows, intervals and guarantees."""

    rows: About
    intervals: Intervals  # of the new rows, or of a sample of them, at one or several levels
    totals: Totals  # over all new rows
    certificates: tuple[Certificate, ...]  # one for each level
    models: int  # n, the number of training rows whose residuals the intervals rest on
    shift: Shift  # whether the new rows look like the training rows
    target: str  # the column that is predicted
    sampled: NDArray[np.intp] | None = None  # places of the rows of a sample among all new rows
    formulas: int = 0  # number of names of new rows that a spreadsheet would run

    @property
    def levels(self) -> list[Intervals]:
        """The intervals of each level."""
        whole = self.intervals
        if not isinstance(whole.alpha, tuple):
            return [whole]
        return [
            replace(whole, lower=lower, upper=upper, alpha=alpha, certificate=certificate)
            for lower, upper, alpha, certificate in zip(
                whole.lower.T, whole.upper.T, whole.alpha, self.certificates, strict=True
            )
        ]


def measured(outcome: Outcome) -> list[tuple[str, str]]:
    """Return rows of a table: sizes, widths and, where the new rows have a target, coverage."""
    rows, totals = outcome.rows, outcome.totals
    found = [
        ("training rows", f"{rows.training}"),
        ("new rows", f"{totals.rows}"),
        ("features", f"{rows.features}"),
    ]
    for number, part in enumerate(outcome.levels):
        level = f"alpha = {part.alpha:g}"
        found.append((f"mean width, {level}", in_figures(totals.width(number))))
        share, score = totals.coverage(number), totals.score(number)
        if share is not None and score is not None:
            found += [
                (f"coverage of the new rows, {level}", "{:.3f} ± {:.3f}".format(*share)),
                (f"interval score, {level}", in_figures(score)),
            ]
    return found


def doubts(outcome: Outcome) -> list[str]:
    """Return what casts doubt on the intervals: new rows unlike the training rows, low coverage."""
    if not outcome.shift.clear:
        return shortfalls(outcome)
    return [str(outcome.shift), SHIFTED, *shortfalls(outcome)]


def in_figures(value: float) -> str:
    """Return four figures, without an exponent where that is short: 28,120."""
    return f"{float(f'{value:.4g}'):,.10g}"


def shortfalls(outcome: Outcome) -> list[str]:
    """Return a sentence for each level with too little coverage, and then the possible causes."""
    totals = outcome.totals
    if totals.covered is None:
        return []
    found = []
    pairs = zip(outcome.levels, outcome.certificates, strict=True)
    for number, (part, certificate) in enumerate(pairs):
        covered, count = int(totals.covered[number]), totals.rows
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


def draw(outcome: Outcome) -> dict[str, Any]:
    """Draw the first level: intervals by prediction and, if y is known, coverage by width."""
    from matplotlib import figure

    from ..metrics import coverage_by_bin
    from ..plots import plot_coverage_by_bin, plot_intervals, style
    from ..plots.figures import literal

    truth, first, name = outcome.rows.y_new, outcome.levels[0], literal(outcome.target)
    titles = ("Intervals, sorted by prediction", "Coverage by width of the interval")
    with style(READABLE):
        drawn = [figure.Figure(figsize=SIZE, layout="constrained") for _ in titles]
        plot_intervals(first, truth, ax=drawn[0].subplots(), label=name)
        if truth is None:
            return {titles[0]: drawn[0]}
        target = 1 - float(first.alpha)  # type: ignore[arg-type]  # one level
        ax = plot_coverage_by_bin(coverage_by_bin(truth, first), target, ax=drawn[1].subplots())
        ax.set_xlabel(f"width of the interval of {name}")
    return dict(zip(titles, drawn, strict=True))


def make_report(
    outcome: Outcome,
    drawings: Mapping[str, Any],
    inputs: str,
    origin: Mapping[str, Any],
    safe: bool = False,
) -> Report:
    """Put the report together; ``safe`` quotes what a spreadsheet would run in its CSV file."""
    from ..plots import figure_svg

    first, share = outcome.levels[0], outcome.totals.coverage(0)
    figures = tuple(
        Figure(title, figure_svg(drawn, title=title, id_prefix=f"figure{number}"))
        for number, (title, drawn) in enumerate(drawings.items())
    )
    results = Table("Results", ("quantity", "value"), tuple(measured(outcome)))
    return Report(
        title="Prediction intervals",
        lead=inputs,
        verdict=verdict(
            float(first.alpha),  # type: ignore[arg-type]  # one level
            outcome.certificates[0],
            outcome.shift.clear,
            None if share is None else (share[0], outcome.totals.rows),
        ),
        certificate=outcome.certificates[0],
        figures=figures,
        tables=(results, *_guarantees(outcome), _intervals(outcome, safe)),
        notes=outcome.rows.notes,
        warnings=tuple(doubts(outcome)),
        **origin,
    )


def _guarantees(outcome: Outcome) -> list[Table]:
    """Return a table of the certificates if there are several levels."""
    rows = tuple(
        (part.alpha, certificate.coverage, str(certificate).splitlines()[0])
        for part, certificate in zip(outcome.levels, outcome.certificates, strict=True)
    )
    note = "Scope and assumptions are the same for all levels."
    columns = ("alpha", "certified coverage", "certificate")
    return [Table("Guarantee of each level", columns, rows, note)] if len(rows) > 1 else []


def _intervals(outcome: Outcome, safe: bool) -> Table:
    """Return the first rows at the first level, and all of them as a file to download."""
    rows, intervals = outcome.rows, outcome.levels[0]
    frame = intervals.to_frame().assign(width=intervals.width)
    if rows.y_new is not None:
        truth = {outcome.target: rows.y_new, "covered": intervals.covers(rows.y_new)}
        frame = frame.assign(**truth)
    places = range(len(frame)) if outcome.sampled is None else outcome.sampled
    name, names = ("row", [place + 1 for place in places]) if rows.ids is None else ("id", rows.ids)
    frame.insert(0, name, names)
    shown = tuple(frame.head(SHOWN).itertuples(index=False, name=None))
    csv = (safe_cells(frame) if safe else frame).to_csv(index=False)
    return Table("Intervals", tuple(map(str, frame.columns)), shown, _which_rows(outcome), csv)


def _which_rows(outcome: Outcome) -> str:
    """Return the sentences on the level and on the rows that a report shows."""
    count, note = len(outcome.intervals), f"At alpha = {outcome.levels[0].alpha:g}."
    if outcome.sampled is not None:
        drawn = f"{count:,} of the {outcome.totals.rows:,} rows, drawn at random"
        note += f" Figures and CSV file have {drawn}; the table has the first {SHOWN} of them."
    elif count > SHOWN:
        note += f" The first {SHOWN} of {count} rows; the CSV file has all of them."
    return note
