"""Scorers of intervals in scikit-learn's own tools."""

import pickle

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import lazyknife as lk
from rows import linear

X, Y = linear(45)
MODEL = lk.LazyJackknifeRegressor(lk.mlp((4,)), ridge=1.0, alpha=0.2, random_state=0)


@pytest.mark.parametrize("alpha", [None, 0.3])
def test_scores_are_those_of_the_metrics(alpha):
    fitted = MODEL.fit(X, Y)
    intervals = fitted.predict_interval(X, alpha=alpha)
    assert lk.coverage_scorer(alpha)(fitted, X, Y) == lk.coverage(Y, intervals).value
    score = lk.interval_score_scorer(alpha)(fitted, X, Y)
    assert type(score) is float
    assert score == -lk.interval_score(Y, intervals).value


def test_greater_is_better_in_cross_validation():
    found = cross_validate(
        MODEL, X, Y, cv=3, scoring={"c": lk.coverage_scorer(), "s": lk.interval_score_scorer(0.2)}
    )
    assert ((found["test_c"] > 0) & (found["test_c"] <= 1)).all()
    noise = np.random.default_rng(0).normal(size=len(Y))
    worse = cross_val_score(MODEL, noise[:, None], Y, cv=3, scoring=lk.interval_score_scorer(0.2))
    assert worse.mean() < found["test_s"].mean() < 0


def test_a_grid_chooses_by_the_interval_score():
    search = GridSearchCV(
        MODEL, {"ridge": [0.1, 1e6]}, scoring=lk.interval_score_scorer(), cv=3
    ).fit(X, Y)
    assert search.best_params_ == {"ridge": 0.1}


def test_scorers_compare_pickle_and_refuse():
    scorer = lk.interval_score_scorer(0.1)
    assert pickle.loads(pickle.dumps(scorer)) == scorer == lk.interval_score_scorer(alpha=0.1)
    assert scorer != lk.coverage_scorer(0.1)
    with pytest.raises(ValueError, match="alpha=2"):
        lk.coverage_scorer(2)
    with pytest.raises(TypeError, match="model is of type Ridge: give a fitted Pipeline"):
        scorer(Ridge(), X, Y)


def test_pipelines_are_scored_too():
    piped = make_pipeline(FunctionTransformer(), MODEL).fit(X, Y)
    assert lk.interval_score_scorer()(piped, X, Y) == lk.interval_score_scorer()(piped[-1], X, Y)
