"""The claims of the paper's text, each held against the rows measured here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from .catalogue import PAPER
from .show import heading

if TYPE_CHECKING:
    import pandas as pd

SIMILAR = 0.02  # coverages closer than this are called very similar
ABOUT = 0.05  # coverages closer to 1 − α than this are called about 1 − α
SAVED = 2.0  # a time that is saved "significantly" is at least halved
JUMP, BARELY = 1.5, 1.25  # times as long with twice the epochs: "dramatic", and "minimal impact"
FIGURES = tuple(name for name in PAPER if name.startswith("fig"))
SIMULATED_FIGURES = ("fig2a", "fig2b", "fig4")
REAL_FIGURES = tuple(name for name in FIGURES if name not in SIMULATED_FIGURES)
MANY_FEATURES = tuple(name for name in FIGURES if name != "fig2a")
LONGER = {"fig4": "fig2b", "fig5a": "fig3a", "fig5b": "fig3b"}  # 20 epochs, and 10
SINGLE = {"fig6a": "fig3a", "fig6b": "fig3b"}  # batches of one row, and of ten
Rows = Mapping[str, "pd.DataFrame"]
Judged = tuple[str, bool]  # what was measured, and whether the claim holds


class Cell(NamedTuple):
    """One place where a claim can hold or fail."""

    where: str
    measured: str
    holds: bool


class Verdict(NamedTuple):
    """What the paper says and where, the rule by which it is judged, and what was measured."""

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


def moved(before: Sequence[Verdict], after: Sequence[Verdict]) -> list[tuple[str, str, str, str]]:
    """Return each claim that holds in other places than before: both verdicts, and the places."""
    lines = []
    for number, (old, new) in enumerate(zip(before, after, strict=True), start=1):
        held = [{cell.where: cell.holds for cell in verdict.cells} for verdict in (old, new)]
        places = [where for where in held[0] | held[1] if held[0].get(where) != held[1].get(where)]
        if places:
            told = [f"{verdict.mark}, {verdict.count}" for verdict in (old, new)]
            lines.append((f"{number}. {old.claim}", *told, ", ".join(places)))
    return lines


def parts(rows: Rows, figures: Iterable[str]) -> Iterator[Part]:
    """Split the figures' rows by data and transform."""
    for figure in figures:
        grouped = rows[figure].groupby(["data", "transform"], sort=False, dropna=False)
        for (data, transform), part in grouped:
            yield Part(figure, data, transform if isinstance(transform, str) else None, part)


def each(
    figures: Iterable[str], judge: Callable[..., Judged], rows: Rows, methods: Sequence[str] = ()
) -> Iterator[Cell]:
    """Judge every part of some figures, for each of some methods."""
    for part in parts(rows, figures):
        for method in methods or ("",):
            where = f"{part.where}, {method}" if method else part.where
            yield Cell(where, *(judge(part, method) if method else judge(part)))


def against(
    pairs: Mapping[str, str], judge: Callable[[Part, Part], Judged], rows: Rows
) -> Iterator[Cell]:
    """Judge every part of a figure beside the same of another one."""
    for first, second in pairs.items():
        before = {(part.data, part.transform): part for part in parts(rows, [second])}
        for part in parts(rows, [first]):
            judged = judge(part, before[part.data, part.transform])
            yield Cell(f"{part.where} against {second}", *judged)


def _covers(part: Part, method: str = "lazy_dp") -> Judged:
    values = part.of(method, "coverage")
    return f"coverage {_mean(values)}", values.mean() >= 0.8


def _bound_by_theorem(part: Part) -> Judged:
    bound = part.mean("lazy_dp", "paper_bound")
    return f"at η = 0 the theorem states {bound:.3f}", bound >= 0.8


def _as_table_1_says(part: Part, method: str) -> Judged:
    values, aim = part.of(method, "coverage"), 1 - float(part.rows["alpha"].iloc[0])
    below = method == "naive"
    holds = values.mean() < aim if below else abs(values.mean() - aim) <= ABOUT
    return f"coverage {_mean(values)}, said to be {'<' if below else '≈'} {aim:.2g}", holds


def _saves_time(part: Part) -> Judged:
    whole, fit = (time_ratio(part, column) for column in ("seconds", "fit_seconds"))
    return f"{whole:.2g} times as long, its fit {fit:.2g} times", whole >= SAVED


def time_ratio(part: Part, column: str) -> float:
    """Return the time of jackknife+ over that of lazy_dp."""
    return part.mean("jackknife+", column) / part.mean("lazy_dp", column)


def _saves_time_against_a_loop(table: Part) -> Judged:
    one = table.mean("lazy_finetune", "fit_seconds")  # a training, and little more
    loop = float(table.rows["n"].iloc[0]) * one + table.mean("jackknife+", "predict_seconds")
    ratio = loop / table.mean("lazy_dp", "seconds")
    return f"n trainings one after the other take {ratio:.2g} times as long", ratio >= SAVED


def _epochs_cost(longer: Part, shorter: Part) -> Judged:
    times = {
        method: [part.mean(method, "seconds") for part in (shorter, longer)]
        for method in ("jackknife+", "lazy_dp")
    }
    text = "; ".join(f"{m} {first:.2f} s, then {then:.2f} s" for m, (first, then) in times.items())
    jackknife, lazy = (then / first for first, then in times.values())
    return text, jackknife >= JUMP and lazy <= BARELY


def _widths(method: str, word: str, other: str, part: Part, than: Part | None = None) -> Judged:
    return compared(part.of(method, "width"), (than or part).of(other, "width"), word)


def _varies_more(part: Part) -> Judged:
    theirs, ours = (float(part.of(m, "width").std()) for m in ("jackknife+", "lazy_dp"))
    return f"its widths vary by {theirs:.2g}, lazy_dp's by {ours:.2g}", theirs > ours


def _coverages(other: str, aim: float | None, part: Part) -> Judged:
    ours, theirs = (part.mean(method, "coverage") for method in ("lazy_dp", other))
    similar = abs(ours - theirs) <= SIMILAR
    holds = similar if aim is None else abs(ours - aim) < abs(theirs - aim)
    return f"{other} covers {theirs:.3f}, lazy_dp {ours:.3f}", holds


def compared(first: pd.Series, second: pd.Series, word: str) -> Judged:
    """Say whether the first widths are "narrower" or "wider" than the second, trial by trial."""
    difference = (first - second).dropna()
    error = float(difference.sem())
    shift = float(difference.mean()) * (1 if word == "wider" else -1)
    text = f"{_mean(first)} wide against {_mean(second)}, difference {_mean(difference)}"
    if math.isfinite(error) and abs(shift) <= 2 * error:
        text += ", within the noise"
    return text, math.isfinite(error) and shift > 2 * error


def _mean(values: pd.Series) -> str:
    return f"{values.mean():.3g} ± {values.sem():.2g}"


_NARROWER = partial(_widths, "lazy_dp", "narrower", "jackknife+")
_WIDER = partial(_widths, "jackknife+", "wider", "jackknife+")
_NARROWER_RULE = "lazy_dp is narrower by more than two standard errors"
_TIME = "Lazy methods reduce the compute time significantly compared to jackknife+ (here: "
_SIMULATION, _REAL = "Experiments, Simulation", "Experiments, Real Data"
_STOPPING = "Appendix, effect of the stopping time"
# Name: what the paper says, where, the rule, and the places to look at.
CLAIMS: dict[str, tuple[str, str, str, Callable[[Rows], Iterable[Cell]]]] = {
    "covers": (
        "DP-Lazy PI covers at least 80 % at α = .1.",
        "Experiments",
        "the mean coverage of lazy_dp is at least .80",
        partial(each, FIGURES, _covers),
    ),
    "guaranteed": (
        "Theorem 1 guarantees the 80 % of the experiments.",
        "Theorem 1; " + _REAL,
        "1 − 2α − 3√(2η + 2ε + δ) is at least .80 with the accounted (ε, δ) and η = 0",
        partial(each, FIGURES, _bound_by_theorem),
    ),
    "table1_coverage": (
        "Empirically naive covers less than 1 − α, jackknife and jackknife+ about 1 − α.",
        "Table 1",
        f"the mean coverage of naive is below .90, the others' within {ABOUT} of it",
        partial(each, ["table1"], _as_table_1_says, methods=("naive", "jackknife", "jackknife+")),
    ),
    "closer_to_target": (
        "In the simulations DP-Lazy PI's coverage is closer to 80 % than that of jackknife+.",
        _SIMULATION,
        "lazy_dp's mean coverage is closer to .80",
        partial(each, SIMULATED_FIGURES, partial(_coverages, "jackknife+", 0.8)),
    ),
    "saves_time": (
        _TIME + "with its n networks trained as one batch).",
        _SIMULATION,
        "for fit and prediction jackknife+ takes at least twice the time of lazy_dp",
        partial(each, FIGURES, _saves_time),
    ),
    "saves_time_against_a_loop": (
        _TIME + "as a loop over n trainings).",
        _SIMULATION,
        "n times the fit of lazy_finetune, plus the prediction of jackknife+, is at least twice "
        "the time of lazy_dp",
        partial(each, ["table1"], _saves_time_against_a_loop),
    ),
    "narrower_than_finetune": (
        "With p = 100 DP-Lazy PI's intervals are narrower than those of lazy finetune.",
        _SIMULATION,
        _NARROWER_RULE,
        partial(each, ["fig2b"], partial(_widths, "lazy_dp", "narrower", "lazy_finetune")),
    ),
    "narrower_on_real_data": (
        "On real data DP-Lazy PI's intervals are narrower than those of jackknife+.",
        _REAL,
        _NARROWER_RULE,
        partial(each, REAL_FIGURES, _NARROWER),
    ),
    "finetune_is_similar": (
        "Lazy finetune, without privacy, performs very similarly.",
        "Discussion",
        f"the mean coverages of lazy_finetune and lazy_dp differ by at most {SIMILAR}",
        partial(each, FIGURES, partial(_coverages, "lazy_finetune", None)),
    ),
    "lazy_covers_after_more_epochs": (
        "With 20 epochs both lazy methods cover more than 80 %.",
        _STOPPING,
        "the mean coverage is at least .80",
        partial(each, ["fig4"], _covers, methods=("lazy_finetune", "lazy_dp")),
    ),
    "narrower_after_more_epochs": (
        "With 20 epochs and p = 100 DP-Lazy PI's intervals are narrower than those of jackknife+.",
        _STOPPING,
        _NARROWER_RULE,
        partial(each, ["fig4"], _NARROWER),
    ),
    "more_epochs_widen_jackknife": (
        "More epochs make the intervals of jackknife+ wider.",
        _STOPPING,
        "jackknife+ is wider than with 10 epochs by more than two standard errors",
        partial(against, LONGER, _WIDER),
    ),
    "more_epochs_help_lazy": (
        "More epochs enhance the accuracy of lazy methods.",
        _STOPPING,
        "lazy_dp is narrower than with 10 epochs by more than two standard errors",
        partial(against, LONGER, partial(_widths, "lazy_dp", "narrower", "lazy_dp")),
    ),
    "more_epochs_cost_lazy_little": (
        "More epochs cost jackknife+ dramatically more time, lazy methods hardly any.",
        _STOPPING,
        f"jackknife+ takes at least {JUMP} times as long as with 10, lazy_dp at most {BARELY}",
        partial(against, {"fig4": LONGER["fig4"]}, _epochs_cost),
    ),
    "jackknife_is_unstable": (
        "With many features jackknife+ gives more unstable intervals than DP-Lazy PI.",
        _STOPPING,
        "the mean width of jackknife+ has the larger standard deviation over trials",
        partial(each, MANY_FEATURES, _varies_more),
    ),
    "batches_of_one_widen_jackknife": (
        "With batches of one row jackknife+ gets wider intervals.",
        "Appendix, effect of the batch size",
        "jackknife+ is wider than in Figure 3 by more than two standard errors",
        partial(against, SINGLE, _WIDER),
    ),
}
