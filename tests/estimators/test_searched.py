"""Certificates after a search over settings."""

from typing import Any

import pytest
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


def test_the_misses_of_all_settings_are_added() -> None:
    search = searched({"ridge": [0.1, 1.0, 10.0]})
    own, found = search.best_estimator_.certificate_, lk.after_search(search)
    assert own.coverage == lk.certify(n=60, alpha=0.05).coverage
    assert found.coverage == pytest.approx(1 - 3 * (1 - own.coverage))
    assert found.bounds["search"] == found.coverage < found.bounds["ghost_point"] == own.coverage
    assert "chosen among 3 settings" in str(found)
    assert "union bound" in str(found)
    assert "Nothing but these 3 settings was compared" in str(found)
    assert "No setting was chosen by looking" not in str(found)
    assert "set_params" in str(own)
    assert "set_params" not in str(found)


def test_settings_with_guarantees_of_their_own() -> None:
    bases = [lk.Public(), lk.Split(0.5)]
    search = searched({"base": bases, "construction": ["plus", "minmax"]})
    misses = [
        1 - lk.certify(n=60, alpha=0.05, base=base, construction=construction).coverage  # type: ignore[operator]
        for base in bases
        for construction in ("plus", "minmax")
    ]
    assert lk.after_search(search).coverage == pytest.approx(1 - sum(misses))


def test_settings_of_the_base_can_be_searched() -> None:
    start = model(base=lk.DPSGD(epochs=1), alpha=0.1)
    search = searched({"base__epsilon": [0.01, 0.1]}, start)
    assert set(search.best_params_) == {"base__epsilon"}
    assert search.best_estimator_.base.epsilon in (0.01, 0.1)
    misses = [
        1 - lk.certify(n=60, alpha=0.1, base=lk.DPSGD(epsilon, epochs=1)).coverage  # type: ignore[operator]
        for epsilon in (0.01, 0.1)
    ]
    assert lk.after_search(search).coverage == pytest.approx(1 - sum(misses))
    assert start.base == lk.DPSGD(epochs=1)


def test_what_any_of_the_settings_assumes_is_assumed() -> None:
    import torch

    networks = [lk.mlp((4,)), torch.nn.Linear(X.shape[1], 1)]
    search = searched({"network": networks})
    assert any("starting weights" in one for one in lk.after_search(search).assumptions)
    alone = searched({"network": networks[:1]})
    assert not any("starting weights" in one for one in lk.after_search(alone).assumptions)


def test_many_settings_leave_nothing() -> None:
    search = searched({"ridge": [0.1, 1.0], "fit_intercept": [True, False]}, model(alpha=0.2))
    found = lk.after_search(search)
    assert found.coverage == 0.0
    assert str(found).startswith("The guarantee is vacuous")


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
        assert "those compared are not all certified. To lose nothing" in str(found)


def test_baselines_keep_their_own_theorem() -> None:
    start = lk.SplitConformalRegressor(lk.mlp((4,)), epochs=1, alpha=0.05, random_state=0)
    search = searched({"epochs": [1, 2]}, start)
    own = search.best_estimator_.certificate_.coverage
    assert lk.after_search(search).coverage == pytest.approx(1 - 2 * (1 - own))
    assert lk.after_search(searched({"calibration": [0.4, 0.5]}, start)).coverage is None


def test_searches_that_list_their_settings_count() -> None:
    search = RandomizedSearchCV(model(), {"ridge": [0.1, 1.0, 10.0]}, n_iter=2, scoring=SCORE, cv=2)
    own = search.fit(X, Y).best_estimator_.certificate_.coverage
    assert lk.after_search(search).coverage == pytest.approx(1 - 2 * (1 - own))


class Adaptive:
    """A search that looked at the rows before it decided what to compare."""

    best_estimator_ = model().fit(X, Y)


def test_other_searches_leave_no_guarantee() -> None:
    found = lk.after_search(Adaptive())
    assert found.coverage is None
    assert found.bounds == {}
    assert "did not list the settings before it looked" in str(found)


def test_what_is_no_search_over_an_estimator_is_refused() -> None:
    piped = GridSearchCV(make_pipeline(model()), {"lazyjackkniferegressor__ridge": [1.0]}, cv=2)
    for wrong in (model(), GridSearchCV(model(), {"ridge": [1.0]}), piped.fit(X, Y)):
        with pytest.raises(TypeError, match="give a fitted search, with refit=True"):
            lk.after_search(wrong)


def test_searching_on_other_rows_loses_nothing() -> None:
    """The recipe of the guide."""
    search = GridSearchCV(model(), {"ridge": [0.1, 1.0]}, scoring=SCORE, cv=2).fit(X[:20], Y[:20])
    final = clone(search.best_estimator_).fit(X[20:], Y[20:])
    assert final.certificate_ == lk.certify(n=40, alpha=0.05)
