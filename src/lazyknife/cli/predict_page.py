"""What ``lazyknife predict`` shows of its intervals: numbers, drawings, a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .files import command_line
from .outcome import Outcome, measured, shortfalls

if TYPE_CHECKING:
    import pandas as pd

    from .report import Report, Table

SHOWN = 1000  # rows of the table on a page


def draw(outcome: Outcome) -> list[tuple[str, Any]]:
    """Draw the first level: intervals by prediction; coverage by width where truths are known."""
    from matplotlib.figure import Figure

    from ..metrics import coverage_by_bin
    from ..plots import plot_coverage_by_bin, plot_intervals, style

    truth, first = outcome.rows.y_new, outcome.levels[0]
    with style():
        by_prediction = Figure(figsize=(5, 3.3), layout="constrained")
        plot_intervals(first, truth, ax=by_prediction.subplots())
        found = [("Intervals, sorted by prediction", by_prediction)]
        if truth is not None:
            by_width = Figure(figsize=(5, 3.3), layout="constrained")
            plot_coverage_by_bin(
                coverage_by_bin(truth, first),
                target=1 - float(first.alpha),  # type: ignore[arg-type]  # one level
                ax=by_width.subplots(),
            )
            found.append(("Coverage by width of the interval", by_width))
    return found


def make_report(
    outcome: Outcome,
    drawings: Sequence[tuple[str, Any]],
    settings: Mapping[str, object],
    inputs: str,
) -> Report:
    """Put the page together."""
    from ..plots import figure_svg
    from .report import Figure, Report, Table
    from .versions import versions

    figures = tuple(
        Figure(title, figure_svg(drawn, title=title, id_prefix=f"figure{number}"))
        for number, (title, drawn) in enumerate(drawings)
    )
    frame = _frame(outcome)
    note = f"At alpha = {outcome.levels[0].alpha:g}."
    if len(frame) > SHOWN:
        note += f" The first {SHOWN} of {len(frame)} rows."
    tables = (
        Table("Results", ("", "value"), tuple(measured(outcome))),
        *_guarantees(outcome),
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
        str(outcome.certificates[0]),
        figures,
        tables,
        settings,
        command_line(),
        outcome.rows.notes,
        versions(),
        tuple(shortfalls(outcome)),
    )


def _guarantees(outcome: Outcome) -> list[Table]:
    """Return a table of the certificates where there are several levels."""
    from .report import Table

    rows = [
        (part.alpha, certificate.coverage, str(certificate).splitlines()[0])
        for part, certificate in zip(outcome.levels, outcome.certificates, strict=True)
    ]
    if len(rows) == 1:
        return []
    note = "Scope and assumptions are the same for all levels."
    columns = ("alpha", "certified coverage", "certificate")
    return [Table("Guarantee of each level", columns, tuple(rows), note)]


def _frame(outcome: Outcome) -> pd.DataFrame:
    """Row number or name, the first level's interval, and whether it covered the truth."""
    import numpy as np

    rows, intervals = outcome.rows, outcome.levels[0]
    frame = intervals.to_frame().assign(width=intervals.width)
    if rows.y_new is not None:
        frame = frame.assign(y=rows.y_new, covered=intervals.covers(rows.y_new))
    name, names = ("row", np.arange(1, len(frame) + 1)) if rows.ids is None else ("id", rows.ids)
    frame.insert(0, name, names)
    return frame
