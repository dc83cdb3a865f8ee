"""The experiment on what models choose: its rows, its figure, and a run on a small table."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest
from research.datasets import DATASETS, DataSet
from research.experiments import choosing
from research.pages import DOCS

import lazyknife as lk
from rows import linear


@pytest.fixture(scope="module")
def committed() -> choosing.Rows:
    folder = DOCS / "choosing"
    return choosing.Rows(*(pd.read_csv(folder / f"{name}.csv") for name in choosing.Rows._fields))


def test_the_committed_rows_are_those_of_the_settings(committed):
    networks, weights, intervals = committed
    assert set(networks.groupby("table")["models"].sum()) == {choosing.LABELLED}
    assert networks.groupby("table").size().eq(len(lk.networks.CANDIDATES)).all()
    features = {name: DATASETS[name].columns for name in choosing.TABLES}
    assert weights.groupby("table").size().to_dict() == features
    assert weights["left_out"].between(0, choosing.LABELLED).all()
    assert ((weights["weight"] == 0) <= (weights["left_out"] >= choosing.LABELLED / 2)).all()
    wanted = itertools.product(choosing.TABLES, choosing.COLOUR, range(choosing.NEW))
    assert list(zip(*(intervals[c] for c in ("table", "method", "row")), strict=True)) == [*wanted]


def test_what_the_page_says_holds(committed):
    summary = choosing.summarise(committed.intervals)
    assert (summary["coverage"] > 0.85).all()
    default, one = (summary.xs(method, level="method") for method in ("default", "one network"))
    ratio = default / one
    assert ratio.loc["bikeshare", "width"] == pytest.approx(0.5, abs=0.05)
    assert ratio.loc[["auto", "college"], "score"].between(0.95, 1.05).all()
    assert ratio.loc["auto", "score"] > 1
    weights = committed.weights.set_index(["table", "feature"])["weight"]
    assert weights["bikeshare"].nlargest(2).index.tolist() == ["hr", "workingday"]
    assert all(weights[name].nunique() == 1 for name in ("auto", "college"))


def test_the_figure_is_drawn_from_the_rows(committed):
    figure = choosing.draw(committed)
    assert len(figure.axes) == 2 * len(choosing.TABLES)
    left, right = figure.axes[:2]
    assert left.get_title() == "bikeshare\n100 models: anova_laplace"
    weights = committed.weights[committed.weights["table"] == "bikeshare"]
    assert [bar.get_width() > 0 for bar in left.patches] == (weights["weight"] > 0).tolist()
    notes = [text.get_text() for text in left.texts]
    assert notes == [f"left out by {k}" if k else "" for k in weights["left_out"]]
    assert [len(lines.get_segments()) for lines in right.collections] == [choosing.SHOWN] * 2
    width = choosing.summarise(committed.intervals).loc[("bikeshare", "default"), "width"]
    assert f"default: width {width:.2f}" in right.get_title()


def test_it_runs_on_a_small_table(tmp_path):
    X, y = linear(360, 3)
    X[-5:] = X[:5]  # rows that coincide must not be used as rows without labels
    rows = choosing.run([DataSet("made", X, y, ("a", "b", "c"), "y", None, "made")])
    choosing.write(rows, tmp_path)
    names = {f"{name}.csv" for name in choosing.Rows._fields} | {"choosing.svg"}
    assert {path.name for path in (tmp_path / "choosing").iterdir()} == names
    assert (tmp_path / "choosing/choosing.svg").stat().st_size > 5000
    assert rows.networks["models"].sum() == choosing.LABELLED
    assert rows.weights["feature"].tolist() == ["a", "b", "c"]
