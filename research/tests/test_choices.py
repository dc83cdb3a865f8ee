"""Many methods side by side: tables, verdicts and the figure, against loops over the rows."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from research.study import METHODS, STUDIES, Study, draw
from research.study.choices import (
    CELL,
    ONE_NETWORK,
    OURS,
    VALID,
    cost_lines,
    draw_scores,
    paired,
    title,
    verdict_lines,
    verdict_sentence,
)
from research.study.words import in_words

COMMITTED = Path(__file__).parents[2] / "results" / "choices.csv"
# Mean score and mean coverage of each method.
KINDS = {
    ONE_NETWORK: (3.0, 0.90),
    "lazyknife_narrow": (1.0, 0.80),  # the least score, but it covers too little
    "lazyknife_best": (2.0, 0.885),
    "cheat": (0.5, 0.50),
    "cv+": (4.0, 0.90),
    "worst": (9.0, 0.99),
}
CELLS = [("simulated_p16", np.nan, 100), ("communities", "symlog", 100)]


def made(trials: int = 4, seed: int = 0) -> pd.DataFrame:
    """Rows of a study, in an order that tells nothing."""
    rng = np.random.default_rng(seed)
    shift = rng.normal(size=(len(CELLS), len(KINDS)))
    rows = [
        {
            **dict(zip(CELL, cell, strict=True)),
            "method": method,
            "trial": trial,
            "score": score * (1 + place) + 0.1 * math.sin(7 * trial + shift[place, k]),
            "coverage": coverage + 0.002 * (trial - (trials - 1) / 2),
            "width": score + 0.3 * trial,
        }
        for trial in range(trials)
        for place, cell in enumerate(CELLS)
        for k, (method, (score, coverage)) in enumerate(KINDS.items())
    ]
    return pd.DataFrame(rows)


def values(rows: pd.DataFrame, cell: int, method: str, measure: str) -> list[float]:
    """Of one method, trial by trial."""
    found = [
        (row["trial"], row[measure])
        for _, row in rows.iterrows()
        if row["data"] == CELLS[cell][0] and row["method"] == method
    ]
    return [value for _, value in sorted(found)]


def standard_error(numbers: list[float]) -> float:
    return statistics.stdev(numbers) / math.sqrt(len(numbers))


def test_scores_are_compared_trial_by_trial() -> None:
    rows = made()
    shuffled = rows.sample(frac=1, random_state=3)
    for cell, (data, *_) in enumerate(CELLS):
        part = shuffled[shuffled["data"] == data]
        pairs = zip(
            values(rows, cell, "cv+", "score"), values(rows, cell, "worst", "score"), strict=True
        )
        ratios = [first / second for first, second in pairs]
        found = paired(part, "cv+", "worst")
        assert found == pytest.approx((statistics.mean(ratios), standard_error(ratios)))
    # The same luck in both methods is no error.
    luck = rows["trial"].map({0: 1.0, 1: 2.0, 2: 4.0, 3: 8.0})
    same = rows.assign(score=luck * rows["method"].map({name: KINDS[name][0] for name in KINDS}))
    part = same[same["data"] == "communities"]
    assert paired(part, "cv+", "worst") == pytest.approx((4 / 9, 0.0))


def test_one_setting_meets_the_best_of_the_others() -> None:
    rows = made()
    heads, lines = verdict_lines(rows)
    assert heads == ("data", ONE_NETWORK, "best other", "its score", "ratio")
    assert [line[0] for line in lines] == [title(*cell) for cell in CELLS]
    for cell, line in enumerate(lines):
        means = {name: statistics.mean(values(rows, cell, name, "score")) for name in KINDS}
        assert line[1:4] == (f"{means[ONE_NETWORK]:.3g}", "cv+", f"{means['cv+']:.3g}")
        ratio, error = paired(rows[rows["data"] == CELLS[cell][0]], ONE_NETWORK, "cv+")
        assert line[4] == f"{ratio:.3f} ± {error:.3f}"
    assert verdict_sentence(rows).startswith("It is ahead of all others in 2 of 2 cells")


def test_costs_are_those_of_the_same_widths(committed: pd.DataFrame) -> None:
    heads, lines = cost_lines(committed)
    assert len(heads) == 7
    found = {line[0]: line[1:] for line in lines}
    assert [found['`"plus"`'][place] for place in (2, 5)] == ["1.00", "1.00"]
    for name, certified in (("plus", 0.81), ("full", 0.9), ("minmax", 0.9), ("cv+", 0.74)):
        assert float(found[f'`"{name}"`'][0]) == pytest.approx(certified, abs=0.01)
    part = committed[committed["n"] == 100].groupby(["method", "data"])["width"].mean()
    ratios = part["lazyknife_full"] / part["lazyknife_leverage"]
    assert found['`"full"`'][2] == f"{ratios.mean():.2f}"


def test_the_figure_has_a_panel_for_each_cell_and_a_mark_for_each_other_method() -> None:
    rows = made()
    study = Study("choices", "Who is better?", (), figure="scores")
    for figure in (draw(study, rows), draw_scores(study, rows)):
        assert len(figure.axes) == 2
        assert [ax.get_title(loc="left") for ax in figure.axes] == [title(*cell) for cell in CELLS]
        assert figure.get_suptitle() == "Who is better?"
        for cell, ax in enumerate(figure.axes):
            names = {label.get_text() for label in ax.get_yticklabels()}
            others = set(KINDS) - {ONE_NETWORK}
            assert names == {in_words(method) for method in others}
            part = rows[rows["data"] == CELLS[cell][0]]
            lines = [line.get_xdata() for line in ax.lines]
            points = [np.ravel(marks.get_offsets()) for marks in ax.collections]
            drawn = np.concatenate([*lines, *points]).astype(float)
            for method in others:
                value = paired(part, method, ONE_NETWORK)[0]
                outside = value > ax.get_xlim()[1]  # an outlier is written at the edge
                assert outside or np.isclose(drawn, value).any()


# What is committed


@pytest.fixture(scope="module")
def committed() -> pd.DataFrame:
    return pd.read_csv(COMMITTED)


def test_the_study_names_methods_that_exist_and_certify(committed: pd.DataFrame) -> None:
    methods = {trial.method for trial in STUDIES["choices"].expand()}
    assert methods == set(committed["method"])
    assert methods <= set(METHODS)
    ours = committed[committed["method"].str.startswith(OURS)]
    assert ours["certified"].notna().all()
    assert ONE_NETWORK in methods
    assert len({*ours["method"]}) > 5


def test_the_committed_verdicts_are_those_of_valid_methods(committed: pd.DataFrame) -> None:
    _, lines = verdict_lines(committed)
    cells = [part for _, part in committed.groupby(CELL, sort=False, dropna=False)]
    assert len({line[0] for line in lines}) == len(cells) == 10
    for line, part in zip(lines, cells, strict=True):
        means = part.groupby("method")[["score", "coverage"]].mean()
        valid = means[means["coverage"] >= VALID]["score"]
        assert line[2] == valid[~valid.index.str.startswith(OURS)].idxmin()
    assert verdict_sentence(committed).count(" of 10 cells") == 1
