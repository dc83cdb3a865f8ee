"""The claims of the paper's text, each held against the rows measured here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from .catalogue import PAPER
from .show import heading

if TYPE_CHECKING:
    import pandas as pd

SIMILAR = 0.02  # coverages closer than this are called very similar
SAVED = 2.0  # a time that is saved "significantly" is at least halved
FIGURES = tuple(name for name in PAPER if name.startswith("fig"))
SIMULATED_FIGURES = ("fig2a", "fig2b", "fig4")
REAL_FIGURES = tuple(name for name in FIGURES if name not in SIMULATED_FIGURES)
LONGER = {"fig4": "fig2b", "fig5a": "fig3a", "fig5b": "fig3b"}  # 20 epochs, and 10
SINGLE = {"fig6a": "fig3a", "fig6b": "fig3b"}  # batches of one row, and of ten
Rows = Mapping[str, "pd.DataFrame"]


class Cell(NamedTuple):
    """One place where a claim can hold or fail."""

    where: str
    measured: str
    holds: bool


class Claim(NamedTuple):
    """What the paper says and where, the rule by which it is judged, and the places to look at."""

    claim: str
    source: str
    rule: str
    cells: Callable[[Rows], Iterable[Cell]]


class Verdict(NamedTuple):
    """A claim, what was measured, and what follows."""

    claim: str
    source: str
    rule: str
    cells: tuple[Cell, ...]

    @property
    def mark(self) -> str:
        """Reproduced where it holds everywhere, partly where it holds somewhere."""
        held = [cell.holds for cell in self.cells]
        return "reproduced" if all(held) else "partly" if any(held) else "not reproduced"

    @property
    def count(self) -> str:
        """In how many places it holds."""
        return f"{sum(cell.holds for cell in self.cells)} of {len(self.cells)}"


class Part(NamedTuple):
    """The rows of one figure on one data set with one transform."""

    figure: str
    data: str
    transform: str | None
    rows: pd.DataFrame

    @property
    def where(self) -> str:
        """Name of the part, for people."""
        return f"{self.figure} ({heading(self.data, self.transform)})".replace(" 2016", "")

    def of(self, method: str, column: str) -> pd.Series:
        """Return a method's values, by trial."""
        own = self.rows[self.rows["method"] == method].set_index("trial")
        if column == "seconds":
            return own["fit_seconds"] + own["predict_seconds"]
        return own[column]

    def mean(self, method: str, column: str) -> float:
        """Return a method's mean over the trials."""
        return float(self.of(method, column).mean())


def verdicts(rows: Rows) -> tuple[Verdict, ...]:
    """Judge every claim by the rows of the figures, ``{"fig2a": frame, …}``."""
    missing = [name for name in PAPER if name not in rows]
    if missing:
        raise ValueError(f"the verdict needs the rows of all of the paper's studies: run {missing}")
    return tuple(Verdict(*told, tuple(cells(rows))) for *told, cells in CLAIMS.values())


def parts(rows: Rows, figures: Iterable[str]) -> Iterator[Part]:
    """Split the figures' rows by data and transform."""
    for figure in figures:
        grouped = rows[figure].groupby(["data", "transform"], sort=False, dropna=False)
        for (data, transform), part in grouped:
            yield Part(figure, data, transform if isinstance(transform, str) else None, part)


def covers(rows: Rows) -> Iterator[Cell]:
    """Coverage of DP-Lazy PI."""
    for part in parts(rows, FIGURES):
        values = part.of("lazy_dp", "coverage")
        yield Cell(part.where, f"coverage {_mean(values)}", values.mean() >= 0.8)


def saves_time(rows: Rows) -> Iterator[Cell]:
    """Time against jackknife+ with all its networks in one batch."""
    for part in parts(rows, FIGURES):
        whole, fit = (
            part.mean("jackknife+", column) / part.mean("lazy_dp", column)
            for column in ("seconds", "fit_seconds")
        )
        text = f"{whole:.2g} times as long, its fit {fit:.2g} times"
        yield Cell(part.where, text, whole >= SAVED)


def saves_time_against_a_loop(rows: Rows) -> Iterator[Cell]:
    """Time against n trainings one after the other, from one training's measured time."""
    for table in parts(rows, ["table1"]):
        one = table.mean("lazy_finetune", "fit_seconds")  # a training, and little more
        loop = float(table.rows["n"].iloc[0]) * one + table.mean("jackknife+", "predict_seconds")
        ratio = loop / table.mean("lazy_dp", "seconds")
        text = f"n trainings one after the other take {ratio:.2g} times as long"
        yield Cell(table.where, text, ratio >= SAVED)


def narrower_on_real_data(rows: Rows) -> Iterator[Cell]:
    """Width against jackknife+ on real data."""
    for part in parts(rows, REAL_FIGURES):
        widths = part.of("lazy_dp", "width"), part.of("jackknife+", "width")
        yield compared(part.where, *widths, "narrower")


def against(pairs: Mapping[str, str], method: str, word: str, rows: Rows) -> Iterator[Cell]:
    """Compare a method's widths between two figures, transform by transform."""
    for first, second in pairs.items():
        before = {(part.data, part.transform): part for part in parts(rows, [second])}
        for part in parts(rows, [first]):
            other = before[part.data, part.transform]
            widths = part.of(method, "width"), other.of(method, "width")
            yield compared(f"{part.where} against {second}", *widths, word)


def coverages(
    figures: Iterable[str], other: str, holds: Callable[[float, float], bool], rows: Rows
) -> Iterator[Cell]:
    """Compare the mean coverages of lazy_dp and another method."""
    for part in parts(rows, figures):
        ours, theirs = (part.mean(method, "coverage") for method in ("lazy_dp", other))
        text = f"{other} covers {theirs:.3f}, lazy_dp {ours:.3f}"
        yield Cell(part.where, text, holds(ours, theirs))


def similar(ours: float, theirs: float) -> bool:
    """Whether two coverages are about the same."""
    return abs(ours - theirs) <= SIMILAR


def closer(ours: float, theirs: float) -> bool:
    """Whether the first coverage is closer to 80 %."""
    return abs(ours - 0.8) < abs(theirs - 0.8)


def compared(where: str, first: pd.Series, second: pd.Series, word: str) -> Cell:
    """Say whether the first widths are "narrower" or "wider" than the second, trial by trial."""
    difference = (first - second).dropna()
    error = float(difference.sem())
    shift = float(difference.mean()) * (1 if word == "wider" else -1)
    text = f"width {_mean(first)} against {_mean(second)}"
    if math.isfinite(error) and abs(shift) <= 2 * error:
        text += ", within the noise"
    return Cell(where, text, math.isfinite(error) and shift > 2 * error)


def _mean(values: pd.Series) -> str:
    return f"{values.mean():.3g} ± {values.sem():.2g}"


_TIME = "Lazy methods reduce the compute time significantly compared to jackknife+ (here: "
_STOPPING = "Appendix, effect of the stopping time"
CLAIMS: dict[str, Claim] = {
    "covers": Claim(
        "DP-Lazy PI covers at least 80 % at α = .1.",
        "Experiments",
        "the mean coverage of lazy_dp is at least .80",
        covers,
    ),
    "saves_time": Claim(
        _TIME + "with its n networks trained as one batch).",
        "Experiments, Simulation",
        "for fit and prediction jackknife+ takes at least twice the time of lazy_dp",
        saves_time,
    ),
    "saves_time_against_a_loop": Claim(
        _TIME + "as a loop over n trainings).",
        "Experiments, Simulation",
        "n times the fit of lazy_finetune (one training and little more), plus the prediction of "
        "jackknife+, is at least twice the time of lazy_dp",
        saves_time_against_a_loop,
    ),
    "narrower_on_real_data": Claim(
        "On real data DP-Lazy PI's intervals are narrower than those of jackknife+.",
        "Experiments, Real Data",
        "lazy_dp is narrower by more than two standard errors of the paired difference",
        narrower_on_real_data,
    ),
    "more_epochs_widen_jackknife": Claim(
        "More epochs make the intervals of jackknife+ wider.",
        _STOPPING,
        "jackknife+ with 20 epochs is wider than with 10 by more than two standard errors",
        partial(against, LONGER, "jackknife+", "wider"),
    ),
    "more_epochs_help_lazy": Claim(
        "More epochs enhance the accuracy of lazy methods.",
        _STOPPING,
        "lazy_dp with 20 epochs is narrower than with 10 by more than two standard errors",
        partial(against, LONGER, "lazy_dp", "narrower"),
    ),
    "batches_of_one_widen_jackknife": Claim(
        "With batches of one row jackknife+ gets wider intervals.",
        "Appendix, effect of the batch size",
        "jackknife+ with batches of one row and 2 epochs is wider than in Figure 3 by more than "
        "two standard errors",
        partial(against, SINGLE, "jackknife+", "wider"),
    ),
    "finetune_is_similar": Claim(
        "Lazy finetune, without privacy, performs very similarly.",
        "Discussion",
        f"the mean coverages of lazy_finetune and lazy_dp differ by at most {SIMILAR}",
        partial(coverages, FIGURES, "lazy_finetune", similar),
    ),
    "closer_to_target": Claim(
        "In the simulations DP-Lazy PI's coverage is closer to 80 % than that of jackknife+.",
        "Experiments, Simulation",
        "lazy_dp's mean coverage is closer to .80",
        partial(coverages, SIMULATED_FIGURES, "jackknife+", closer),
    ),
}
