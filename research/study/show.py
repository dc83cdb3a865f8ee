"""What tables and figures of studies share: names for people, and an empty figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import datasets
from .trial import SIMULATED

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# Sets that are only used in their own units.
UNCHANGED = {
    **{name: entry.title for name, entry in datasets.TABLES.items()},
    **{name: entry.title for name, entry in {**datasets.FORMULAS, **datasets.PUBLISHED}.items()},
    "diabetes": "diabetes",
}


def heading(data: str, transform: Any) -> str:
    """Name a data set for people."""
    if data.startswith(SIMULATED):
        return f"simulation, p = {data.removeprefix(SIMULATED)}"
    if data in UNCHANGED:
        return UNCHANGED[data]
    if data not in datasets.DATASETS:  # a caller's own
        return data
    title = datasets.DATASETS[data].title
    return f"{title}, {transform}" if isinstance(transform, str) else f"{title}, raw"


def labels(
    summary: pd.DataFrame, part: pd.DataFrame, name: Callable[[str], str] = str
) -> list[str]:
    """Name the methods; with their readout where a method is shown with several."""
    several = summary.groupby("method")["readout"].nunique().max() > 1
    pairs = zip(part["method"], part["readout"], strict=True)
    return [f"{name(m)}, {readout}" if several else name(m) for m, readout in pairs]


def blank(lines: int, columns: int, *, width: float, height: float) -> tuple[Figure, Any]:
    """Return a figure that no window knows of, and its axes, shape (lines, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * lines), layout="constrained")
    return figure, figure.subplots(lines, columns, squeeze=False)
