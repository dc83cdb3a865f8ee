"""The experiment on private learning: its rows, its page, and a run on tiny settings."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import pandas as pd
import pytest
from research.experiments import trade

import lazyknife as lk

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "docs/trade/rows.csv"


@pytest.fixture(scope="module")
def committed() -> pd.DataFrame:
    return pd.read_csv(ROWS)


def test_the_committed_rows_are_those_of_the_settings(committed: pd.DataFrame) -> None:
    cells = [
        (data, n, base, trial)
        for data in trade.DATA
        for n, trials in trade.SIZES.items()
        for trial in range(trials)
        for base in trade.bases(n)
    ]
    key = ["data", "n", "base", "trial"]
    found = set(committed[key].itertuples(index=False, name=None))
    assert found == set(cells)
    assert not committed.duplicated([*key, "certified"]).any()
    assert set(committed["certified"]) == set(trade.LEVELS)
    public = committed[committed["base"] == "public"]
    assert len(public) == len(trade.LEVELS) * len(trade.DATA) * sum(trade.SIZES.values())


def test_what_the_page_says_holds(committed: pd.DataFrame) -> None:
    summary = trade.summarise(committed)
    asked = summary[summary["certified"].isin(trade.WANTED) & (summary["base"] != "public")]
    assert (asked["saved"] < 0).all()  # it does not pay anywhere
    for _, part in asked.groupby(["data", "n", "certified"], sort=False):
        assert part["saved"].is_monotonic_decreasing  # and loses more with more ε
    learnt = summary.groupby(["data", "n", "base"])["base_r2"].first()
    assert learnt["simulated_p16", 10_000, "DP-SGD, ε = 0.1"] == pytest.approx(0.47, abs=0.01)
    assert learnt["blog_feedback", 10_000, "DP-SGD, ε = 0.5"] == pytest.approx(0.31, abs=0.01)


def made() -> pd.DataFrame:
    """Two trials of two bases; only the first certifies .9."""
    widths = {("public", 0.8): (2.0, 4.0), ("public", 0.9): (3.0, 5.0), ("other", 0.8): (1.0, 3.0)}
    return pd.DataFrame(
        {
            "data": "simulated_p16",
            "n": 1000,
            "base": base,
            "trial": trial,
            "certified": certified,
            "alpha": 0.25 - certified / 10,
            "coverage": certified,
            "width": width,
            "base_r2": 0.125 * trial,
        }
        for (base, certified), both in widths.items()
        for trial, width in enumerate(both)
    )


def test_widths_are_compared_with_the_public_starts_of_the_same_trial() -> None:
    for rows in (made(), made().sample(frac=1, random_state=1)):
        summary = trade.summarise(rows).set_index(["base", "certified"])
        assert (summary.loc["public", "saved"] == 0).all()
        saved = [100 * (1 - 1 / 2), 100 * (1 - 3 / 4)]
        line = summary.loc["other", 0.8]
        assert line["saved"] == pytest.approx(statistics.mean(saved))
        assert line["saved_se"] == pytest.approx(statistics.stdev(saved) / 2**0.5)
        assert (line["width"], line["width_se"]) == pytest.approx((2.0, 1.0))
        assert line["base_r2"] == 0.0625


def test_it_runs_on_tiny_settings(tmp_path: Path) -> None:
    cheap = {
        "public": lk.Public(),
        "noisy": lk.DPSGD(noise_multiplier=40.0, epochs=1, batch_size=10),
        "nothing": lk.DPSGD(noise_multiplier=0.05, epochs=1, batch_size=40),
    }
    rows = trade.run(("simulated_p16",), {40: 2}, lambda n: cheap, new=30, levels=(0.8, 0.9))
    wanted = itertools.product((0, 1), ("public", "noisy"), (0.8, 0.9))
    assert list(rows[["trial", "base", "certified"]].itertuples(index=False, name=None)) == list(
        wanted
    )  # what learns without noise certifies nothing
    one = rows.iloc[2]  # trial 0, the noisy base, .8
    X, y, X_new, y_new = trade.rows_of("simulated_p16", 40, 0, new=30)
    model = lk.LazyJackknifeRegressor(base=cheap["noisy"], construction="full", random_state=0)
    result = model.fit(X, y).predict_interval(X_new, alpha=float(one["alpha"]))
    assert one["width"] == pytest.approx(result.width.mean())
    assert one["coverage"] == pytest.approx(result.covers(y_new).mean())
    plan = lk.plan(n=40, coverage=0.8, construction="full", base=cheap["noisy"])
    assert one["alpha"] == plan.alpha
    trade.write(rows, tmp_path)
    assert (tmp_path / "trade/trade.svg").stat().st_size > 5000
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "trade/rows.csv"), rows, rtol=1e-4)
