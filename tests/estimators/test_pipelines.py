"""``predict_interval`` of scikit-learn pipelines, and what it says about leaks."""

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import lazyknife as lk
from lazyknife import sentences
from rows import linear

MODEL = lk.LazyJackknifeRegressor(lk.mlp((6,)), ridge=1.0, random_state=0)
X, Y = linear(30)
X_NEW = linear(6, seed=1)[0]


def test_fixed_steps_keep_the_guarantee():
    fixed = FunctionTransformer(lk.symlog)
    pipeline = make_pipeline(fixed, "passthrough", MODEL).fit(X, Y)
    result = lk.predict_interval(pipeline, X_NEW)
    direct = MODEL.fit(lk.symlog(X), Y).predict_interval(lk.symlog(X_NEW))
    np.testing.assert_array_equal(result.to_numpy(), direct.to_numpy())
    assert result.certificate.coverage == direct.certificate.coverage
    added = set(result.certificate.assumptions) - set(direct.certificate.assumptions)
    assert added == {sentences.ROW_BY_ROW.format(transformer=fixed)}


def test_a_fitted_step_is_a_leak_and_is_named():
    pipeline = Pipeline([("scale", StandardScaler()), ("model", MODEL)]).fit(X, Y)
    result = lk.predict_interval(pipeline, X_NEW)
    assert result.certificate.coverage is None
    assert "The pipeline's step 'scale' was fitted on all training rows" in str(result.certificate)
    rows = StandardScaler().fit(X).transform(X_NEW)
    np.testing.assert_array_equal(result.lower, pipeline[-1].predict_interval(rows).lower)
    assert pipeline[-1].certificate_.coverage > 0  # knows nothing of the step before it
    levels = lk.predict_interval(pipeline, X_NEW, alpha=[0.1, 0.2])
    assert [one.coverage for one in levels.certificate] == [None, None]
    assert levels.lower.shape == (6, 2)
    outer = make_pipeline(FunctionTransformer(lk.symlog), pipeline).fit(X, Y)
    assert lk.predict_interval(outer, X_NEW).certificate.coverage is None
    alone = lk.predict_interval(pipeline[-1], X_NEW, 0.3)
    np.testing.assert_array_equal(alone.upper, pipeline[-1].predict_interval(X_NEW, 0.3).upper)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            TransformedTargetRegressor(MODEL, func=np.log, inverse_func=np.exp),
            "target_transform='log'",
        ),
        (LinearRegression(), "model is of type LinearRegression: give a fitted Pipeline"),
        (make_pipeline(LinearRegression()), "model is of type LinearRegression"),
    ],
)
def test_other_models_are_refused_with_a_way_out(model, words):
    with pytest.raises(TypeError, match=words):
        lk.predict_interval(model, X_NEW)
