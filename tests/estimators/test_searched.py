"""Certificates after a search over settings."""

from functools import partial
from typing import Any

import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import make_pipeline

import lazyknife as lk
from rows import linear

X, Y = linear(60)
SCORE = lk.interval_score_scorer(0.2)


def model(**settings: Any) -> lk.LazyJackknifeRegressor:
    given = {"ridge": 1.0, "alpha": 0.05, "random_state": 0} | settings
    return lk.LazyJackknifeRegressor(lk.mlp((4,)), **given)


def searched(grid: dict[str, list[Any]], start: Any = None, **options: Any) -> GridSearchCV:
    found = GridSearchCV(start or model(), grid, scoring=SCORE, cv=2, **options)
    return found.fit(X, Y)


@pytest.mark.parametrize("kind", [GridSearchCV, partial(RandomizedSearchCV, n_iter=3)])
def test_the_misses_of_all_settings_are_added(kind: Any) -> None:
    search = kind(model(), {"ridge": [0.1, 1.0, 10.0]}, scoring=SCORE, cv=2).fit(X, Y)
    own, found = search.best_estimator_.certificate_, lk.after_search(search)
    assert own.coverage == lk.certify(n=60, alpha=0.05).coverage
    assert found.coverage == pytest.approx(1 - 3 * (1 - own.coverage))
    assert found.bounds["search"] == found.coverage < found.bounds["ghost_point"] == own.coverage
    for words in ("chosen among 3 settings", "union bound", "Nothing but these 3 settings was"):
        assert words in found.details
    assert "No setting was chosen by looking" not in found.details
    assert "set_params" in own.details
    assert "set_params" not in found.details


BASES = [lk.Public(), lk.Split(0.5)]
PLANNED = [{"base": base, "construction": c} for base in BASES for c in ("plus", "minmax")]
PRIVATE = [lk.DPSGD(epsilon, epochs=1) for epsilon in (0.01, 0.1)]


@pytest.mark.parametrize(
    ("grid", "start", "own"),
    [
        ({"base": BASES, "construction": ["plus", "minmax"]}, {}, PLANNED),
        (
            {"base__epsilon": [0.01, 0.1]},
            {"base": lk.DPSGD(epochs=1), "alpha": 0.1},
            [{"base": base, "alpha": 0.1} for base in PRIVATE],
        ),
    ],
)
def test_settings_with_guarantees_of_their_own(grid: Any, start: Any, own: Any) -> None:
    search = searched(grid, model(**start))
    misses = [1 - lk.certify(**{"n": 60, "alpha": 0.05} | each).coverage for each in own]
    assert lk.after_search(search).coverage == pytest.approx(1 - sum(misses))
    if "base" in start:
        assert search.best_estimator_.base in PRIVATE
        assert start["base"] == lk.DPSGD(epochs=1)


def test_what_any_of_the_settings_assumes_is_assumed_and_many_leave_nothing() -> None:
    networks = [lk.mlp((4,)), torch.nn.Linear(X.shape[1], 1)]
    for count in (1, 2):
        found = lk.after_search(searched({"network": networks[:count]}))
        assert any("starting weights" in one for one in found.assumptions) == (count == 2)
    search = searched({"ridge": [0.1, 1.0], "fit_intercept": [True, False]}, model(alpha=0.2))
    found = lk.after_search(search)
    assert found.coverage == 0.0
    assert "The guarantee is vacuous" in str(found)


@pytest.mark.parametrize(
    "grid",
    [{"base": [lk.Public(), lk.Plain(epochs=1)]}, {"scaling": [None, "symlog"]}],
    ids=["one has no guarantee", "one may have none"],
)
def test_without_a_bound_for_each_setting_there_is_none(grid: dict[str, list[Any]]) -> None:
    search = searched(grid)
    found = lk.after_search(search)
    assert found.coverage is None
    if search.best_estimator_.certificate_.coverage is not None:
        assert "those compared are not all certified. To lose nothing" in found.details


def test_baselines_keep_their_own_theorem() -> None:
    start = lk.SplitConformalRegressor(lk.mlp((4,)), epochs=1, alpha=0.05, random_state=0)
    search = searched({"epochs": [1, 2]}, start)
    own = search.best_estimator_.certificate_.coverage
    assert lk.after_search(search).coverage == pytest.approx(1 - 2 * (1 - own))
    assert lk.after_search(searched({"calibration": [0.4, 0.5]}, start)).coverage is None


class Adaptive:
    """A search that looked at the rows before it decided what to compare."""

    best_estimator_ = model().fit(X, Y)


def test_other_searches_leave_no_guarantee_and_what_is_none_is_refused() -> None:
    found = lk.after_search(Adaptive())
    assert found.coverage is None
    assert found.bounds == {}
    assert "did not list the settings before it looked" in found.details
    piped = GridSearchCV(make_pipeline(model()), {"lazyjackkniferegressor__ridge": [1.0]}, cv=2)
    for wrong in (model(), GridSearchCV(model(), {"ridge": [1.0]}), piped.fit(X, Y)):
        with pytest.raises(TypeError, match="give a fitted search, with refit=True"):
            lk.after_search(wrong)
    # The recipe of the guide: a search on other rows loses nothing.
    search = GridSearchCV(model(), {"ridge": [0.1, 1.0]}, scoring=SCORE, cv=2).fit(X[:20], Y[:20])
    final = clone(search.best_estimator_).fit(X[20:], Y[20:])
    assert final.certificate_ == lk.certify(n=40, alpha=0.05)
