"""Settings that change after the fit, and certificates that know."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import MinMaxScaler

import lazyknife as lk
from rows import linear

X, Y = linear(40)
SETTINGS: dict[str, Any] = {"ridge": 1.0, "random_state": 0}
NETWORK = lk.mlp((4,))


def fitted(**settings: Any) -> lk.LazyJackknifeRegressor:
    return lk.LazyJackknifeRegressor(NETWORK, **SETTINGS | settings).fit(X, Y)


CHANGES = [
    {"construction": "minmax"},
    {"base": lk.Plain()},
    {"base__fraction": 0.25},
    {"ridge": np.array([1.0, 2.0])},
    {"network": lk.mlp((5,))},
    {"scaling": "symlog"},
    {"random_state": 1},
    {"scaling__feature_range": (0, 2)},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_after_a_change_intervals_and_certificates_need_a_fit(change: dict[str, Any]) -> None:
    model = fitted(base=lk.Split(), scaling=MinMaxScaler())
    before = model.predict(X)
    model.set_params(**change)
    for ask in (
        lambda: model.certificate_,
        model.certify,
        lambda: model.certify(alpha=0.2),
        lambda: model.predict_interval(X),
        lambda: model.predict_interval(iter([X])),
    ):
        with pytest.raises(NotFittedError, match=r"was fitted with .*: call fit again"):
            ask()
    assert not hasattr(model, "certificate_")
    assert model._repr_html_()  # notebooks show what set_params returns
    np.testing.assert_array_equal(model.predict(X), before)  # as in scikit-learn
    if "ridge" not in change:
        assert len(model.fit(X, Y).predict_interval(X)) == 40


def test_equal_settings_are_no_change_and_a_setting_may_be_set_back() -> None:
    model = fitted(base=lk.Split(0.4))
    certificate = model.certificate_
    model.set_params(base=lk.Split(0.4), ridge=np.float64(1.0))
    assert model.certificate_ is certificate
    model.construction = "jackknife"
    with pytest.raises(ValueError, match="construction='jackknife', but LazyJackknifeRegressor"):
        model.predict_interval(X)
    model.construction = "auto"
    assert model.certificate_ is certificate


def test_the_level_and_the_relaxation_may_change_and_the_certificate_follows() -> None:
    model, other = fitted(alpha=0.1), fitted(alpha=0.3)
    model.alpha = 0.3
    assert model.certificate_ == model.certify() == other.certificate_
    assert model.predict_interval(X) == other.predict_interval(X)
    model.set_params(alpha=0.1)
    assert model.certificate_ == model.certify(0.1)
    narrow = model.predict_interval(X)
    wide = model.set_params(nu=0.5).predict_interval(X)
    np.testing.assert_allclose(wide.width, narrow.width + 1)
    assert wide.certificate == narrow.certificate
    model.nu = -0.5
    with pytest.raises(ValueError, match=r"nu=-0\.5"):
        model.predict_interval(X)
    model.alpha = 1.5
    with pytest.raises(ValueError, match=r"alpha=1\.5"):
        _ = model.certificate_


@pytest.mark.parametrize("network", [torch.nn.Linear(X.shape[1], 1), None], ids=["module", "none"])
def test_copies_of_a_fitted_model_keep_its_guarantee(network: Any) -> None:
    unfitted = lk.LazyJackknifeRegressor(network, **SETTINGS)
    assert not hasattr(unfitted, "certificate_")
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        unfitted.certify()
    model = unfitted.fit(X, Y)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert again.certificate_ == model.certificate_
        assert again.predict_interval(X) == model.predict_interval(X)
        assert again.certify(0.2) == model.certify(0.2)
        with pytest.raises(NotFittedError):
            again.set_params(ridge=3.0).predict_interval(X)


def test_the_certificate_says_what_set_params_set() -> None:
    plain = fitted().certificate_
    assert not any("set_params" in remark for remark in plain.remarks)
    model = lk.LazyJackknifeRegressor(NETWORK, ridge=3.0, random_state=0)
    model.set_params(ridge=2.0, device="cpu").set_params(ridge=1.0).fit(X, Y)
    for certificate in (model.certificate_, model.certify(0.2)):
        (note,) = [remark for remark in certificate.remarks if "set_params" in remark]
        assert "as searches such as GridSearchCV do: ridge. If" in note
        assert note in certificate.details
    assert model.certificate_.coverage == plain.coverage
    assert clone(model).fit(X, Y).certificate_ == plain  # the clone was made with its settings
    assert pickle.loads(pickle.dumps(model)).certify(0.2) == model.certify(0.2)
