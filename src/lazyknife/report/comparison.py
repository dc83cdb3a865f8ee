"""A comparison of methods as a table, a figure and a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import in_figures
from .page import Cell, Figure, Report, Table, Verdict, cell_of

if TYPE_CHECKING:
    import pandas as pd

    from ..compare import Recommendation

# Columns that are shown, with their titles and captions.
SHOWN = {
    "coverage": ("Coverage", "The share of new values inside their intervals; dotted: the aim."),
    "score": ("Interval score", "Width plus a penalty for each miss: smaller is better."),
    "width": ("Width", "Narrow intervals are useful if they cover enough."),
    "seconds": ("Time", "Seconds to fit and to predict one fold, on one thread."),
}
COLUMNS = ("method", *(title.lower() for title, _ in SHOWN.values()), "certified")
NOTE = (
    "Means over the folds ± standard errors; certified: the coverage that is guaranteed, if any. "
    "The CSV file has every fold."
)


def cells_of(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    """Return the means of a method, with their standard errors, as they are shown and sorted."""
    if row["coverage"] != row["coverage"]:
        texts = ("failed", *[""] * len(SHOWN))  # instead of the numbers
        return (Cell(row["method"]), *[Cell(text, missing=True) for text in texts])
    shown = {
        "coverage": f"{row['coverage']:.3f} ± {row['coverage_se']:.3f}",
        **{name: _with_error(row[name], row[f"{name}_se"]) for name in ("score", "width")},
        "seconds": in_figures(row["seconds"], 2),
        "certified": f"{row['certified']:.3f}",
    }
    cells = [
        Cell("none", missing=True) if row[name] != row[name] else cell_of(row[name], text)
        for name, text in shown.items()
    ]
    return (Cell(row["method"]), *cells)


def _with_error(mean: float, error: float) -> str:
    return "∞" if mean == math.inf else f"{in_figures(mean, 3)} ± {in_figures(error, 2)}"


def draw(
    summary: pd.DataFrame,
    advice: Recommendation,
    target: str,
    columns: Iterable[str] = SHOWN,
    scale: float = 1.0,
) -> Any:
    """Draw quantities side by side."""
    from matplotlib import figure as figures

    from ..plots import Panel, plot_comparison, style
    from ..plots.figures import literal

    panels = []
    for column in columns:
        name = SHOWN[column][0].lower()
        unit = {"coverage": "", "seconds": ", seconds"}.get(column, f", {literal(target)}")
        aim = 1 - advice.alpha if column == "coverage" else None
        errors = summary[f"{column}_se"]
        log = column == "seconds"
        panels.append(Panel(name + unit, summary[column], errors, log, aim, "1 − α"))
    with style(scale):
        size = (3.1 * len(panels) + 1.9, max(4.2, 0.35 * len(summary)))
        figure = figures.Figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, len(panels))
        plot_comparison(list(summary["method"]), panels, axes, best=advice.method)
    return figure


def make_report(
    found: pd.DataFrame,
    summary: pd.DataFrame,
    advice: Recommendation,
    target: str,
    more: Mapping[str, Any],
) -> Report:
    """Put the page together; ``more`` are parts that it does not make."""
    from ..plots import figure_svg

    figures = []
    for column, (title, caption) in SHOWN.items():
        drawn = draw(summary, advice, target, [column], scale=1.6)  # for a phone
        figures.append(Figure(title, figure_svg(drawn, title=title, id_prefix=column), caption))
    lines = tuple(cells_of(row) for row in summary.to_dict("records"))
    verdict = Verdict("Recommendation", advice.claim, advice.reasons)
    return Report(
        title="Methods compared",
        verdict=verdict if len(summary) > 1 else None,
        figures=tuple(figures),
        tables=(Table("Methods", COLUMNS, lines, NOTE, found.to_csv(index=False)),),
        **more,
    )
