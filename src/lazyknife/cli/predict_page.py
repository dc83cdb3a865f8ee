"""What ``lazyknife predict`` shows of its intervals: numbers, drawings, a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .files import command_line

if TYPE_CHECKING:
    import pandas as pd

    from ..certificate import Certificate
    from ..records import Intervals
    from ..report import Report
    from ..tables import Encoded

SHOWN = 1000  # rows of the table on a page


def levels(intervals: Intervals) -> list[Intervals]:
    """Return the intervals of each level on their own."""
    if not isinstance(intervals.alpha, tuple):
        return [intervals]
    return [
        replace(intervals, lower=intervals.lower[:, k], upper=intervals.upper[:, k], alpha=alpha)
        for k, alpha in enumerate(intervals.alpha)
    ]


def measured(rows: Encoded, intervals: Intervals) -> list[tuple[str, str]]:
    """Return what can be said of the intervals; more where the new file has the target."""
    from ..metrics import coverage, interval_score, mean_width

    found = [
        ("training rows", f"{len(rows.X)}"),
        ("new rows", f"{len(rows.X_new)}"),
        ("features", f"{rows.X.shape[1]}"),
    ]
    for part in levels(intervals):
        level = f"alpha = {part.alpha:g}"
        found.append((f"mean width, {level}", f"{mean_width(part):.4g}"))
        if rows.y_new is not None:
            share = coverage(rows.y_new, part)
            found += [
                (f"coverage of the new rows, {level}", f"{share.value:.3f} ± {share.error:.3f}"),
                (f"interval score, {level}", f"{interval_score(rows.y_new, part):.4g}"),
            ]
    return found


def draw(rows: Encoded, intervals: Intervals) -> list[tuple[str, Any]]:
    """Draw the first level: intervals by prediction; coverage by width where truths are known."""
    from matplotlib.figure import Figure

    from ..metrics import coverage_by_bin
    from ..plots import plot_coverage_by_bin, plot_intervals, style

    first = levels(intervals)[0]
    with style():
        by_prediction = Figure(figsize=(5, 3.3), layout="constrained")
        plot_intervals(first, rows.y_new, ax=by_prediction.subplots())
        found = [("Intervals, sorted by prediction", by_prediction)]
        if rows.y_new is not None:
            by_width = Figure(figsize=(5, 3.3), layout="constrained")
            plot_coverage_by_bin(
                coverage_by_bin(rows.y_new, first),
                target=1 - float(first.alpha),  # type: ignore[arg-type]  # one level
                ax=by_width.subplots(),
            )
            found.append(("Coverage by width of the interval", by_width))
    return found


def make_report(
    rows: Encoded,
    intervals: Intervals,
    certificate: Certificate,
    results: Sequence[tuple[str, str]],
    drawings: Sequence[tuple[str, Any]],
    settings: Mapping[str, object],
    inputs: str,
) -> Report:
    """Put the page together."""
    from ..plots import figure_svg
    from ..report import Figure, Report, Table
    from ..study.trial import versions

    figures = tuple(
        Figure(title, figure_svg(drawn, title=title, id_prefix=f"figure{number}"))
        for number, (title, drawn) in enumerate(drawings)
    )
    frame = _table(rows, intervals)
    note = f"At alpha = {levels(intervals)[0].alpha:g}."
    if len(frame) > SHOWN:
        note += f" The first {SHOWN} of {len(frame)} rows."
    tables = (
        Table("Results", ("", "value"), tuple(results)),
        Table(
            "Intervals",
            tuple(map(str, frame.columns)),
            tuple(frame.head(SHOWN).itertuples(index=False, name=None)),
            note,
        ),
    )
    return Report(
        "Prediction intervals",
        inputs,
        str(certificate),
        figures,
        tables,
        settings,
        command_line(),
        rows.notes,
        versions(),
    )


def _table(rows: Encoded, intervals: Intervals) -> pd.DataFrame:
    """Row number or name, the first level's interval, and whether it covered the truth."""
    import numpy as np

    intervals = levels(intervals)[0]
    frame = intervals.to_frame().assign(width=intervals.width)
    if rows.y_new is not None:
        frame = frame.assign(y=rows.y_new, covered=intervals.covers(rows.y_new))
    name, names = ("row", np.arange(1, len(frame) + 1)) if rows.ids is None else ("id", rows.ids)
    frame.insert(0, name, names)
    return frame
