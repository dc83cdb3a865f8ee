"""The figures and the report of ``lazyknife predict``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .files import command_line
from .outcome import Outcome, measured, shortfalls
from .report import Figure, Report, Table
from .versions import versions

SHOWN = 1000  # rows of the table in a report


def draw(outcome: Outcome) -> dict[str, Any]:
    """Draw the first level: intervals by prediction and, if y is known, coverage by width."""
    from matplotlib import figure

    from ..metrics import coverage_by_bin
    from ..plots import plot_coverage_by_bin, plot_intervals, style

    truth, first = outcome.rows.y_new, outcome.levels[0]
    titles = ("Intervals, sorted by prediction", "Coverage by width of the interval")
    with style():
        drawn = [figure.Figure(figsize=(5, 3.3), layout="constrained") for _ in titles]
        plot_intervals(first, truth, ax=drawn[0].subplots())
        if truth is None:
            return {titles[0]: drawn[0]}
        target = 1 - float(first.alpha)  # type: ignore[arg-type]  # one level
        plot_coverage_by_bin(coverage_by_bin(truth, first), target, ax=drawn[1].subplots())
    return dict(zip(titles, drawn, strict=True))


def make_report(
    outcome: Outcome, drawings: Mapping[str, Any], settings: Mapping[str, object], inputs: str
) -> Report:
    """Put the report together."""
    from ..plots import figure_svg

    figures = tuple(
        Figure(title, figure_svg(drawn, title=title, id_prefix=f"figure{number}"))
        for number, (title, drawn) in enumerate(drawings.items())
    )
    results = Table("Results", ("", "value"), tuple(measured(outcome)))
    return Report(
        title="Prediction intervals",
        lead=inputs,
        certificate=outcome.certificates[0],
        figures=figures,
        tables=(results, *_guarantees(outcome), _intervals(outcome)),
        settings=settings,
        command=command_line(),
        notes=outcome.rows.notes,
        versions=versions(),
        warnings=tuple(shortfalls(outcome)),
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


def _intervals(outcome: Outcome) -> Table:
    """Return the first rows at the first level, and whether their intervals cover the target."""
    rows, intervals = outcome.rows, outcome.levels[0]
    frame = intervals.to_frame().assign(width=intervals.width)
    if rows.y_new is not None:
        frame = frame.assign(y=rows.y_new, covered=intervals.covers(rows.y_new))
    name, names = ("row", range(1, len(frame) + 1)) if rows.ids is None else ("id", rows.ids)
    frame.insert(0, name, names)
    note = f"At alpha = {intervals.alpha:g}."
    if len(frame) > SHOWN:
        note += f" The first {SHOWN} of {len(frame)} rows."
    shown = tuple(frame.head(SHOWN).itertuples(index=False, name=None))
    return Table("Intervals", tuple(map(str, frame.columns)), shown, note)
