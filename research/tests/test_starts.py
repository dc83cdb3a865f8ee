"""The experiment on random starts: its rows, its table, and a run on a small table."""

from pathlib import Path

import numpy as np
import pandas as pd
from research.datasets import DataSet
from research.experiments import starts

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_of_the_guide_is_that_of_the_rows():
    rows = pd.read_csv(DOCS / "starts" / "widths.csv", dtype={"method": str})
    assert starts.table(rows) in (DOCS / "default.md").read_text()
    found = starts.moves(rows)
    assert (found[starts.DEFAULT] == 0).all()
    assert (found["32"] < found["1"]).all()
    assert found["1"].max() > 0.2


def test_moves_are_ranges_over_means():
    rows = pd.DataFrame({"table": "a", "method": "1", "seed": range(3), "width": [1.0, 2.0, 3.0]})
    assert starts.moves(rows).loc["a", "1"] == 1.0
    assert "| a | 100.0 % |" in starts.table(rows)


def test_a_run_on_a_small_table(monkeypatch):
    monkeypatch.setattr(starts, "LABELLED", 12)
    monkeypatch.setattr(starts, "SEEDS", 2)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    data = DataSet("small", X, X.sum(axis=1), ("a", "b"), "sum", None, "Small")
    rows = starts.run([data], (1,))
    assert list(rows["method"]) == ["default", "1"] * 2
    assert (rows["width"] > 0).all()
