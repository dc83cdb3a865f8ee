"""Warnings point at the line of the user that caused them."""

import inspect
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


def here() -> int:
    return inspect.currentframe().f_back.f_lineno


def caught(call, match, category=UserWarning):
    with pytest.warns(category, match=match) as found:
        call()
    return {(Path(one.filename), one.lineno) for one in found if match in str(one.message)}


def test_a_warning_outside_the_package_points_at_its_own_line():
    assert caught(lambda: warn("own"), "own") == {(Path(__file__), here())}


def test_predictions_warn_at_the_line_that_asked_for_them():
    X, y = linear(8)
    model = lk.LazyJackknifeRegressor(**MODEL, alpha=0.05).fit(X, y)
    found = caught(lambda: model.predict_interval(X), "too few"), here()
    assert found[0] == {(Path(__file__), found[1])}
    pipeline = make_pipeline("passthrough", model)
    found = caught(lambda: lk.predict_interval(pipeline, X), "too few"), here()
    assert found[0] == {(Path(__file__), found[1])}
    pooled = lk.LazyJackknifeRegressor(**MODEL, scaling="standardize", alpha=0.3)
    pooled.fit(X, y, X_pool=X)
    found = caught(lambda: next(pooled.predict_interval(iter([X + 1]))), "X_pool"), here()
    assert found[0] == {(Path(__file__), found[1])}


def test_fits_warn_at_the_line_that_asked_for_them():
    X, y = linear(20)
    X[:, 0] *= 1e17
    model = lk.LazyJackknifeRegressor(**MODEL | {"ridge": 1e-12}, scaling=None)
    found = caught(lambda: model.fit(X, y), "no coverage is guaranteed"), here()
    assert found[0] == {(Path(__file__), found[1])}


def test_frames_of_scikit_learn_are_passed_over():
    X, y = linear(12)
    model = lk.LazyJackknifeRegressor(**MODEL)
    found = caught(lambda: model.fit(X, y[:, None]), "column-vector", DataConversionWarning), here()
    assert found[0] == {(Path(__file__), found[1])}
    score = lambda: cross_val_score(make_pipeline(model), X, y[:, None], cv=2)  # noqa: E731
    found = caught(score, "column-vector", DataConversionWarning), here() - 1
    assert found[0] == {(Path(__file__), found[1])}


def test_the_package_warns_in_no_other_way():
    own = [path for path in ROOT.rglob("*.py") if "warnings.warn(" in path.read_text()]
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
