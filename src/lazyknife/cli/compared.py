"""The result of ``lazyknife compare``: its recommendation, figures and page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .report import Figure, Report, Table, Verdict

if TYPE_CHECKING:
    import pandas as pd

    from ..compare import Recommendation
    from ..plots import Panel

MEASURED = {"coverage": "coverage", "width": "width", "score": "interval score"}
COLUMNS = ("method", *MEASURED.values(), "seconds", "certified")
SIZE, READABLE = (5.0, 4.2), 1.6  # inches, and the scale of letters that a phone needs

# The quantities that are drawn: columns with their titles and captions.
DRAWN = {
    "coverage": (
        "Coverage",
        "The share of new values inside their intervals, with standard errors; the dotted line is "
        "the aim.",
    ),
    "score": (
        "Interval score",
        "Width plus a penalty for each miss, the one number to compare: smaller is better.",
    ),
    "width": ("Width", "Narrow intervals are useful if they cover enough."),
    "seconds": ("Time", "To fit and to predict one fold, on one thread."),
}


@dataclass(frozen=True)
class Compared:
    """The rows of a comparison, their means, and what they recommend."""

    rows: pd.DataFrame
    summary: pd.DataFrame
    advice: Recommendation
    target: str

    @property
    def names(self) -> list[str]:
        """The methods."""
        return [str(name) for name in self.summary["method"]]

    def panel(self, column: str) -> Panel:
        """Return one of the quantities that are drawn."""
        from ..plots import Panel
        from ..plots.figures import literal

        values, errors = (self.summary[name].tolist() for name in (column, f"{column}_se"))
        if column == "coverage":
            aim = 1 - self.advice.alpha
            return Panel("share of new values", values, errors, target=aim, target_label="1 − α")
        if column == "seconds":
            return Panel("seconds", values, errors, log=True)
        return Panel(literal(self.target), values, errors)

    def table(self) -> Table:
        """Return the means with their standard errors; the file to download has all folds."""
        pairs = [((name, label), (f"{name}_se", "± s.e.")) for name, label in MEASURED.items()]
        both = [("method", "method"), *sum(pairs, ()), *((name, name) for name in COLUMNS[-2:])]
        columns, labels = zip(*both, strict=True)
        rows = tuple(self.summary[list(columns)].itertuples(index=False, name=None))
        note = (
            "Means over the folds; certified: the coverage that is guaranteed, if any. The CSV "
            "file has every fold."
        )
        return Table("Methods", labels, rows, note, self.rows.to_csv(index=False))


def draw(result: Compared) -> Any:
    """Draw all quantities side by side."""
    from matplotlib import figure as figures

    from ..plots import plot_comparison, style

    panels = []
    for column, (title, _) in DRAWN.items():
        panel = result.panel(column)
        panels.append(panel._replace(label=f"{title.lower()} ({panel.label})"))
    with style():
        figure = figures.Figure(figsize=(3.7 * len(panels), 3.6), layout="constrained")
        axes = figure.subplots(1, len(panels))
        plot_comparison(result.names, panels, axes, best=result.advice.method)
    return figure


def _draw_alone(result: Compared, panel: Panel) -> Any:
    """Draw one quantity, readable on a phone."""
    from matplotlib import figure as figures

    from ..plots import plot_methods, style

    width, height = SIZE
    with style(READABLE):
        size = (width, max(height, 0.35 * len(result.names)))
        figure = figures.Figure(figsize=size, layout="constrained")
        plot_methods(
            result.names,
            panel.values,
            panel.errors,
            label=panel.label,
            target=panel.target,
            log=panel.log,
            best=result.advice.method,
            ax=figure.subplots(),
        )
    return figure


def make_report(
    result: Compared, lead: str, notes: tuple[str, ...], origin: Mapping[str, Any]
) -> Report:
    """Put the page together."""
    from ..compare import ABOUT
    from ..plots import figure_svg

    figures = []
    for column, (title, caption) in DRAWN.items():
        drawn = _draw_alone(result, result.panel(column))
        figures.append(Figure(title, figure_svg(drawn, title=title, id_prefix=column), caption))
    advice = Verdict("Recommendation", result.advice.claim, result.advice.reasons)
    return Report(
        title="Methods compared",
        lead=lead,
        verdict=advice if len(result.names) > 1 else None,
        certificate=None,
        figures=tuple(figures),
        tables=(result.table(),),
        glossary={name: ABOUT[name] for name in result.names},
        notes=notes,
        **origin,
    )
