"""Intervals of new rows: measured, compared with their certificates, reported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import in_figures
from .joint import Joint
from .page import Figure, Report, Table, Verdict, cell_of, safe_cells

if TYPE_CHECKING:
    import pandas as pd

    from ..certificate import Certificate
    from ..results import Intervals
    from ..shift import Shift
    from . import NotCompared

MOST_SHOWN = 50_000  # rows in figures and in the CSV file of a report
SHOWN = 1000  # rows of the table in a report
SIZE, READABLE = (5.0, 3.8), 1.6  # inches, and the scale of letters that a phone needs
BINNED = 20  # rows from which coverage by width says something
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
    f"{FALSE_ALARMS:.0%} of the runs. If the target depends on the features as before, --weights "
    "estimate counts training rows by how common their like are among the new ones."
)
MOST_GROUPS = 50  # in a table
LIKE = (
    "This holds for new rows that come from the same source as the training rows, on average over "
    "many of them: it is not a promise for one row or one kind of row."
)


class Sample:
    """Rows with their intervals: all of them, or a random sample of many; and sums over all."""

    intervals: Any  # Intervals or Joint
    rows: Any  # with y, ids and X, such as NewRows

    def __init__(self, levels: int) -> None:
        self.count, self.random = 0, np.random.default_rng(0)
        self.keys, self.places = np.empty(0), np.empty(0, np.intp)
        # Widths, interval scores and covered rows of each level; NaN if rows lack a target.
        self.sums = np.zeros((3, levels))
        self.scores: dict[str, float] = {}  # further sums over rows

    def add(self, found: Any, rows: Any) -> None:
        """Add further rows, and keep those with the smallest random keys."""
        import pandas as pd

        count, y = len(found), rows.y
        covered = np.nan if y is None else found.covers(y).mean(axis=0)
        for total, mean in zip(self.sums, (*sizes_of(found, y), covered), strict=True):
            total += count * np.asarray(mean)
        self.score(getattr(found, "sums", {}))
        keys = np.append(self.keys, self.random.random(count))
        places = np.append(self.places, np.arange(self.count, self.count + count))
        if self.count:
            before, found = self.rows, found.concat([self.intervals, found])
            y = None if y is None or before.y is None else np.concatenate([before.y, y])
            ids = None if rows.ids is None else pd.concat([before.ids, rows.ids])
            more = rows.quantiles
            more = None if more is None else pd.concat([before.quantiles, more])
            rows = replace(rows, X=pd.concat([before.X, rows.X]), y=y, ids=ids, quantiles=more)
        kept = np.sort(np.argsort(keys)[:MOST_SHOWN])
        self.keys, self.places, self.count = keys[kept], places[kept], self.count + count
        self.intervals, self.rows = found[kept], rows[kept]

    def score(self, sums: Mapping[str, float]) -> None:
        """Add further sums over rows, by name."""
        for name, total in sums.items():
            self.scores[name] = self.scores.get(name, 0.0) + total


def sizes_of(found: Any, y: Any) -> tuple[Any, Any]:
    """Mean width and interval score; of limits their mean and quantile loss. NaN without y."""
    from ..metrics import interval_score, mean_width

    if isinstance(found, Joint):
        return np.nan, np.nan  # they have sums of their own
    if found.side == "both":
        return mean_width(found).value, np.nan if y is None else interval_score(y, found).value
    limit = found.upper if found.side == "upper" else found.lower
    if y is None:
        return limit.mean(axis=0), np.nan
    over = (y - limit.T).T * (1 if found.side == "upper" else -1)
    return limit.mean(axis=0), np.maximum(
        over * (1 - np.array(found.alpha)), -over * found.alpha
    ).mean(0)


def frame_of(found: Intervals | Joint, quantiles: pd.DataFrame | None) -> pd.DataFrame:
    """Return intervals, or one end of them, boxes or sets as a table, with quantiles."""
    frame: pd.DataFrame = found.to_frame().reset_index(drop=True)
    none = {"upper": ("lower", "width"), "lower": ("upper", "width")}.get(found.side, ())
    frame = frame[[name for name in frame if str(name).split("_")[0] not in none]]
    more = {} if quantiles is None else {name: each.to_numpy() for name, each in quantiles.items()}
    return frame.assign(**more)


@dataclass(frozen=True)
class Outcome:
    """Intervals of new rows, and what is said of them."""

    sample: Sample  # of the new rows, at one level or several
    certificates: Sequence[Certificate]  # one for each level
    shift: Shift | NotCompared  # whether the new rows look like the training rows
    model: Any  # None: not known
    targets: Sequence[str]  # the columns that are predicted
    notes: Sequence[str]
    groups: Sequence[str] = ()  # columns
    weighted: bool = False  # whether a difference between the rows is accounted for

    @property
    def unlike(self) -> bool:
        """Whether new rows look unlike the training rows, and nothing accounts for it."""
        return self.shift.clear and not self.weighted

    @property
    def clustered(self) -> bool:
        """Whether it is about rows of new clusters: how their coverage varies is not known."""
        return getattr(self.model, "clusters_", None) is not None

    @property
    def levels(self) -> list[Any]:
        """The intervals, boxes or sets of each level."""
        whole = self.sample.intervals
        if isinstance(whole, Joint):
            return whole.levels()
        if not isinstance(whole.alpha, tuple):
            return [whole]
        ends = zip(whole.lower.T, whole.upper.T, whole.alpha, self.certificates, strict=True)
        return [
            replace(whole, lower=lower, upper=upper, alpha=alpha, certificate=certificate)
            for lower, upper, alpha, certificate in ends
        ]

    def measured(self) -> list[tuple[str, str]]:
        """Rows of a table: sizes, widths and, where the new rows have a target, coverage."""
        model, count = self.model, self.sample.count
        sizes = {"new rows": count}
        if model is not None:
            columns = getattr(model, "n_features_in_", math.prod(model.row_shape_))
            sizes = {"training rows": model.n_samples_fit_, **sizes, "features": columns}
        found = [(name, str(size)) for name, size in sizes.items()]
        for part, (width, score, share) in zip(
            self.levels, self.sample.sums.T / count, strict=True
        ):
            level = f"alpha = {part.alpha:g}"
            size, loss = f"mean {part.side} limit", "quantile loss"
            size, loss = ("mean width", "interval score") if part.side == "both" else (size, loss)
            if not np.isnan(width):
                found.append((f"{size}, {level}", in_figures(width)))
            if not np.isnan(share):
                error = f" ± {math.sqrt(share * (1 - share) / count):.3f}" * (not self.clustered)
                found.append((f"coverage of the new rows, {level}", f"{share:.3f}{error}"))
            if not np.isnan(score):
                found.append((f"{loss}, {level}", in_figures(score)))
        return found + [(k, in_figures(v / count)) for k, v in self.sample.scores.items()]

    def by_group(self) -> list[tuple[str, ...]]:
        """A header, and rows of a table of groups, by the sample; empty if there are none."""
        first, rows, found = self.levels[0], self.sample.rows, list[tuple[str, ...]]()
        for column in self.groups:
            for label, places in rows.X.groupby(column, dropna=False).indices.items():
                part, share = first[places], "–"
                if rows.y is not None:
                    covered = part.covers(rows.y[places]).mean()
                    error = math.sqrt(covered * (1 - covered) / len(places))
                    share = f"{covered:.3f} ± {error:.3f}"
                size = in_figures(sizes_of(part, None)[0])
                whole = isinstance(label, float) and label.is_integer()
                label = "missing" if label != label else int(label) if whole else label
                found.append((f"{column} = {label}", str(len(places)), share, size))
        size = "mean width" if first.side == "both" else "mean limit"
        return [("group", "new rows", "coverage", size), *found[:MOST_GROUPS]] if found else []

    def checked(self) -> list[str]:
        """How many training rows the intervals of the others contain, where that is known."""
        with suppress(ValueError):  # models without two rows are not in closed form
            if hasattr(self.model, "self_check"):
                return [str(self.model.self_check(alpha=self.levels[0].alpha))]
        return []

    def doubts(self) -> list[str]:
        """What casts doubt on the intervals: new rows unlike the training rows, low coverage."""
        if self.model is None:
            return []
        found, count = [self.shift.finding, SHIFTED] if self.unlike else [], self.sample.count
        short = []
        for part, one, covered in zip(
            self.levels, self.certificates, self.sample.sums[2], strict=True
        ):
            models = len(self.model.loo_.residuals)
            if self.weighted or self.clustered:
                continue  # how much coverage varies is not known
            if one.coverage and is_too_low(covered, count, one.coverage, models):
                short.append(
                    f"COVERAGE BELOW THE CERTIFICATE at alpha = {part.alpha:g}: "
                    f"{covered / count:.3f} of the {count} new rows are covered, "
                    f"{one.coverage:.3f} is certified. With exchangeable rows this warning appears "
                    f"in at most {FALSE_ALARMS:.0%} of the runs."
                )
        return [*found, *short, LOOK_FOR] if short else found

    def expectation(self) -> str:
        """What to expect at the first level, in a sentence or two."""
        first = self.certificates[0]
        if first.coverage == 1.0:
            few = getattr(self.model, "_when_few", "the intervals are infinite")
            return f"{few.capitalize()}: there are too few training rows for this level."
        less = " These new rows do not look like the training rows, so expect less." * self.unlike
        return f"{first.headline}{less}"


def percent(share: float) -> str:
    """Return a share in percent, with a space at which lines do not break."""
    return f"{100 * share:.3g}\N{NO-BREAK SPACE}%"


def is_too_low(covered: float, count: int, certified: float, models: int) -> bool:
    """Whether coverage of m = ``count`` new rows is significantly below the certified p.

    The coverage of many new rows given one training set of n = ``models`` rows varies as well, with
    variance p(1 − p)/(n + 2) and a Beta law where the ranks of residuals are exact. So the
    shortfall must exceed 3 standard errors, √(p(1 − p)(1/m + 1/(n + 2))). That law is skewed and m
    may be small: so few covered rows must also have a probability of at most 1 %, which bounds the
    false alarms.
    """
    from scipy.stats import betabinom

    variance = certified * (1 - certified) * (1 / count + 1 / (models + 2))
    if not certified - covered / count > FAR * math.sqrt(variance):  # or covered is not known
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

    truth, first = outcome.sample.rows.y, outcome.levels[0]
    if isinstance(first, Joint):
        return {}
    name = literal(outcome.targets[0])
    with style(READABLE):
        drawn = [figure.Figure(figsize=SIZE, layout="constrained") for _ in range(2)]
        plot_intervals(first, truth, ax=drawn[0].subplots(), label=name)
        found = {"Intervals, sorted by prediction": drawn[0]}
        if truth is not None and len(truth) >= BINNED and first.side == "both":
            bins, aim = coverage_by_bin(truth, first), 1 - first.alpha
            ax = plot_coverage_by_bin(bins, aim, ax=drawn[1].subplots())
            ax.set_xlabel(f"width of the interval of {name}")
            found["Coverage by width of the interval"] = drawn[1]
    return found


def make_report(
    outcome: Outcome, drawings: Mapping[str, Any], lead: str, origin: Mapping[str, Any]
) -> Report:
    """Put the report together."""
    from ..plots import figure_svg

    certificate, count = outcome.certificates[0], outcome.sample.count
    covered, details = outcome.sample.sums[2, 0], []
    tone = "doubtful" if outcome.unlike else "certified"
    tone = tone if certificate.coverage else "warning"
    if not np.isnan(covered):
        of = f"of the {count:,} new rows, whose values are known, lie inside"
        details.append(f"Measured: {percent(covered / count)} {of}.")
    if tone == "certified" and not (outcome.groups or outcome.weighted):
        details.append(LIKE)
    details += outcome.checked()
    figures = tuple(
        Figure(title, figure_svg(drawn, title=title, id_prefix=f"figure{number}"))
        for number, (title, drawn) in enumerate(drawings.items())
    )
    rows = zip(outcome.levels, outcome.certificates, strict=True)
    guarantees = tuple(
        (cell_of(i.alpha, f"{i.alpha:g}"), one.coverage, one.headline) for i, one in rows
    )
    columns = ("alpha", "certified coverage", "certificate")
    levels = Table("Guarantee of each level", columns, guarantees)
    results = Table("Results", ("quantity", "value"), tuple(outcome.measured()))
    tables = [results, *([levels] if len(guarantees) > 1 else [])]
    if groups := outcome.by_group():
        tables.append(Table("Coverage by group", groups[0], tuple(groups[1:])))
    return Report(
        title={"boxes": "Prediction boxes", "sets": "Prediction sets"}.get(
            outcome.sample.intervals.side, "Prediction intervals"
        ),
        lead=lead,
        verdict=Verdict("What to expect", outcome.expectation(), tuple(details), tone),
        certificate=certificate,
        figures=figures,
        tables=(*tables, _intervals(outcome)),
        notes=tuple(outcome.notes),
        warnings=tuple(outcome.doubts()),
        **origin,
    )


def _intervals(outcome: Outcome) -> Table:
    """Return the first rows at the first level, and all of them as a file to download."""
    first, sample = outcome.levels[0], outcome.sample
    frame, rows, count = frame_of(first, sample.rows.quantiles), sample.rows, len(first)
    if rows.y is not None:
        taken = {*frame, "row", "id", "covered"}
        for name, values in zip(outcome.targets, np.atleast_2d(rows.y.T), strict=True):
            frame[f"{name}, true" if name in taken else name] = values
        frame["covered"] = first.covers(rows.y).astype(bool)
    names = sample.places + 1 if rows.ids is None else rows.ids.to_numpy()
    frame.insert(0, "row" if rows.ids is None else "id", names)
    note = f"At alpha = {first.alpha:g}."
    if count < sample.count:
        drawn = f"{count:,} of the {sample.count:,} rows, drawn at random"
        note += f" Figures and CSV file have {drawn}; the table has the first {SHOWN} of them."
    elif count > SHOWN:
        note += f" The first {SHOWN} of {count} rows; the CSV file has all of them."
    shown = tuple(frame.head(SHOWN).itertuples(index=False, name=None))
    csv = safe_cells(frame).to_csv(index=False)
    title = "Intervals" if first.side in ("both", "upper", "lower") else first.side.capitalize()
    return Table(title, tuple(map(str, frame.columns)), shown, note, csv)
