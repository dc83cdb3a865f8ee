"""The experiment on private learning: its rows, its page, and a run on tiny settings."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from research.experiments import trade
from research.pages import DOCS

import lazyknife as lk


@pytest.fixture(scope="module")
def committed() -> pd.DataFrame:
    return pd.read_csv(DOCS / "trade/rows.csv")


@pytest.fixture(scope="module")
def summary(committed: pd.DataFrame) -> pd.DataFrame:
    return trade.summarise(committed).set_index(["data", "n", "wanted", "base"]).sort_index()


def test_the_committed_rows_are_those_of_the_settings(committed: pd.DataFrame) -> None:
    """On trials that had no part in choosing the settings."""
    assert trade.FIRST_TRIAL > 2
    cells = [
        (case.data, case.n, name, trade.FIRST_TRIAL + k, wanted)
        for case in trade.CASES
        for k in range(case.trials)
        for name in trade.models(case)
        for wanted in trade.WANTED
    ]
    key = ["data", "n", "base", "trial", "wanted"]
    assert sorted(committed[key].itertuples(index=False, name=None)) == sorted(cells)


def test_certificates_are_equal(committed: pd.DataFrame) -> None:
    """Each reaches what is wanted, and none is much higher."""
    gap = committed["certified"] - committed["wanted"]
    assert gap.min() >= 0
    assert gap.max() < 0.01
    assert (committed["coverage"] > committed["wanted"]).all()


def test_the_figure_is_drawn_from_the_committed_rows(
    committed: pd.DataFrame, tmp_path: Path
) -> None:
    trade.write(committed, tmp_path)
    assert (tmp_path / "trade/trade.svg").stat().st_size > 5000
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "trade/rows.csv"), committed, rtol=1e-4)


def test_what_the_page_says_holds(summary: pd.DataFrame) -> None:
    private = summary[summary.index.get_level_values("base").str.startswith("ε")]
    at = private.xs(0.8, level="wanted")
    for data in ("one", "two"):
        assert (at.loc[data, "against_public"] > 0).all()
    assert (at.loc[["computers", "meps_2016_panel21"], "against_public"].between(-27, -5.8)).all()
    assert (at.loc[["bikeshare", "computers", "meps_2016_panel21"], "against_default"] < 0).all()
    said = {
        ("one", 3000, "ε = 1"): (30, 17),
        ("one", 10_000, "ε = 0.5"): (43, 33),
        ("one", 30_000, "ε = 0.1"): (47, 40),
        ("two", 3000, "ε = 1"): (26, -8),
        ("two", 10_000, "ε = 0.5"): (48, 22),
    }
    for cell, (public, default) in said.items():
        assert at.loc[cell, "against_public"] == pytest.approx(public, abs=0.5)
        assert at.loc[cell, "against_default"] == pytest.approx(default, abs=0.5)
    public = at.loc["bikeshare", "against_public"]
    assert public[3000, "ε = 1"] == pytest.approx(14, abs=0.5)
    assert public[6500, "ε = 0.5"] == pytest.approx(29, abs=0.5)
    assert public[6500, "ε = 0.5, automatic step"] == pytest.approx(2, abs=0.5)
    widths = summary.xs(0.8, level="wanted")
    free = at.loc[("bikeshare", 6500, "ε = 0.5"), "unpaid"]
    assert free / widths.loc[("bikeshare", 6500, "default"), "width"] == pytest.approx(
        2.3, abs=0.05
    )
    for case in (("computers", 5000), ("meps_2016_panel21", 3000)):
        assert at.loc[case, "unpaid"].min() > 0.99 * widths.loc[(*case, "public"), "width"]
    assert (at["against_split"] < 0).all()
    for data, n in (
        ("one", 3000),
        ("one", 10_000),
        ("one", 30_000),
        ("two", 3000),
        ("two", 10_000),
    ):
        best = at.loc[(data, n), "width"].min()
        assert 0.225 < 1 - widths.loc[(data, n, "split"), "width"] / best < 0.465


def made() -> pd.DataFrame:
    """Two trials of four models."""
    widths = {"default": (4.0, 2.0), "split": (1.0, 2.0), "public": (2.0, 4.0), "ε = 1": (1.0, 3.0)}
    columns = ("alpha", "certified", "coverage", "score", "unpaid", "base_r2")
    return pd.DataFrame(
        {"data": "one", "n": 1000, "base": base, "trial": trial, "wanted": 0.8, "width": width}
        | dict.fromkeys(columns, 0.5)
        for base, both in widths.items()
        for trial, width in enumerate(both)
    )


def test_widths_are_compared_within_the_same_trial() -> None:
    for rows in (made(), made().sample(frac=1, random_state=1)):
        summary = trade.summarise(rows).set_index("base")
        assert summary.loc["public", "against_public"] == 0
        line = summary.loc["ε = 1"]
        saved = [100 * (1 - 1 / 2), 100 * (1 - 3 / 4)]
        assert line["against_public"] == pytest.approx(statistics.mean(saved))
        assert line["against_public_se"] == pytest.approx(statistics.stdev(saved) / 2**0.5)
        assert line["against_default"] == pytest.approx(100 * (1 - (1 / 4 + 3 / 2) / 2))
        assert (line["width"], line["width_se"], line["trials"]) == pytest.approx((2.0, 1.0, 2))


def test_it_runs_on_tiny_settings() -> None:
    case = trade.Case("one", 100, 1, (1.0,))
    rows = trade.run([case], new=40)
    assert rows["base"].tolist() == [n for n in trade.models(case) for _ in trade.WANTED]
    X, y, X_new, y_new = trade.rows_of(case, trade.FIRST_TRIAL, new=40)
    one = rows[rows["base"] == "ε = 1"].iloc[0]
    base = lk.DPSGD(epsilon=1.0, epochs=trade.EPOCHS, batch_size=5)
    model = lk.LazyJackknifeRegressor(lk.mlp((32, 32)), base, random_state=trade.FIRST_TRIAL)
    found = model.fit(X, y).predict_interval(X_new, alpha=float(one["alpha"]))
    assert one["alpha"] == lk.plan(n=100, coverage=0.8, base=base, network=model.network).alpha
    assert one["width"] == pytest.approx(found.width.mean())
    assert one["coverage"] == pytest.approx(found.covers(y_new).mean())
    beyond = np.maximum(found.lower - y_new, y_new - found.upper)
    assert one["score"] == pytest.approx((found.width + 20 * np.maximum(beyond, 0)).mean())
    public = rows[rows["base"] == "public"].iloc[0]
    assert one["unpaid"] < one["width"]
    assert public["unpaid"] == public["width"]
    assert math.isnan(rows["base_r2"].iloc[0])
