"""Warnings point at the line of the user that caused them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import lazyknife as lk
from lazyknife.errors import warn
from rows import linear

MODEL = {"network": lk.mlp((4,)), "ridge": 1.0, "random_state": 0, "device": "cpu"}
ROOT = Path(lk.__file__).parent


def check_points_at(call, match, category=UserWarning):
    """The warning names the line on which the call was written."""
    with pytest.warns(category, match=match) as found:
        call()
    places = {(one.filename, one.lineno) for one in found if match in str(one.message)}
    assert places == {(__file__, call.__code__.co_firstlineno)}


def test_warnings_point_at_the_line_that_asked():
    X, y = linear(8)
    check_points_at(lambda: warn("own"), "own")
    model = lk.LazyJackknifeRegressor(**MODEL, alpha=0.05).fit(X, y)
    check_points_at(lambda: model.predict_interval(X), "too few")
    pipeline = make_pipeline("passthrough", model)
    check_points_at(lambda: lk.predict_interval(pipeline, X), "too few")
    pooled = lk.LazyJackknifeRegressor(**MODEL, scaling="standardize", alpha=0.3)
    pooled.fit(X, y, X_pool=X)
    check_points_at(lambda: next(pooled.predict_interval(iter([X + 1]))), "X_pool")
    raw = lk.LazyJackknifeRegressor(**MODEL | {"ridge": 1e-12}, scaling=None)
    check_points_at(lambda: raw.fit(X * [1e17, 1, 1], y), "no coverage is guaranteed")
    column = y[:, None]  # frames of scikit-learn are passed over
    check_points_at(lambda: model.fit(X, column), "column-vector", DataConversionWarning)
    score = lambda: cross_val_score(make_pipeline(model), X, column, cv=2)  # noqa: E731
    check_points_at(score, "column-vector", DataConversionWarning)
    own = [path for path in ROOT.rglob("*.py") if "warnings.warn(" in path.read_text("utf-8")]
    assert own == [ROOT / "errors.py"]


SETTINGS = """
import logging, warnings
import matplotlib.pyplot, numpy as np, pandas, scipy.optimize, sklearn.base, sympy, torch, narwhals
def settings():
    return list(warnings.filters), list(logging.root.handlers), logging.root.level
before = settings()
import lazyknife as lk
from lazyknife.plots import plot_intervals
X = np.random.default_rng(0).normal(size=(12, 2))
lk.LazyJackknifeRegressor(alpha=0.3, random_state=0).fit(X, X[:, 0])
base = lk.DPSGD(epsilon=2.0, epochs=1)
model = lk.LazyJackknifeRegressor(lk.mlp((4,)), base, alpha=0.3, random_state=0)
plot_intervals(model.fit(X, X[:, 0]).predict_interval(X), X[:, 0])
for now, then in zip(settings(), before, strict=True):
    assert now == then, (now, then)
"""


def test_fits_and_plots_leave_filters_of_warnings_and_the_root_logger_as_they_were():
    run = [sys.executable, "-W", "error::UserWarning", "-c", SETTINGS]
    found = subprocess.run(
        run, capture_output=True, text=True, env=os.environ | {"MPLBACKEND": "agg"}
    )
    assert found.returncode == 0, found.stderr
