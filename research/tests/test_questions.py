"""The rows beside peers: the page and the figures are made of them."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from research.experiments import questions
from research.pages import DOCS, RESULTS, fill

from alike import check_same_page

ROWS = pd.read_csv(RESULTS / "questions.csv")


def test_the_tables_are_those_of_the_committed_rows():
    page = (DOCS / "evidence.md").read_text(encoding="utf-8")
    check_same_page(fill(page, questions.tables(ROWS)), page)
    counts = ROWS.groupby("question")["trial"].count()
    cells = len(questions.SETS) * questions.TRIALS["distributions"] * len(questions.METHODS)
    assert counts["distributions"] == cells


def test_figures_show_the_committed_rows():
    ax = Figure().subplots()
    questions.shifted(ROWS, ax)
    known = ROWS.query("question == 'shift' and method == 'known'")
    found = {line.get_label(): line.get_ydata() for line in ax.lines}
    wanted = known.groupby("data")["coverage"].mean()
    np.testing.assert_allclose(found["known"], wanted)


def test_quantile_methods_give_a_number_for_each_level():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + rng.normal(size=60)
    for name in ("lazyknife", "Gaussian process", "CV+, Gaussian process"):
        found = questions.METHODS[name](X[:50], y[:50], X[50:])
        assert found.shape == (10, len(questions.LEVELS))
        assert (np.diff(found, axis=1) >= 0).all()
