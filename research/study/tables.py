"""The tables of studies on the pages of docs/."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import pages
from ..pages import markdown
from .catalogue import PAPER, STUDIES
from .choices import cost_lines, verdict_lines, verdict_sentence
from .kinds import against_lines, mean_lines, readme_lines, set_lines
from .published import boston_lines, boston_sentence
from .rows import read_rows
from .show import heading, labels
from .summary import summarise
from .verdict import Verdict, verdicts

if TYPE_CHECKING:
    import pandas as pd

# What the theory says of each method: guarantee, coverage seen, networks trained, calls.
THEORY = {
    "naive": ("none", "< 1 − α", "1", "n + m"),
    "jackknife": ("none", "≈ 1 − α", "n", "n + m"),
    "jackknife+": ("≥ 1 − 2α", "≈ 1 − α", "n", "n·m"),
    "lazy_finetune": ("none", "", "1", "n·m"),
    "lazy_dp": ("≥ 1 − 2α − τ", "≈ 1 − α", "1", "n·m"),
}


def fill(page: str, folder: Path) -> str:
    """Return the page with all of its tables made anew from the rows in a folder.

    Their names are keys of ``SPECIAL`` or names of studies.
    """
    return pages.fill(page, {name: make_table(name, folder) for name in pages.marked(page)})


def make_table(name: str, folder: Path) -> str:
    """Return a named table."""
    if name in SPECIAL:
        return SPECIAL[name](folder)
    return markdown(*summary_lines(read_rows(folder / f"{STUDIES[name].name}.csv")))


def paper_rows(folder: Path) -> dict[str, pd.DataFrame]:
    """Read the rows of all of the paper's studies."""
    return {name: read_rows(folder / f"{name}.csv") for name in PAPER}


def verdict_table(found: Sequence[Verdict]) -> str:
    """One line a claim."""
    lines = [(f"**{v.mark}**", v.claim, f"holds in {v.count}: {v.rule}", v.source) for v in found]
    return markdown(("verdict", "claim", "measured", "where the paper says it"), lines)


def cell_tables(found: Sequence[Verdict]) -> str:
    """Every claim with all of its places."""
    blocks = []
    for verdict in found:
        lines = [(c.where, c.measured, "yes" if c.holds else "no") for c in verdict.cells]
        table = markdown(("where", "measured", "holds"), lines)
        blocks.append(f"### {verdict.claim}\n\n{verdict.mark}: {verdict.rule}.\n\n{table}")
    return "\n".join(blocks)


def table1(rows: pd.DataFrame) -> str:
    """The paper's Table 1 with measured columns beside its own."""
    lines = []
    for data, part in summarise(rows).groupby("data", sort=False):
        unit = float(part.loc[part["method"] == "naive", "seconds"].iloc[0])
        for row in part.to_dict("records"):
            lines.append(
                (
                    heading(str(data), None),
                    row["method"],
                    *THEORY[row["method"]],
                    _certified(row),
                    _plus_minus(row, "coverage"),
                    f"{row['models_trained']:.0f}",
                    f"{row['fit_seconds'] / unit:.1f}",
                    f"{row['predict_seconds'] / unit:.1f}",
                )
            )
    theory = ("guarantee", "coverage, in theory", "networks", "calls")
    measured = ("certified", "coverage", "networks trained", "fit ÷ naive", "predict ÷ naive")
    return markdown(("data", "method", *theory, *measured), lines)


def summary_lines(rows: pd.DataFrame) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and lines: means and standard errors of every combination."""
    summary = summarise(rows)
    varied = [c for c in ("n", "epsilon", "ridge") if summary[c].nunique() > 1]
    lines = []
    for row, label in zip(summary.to_dict("records"), labels(summary, summary), strict=True):
        lines.append(
            (
                heading(row["data"], row["transform"]),
                label,
                *(_short(row[column]) for column in varied),
                *(_plus_minus(row, column) for column in ("coverage", "width", "score")),
                f"{row['seconds']:.2g}",
                _certified(row),
            )
        )
    measures = ("coverage", "width", "interval score", "seconds", "certified")
    return ("data", "method", *varied, *measures), lines


def _plus_minus(row: Mapping[str, Any], column: str) -> str:
    return f"{row[column]:.3g} ± {row[f'{column}_se']:.2g}"


def _certified(row: Mapping[str, Any]) -> str:
    return "none" if math.isnan(row["certified"]) else f"{row['certified']:.3f}"


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, str) else f"{value:g}"
    return text.replace("inf", "∞")


def _choices(folder: Path) -> pd.DataFrame:
    return read_rows(folder / "choices.csv")


def _choices_verdict(rows: pd.DataFrame) -> str:
    return f"{markdown(*verdict_lines(rows))}\n{verdict_sentence(rows)}"


def _tables(make: Callable[..., Any], *options: str) -> Callable[[Path], str]:
    return lambda folder: markdown(*make(read_rows(folder / "tables.csv"), *options))


SPECIAL: dict[str, Callable[[Path], str]] = {
    "verdicts": lambda folder: verdict_table(verdicts(paper_rows(folder))),
    "claims": lambda folder: cell_tables(verdicts(paper_rows(folder))),
    "table1": lambda folder: table1(read_rows(folder / "table1.csv")),
    "choices_costs": lambda folder: markdown(*cost_lines(_choices(folder))),
    "choices_verdict": lambda folder: _choices_verdict(_choices(folder)),
    "published_verdict": lambda folder: boston_sentence(read_rows(folder / "published.csv")),
    "published_boston": lambda folder: markdown(*boston_lines(read_rows(folder / "published.csv"))),
    "readme": _tables(readme_lines),
    "tables_against": _tables(against_lines),
    "tables_score": _tables(mean_lines, "score", ".3g"),
    "tables_sets": _tables(set_lines),
}
