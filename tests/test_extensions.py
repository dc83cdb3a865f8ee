"""One of each kind of variant, registered here in its dict, used through the estimator.

What each class below says is all that an addition takes: one file and one entry.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import Tensor

import lazyknife as lk
from lazyknife.base import BASES
from lazyknife.base.method import Task
from lazyknife.intervals import CONSTRUCTIONS
from lazyknife.intervals.constructions import plus
from lazyknife.losses import LOSSES
from lazyknife.networks import KINDS
from lazyknife.networks.wide import Gaussian
from lazyknife.records import INDEPENDENT, Base, Ends, LeaveOneOut, PrivacyCurve
from lazyknife.ridge.system import RidgeModels
from lazyknife.ridge.widths import WIDTHS, LeverageScales, Widths, leverage
from lazyknife.tangent import EXACT, FEATURES, Basis, Sketch, Tangent
from rows import linear

X, y = linear(40)
NEW = np.random.default_rng(1).normal(size=(15, X.shape[1]))


def fitted(**settings: object) -> lk.LazyJackknifeRegressor:
    model = lk.LazyJackknifeRegressor(lk.mlp((8,)), random_state=0, **settings)  # type: ignore[arg-type]
    return model.fit(X, y)


def doubled(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Jackknife+ whose intervals are twice as wide around the point."""
    point, lower, upper = plus(loo, X, ranks)
    return point, 2 * lower - point[:, None], 2 * upper - point[:, None]


DOUBLED = replace(CONSTRUCTIONS["plus"], summary="twice as wide as plus", ends=doubled)


def test_a_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ValueError, match="construction='doubled': choose from 'auto', 'plus', 'minmax'"
    ):
        fitted(construction="doubled")
    monkeypatch.setitem(CONSTRUCTIONS, "doubled", DOUBLED)
    single, double = fitted(), fitted(construction="doubled")
    found, wanted = double.predict_interval(NEW), single.predict_interval(NEW)
    np.testing.assert_allclose(found.width, 2 * wanted.width)
    assert double.certificate_.coverage == single.certificate_.coverage
    assert lk.certify(n=40, alpha=0.1, construction="doubled") == double.certificate_
    assert lk.plan(n=40, coverage=0.7, base=lk.Public(), construction="doubled").alpha is not None
    with pytest.raises(ValueError, match=r"'naive' has no.*'split' or 'doubled'"):
        lk.plan(n=40, coverage=0.7, base=lk.Public(), construction="naive")
    monkeypatch.setitem(CONSTRUCTIONS, "silent", replace(DOUBLED, miss=None))
    certificate = fitted(construction="silent").certificate_
    assert certificate.coverage is None
    assert "'silent' has no coverage guarantee: use 'plus'" in str(certificate)


TAKERS = [
    lk.LazyJackknifeRegressor(lk.mlp((8,)), random_state=0),
    lk.LazyJackknifeRegressor(lk.mlp((8,)), widths="constant", random_state=0),
    lk.LazyJackknifeRegressor(random_state=0),
    lk.JackknifeRegressor(lk.mlp(()), epochs=1, random_state=0),
]


@pytest.mark.parametrize("model", TAKERS)
def test_a_construction_may_be_passed_as_an_object_and_certifies_nothing(model: Any) -> None:
    single = clone(model).fit(X, y)
    double = clone(model).set_params(construction=DOUBLED).fit(X, y)
    found, wanted = double.predict_interval(NEW), single.predict_interval(NEW)
    np.testing.assert_allclose(found.width, 2 * wanted.width)
    assert double.certificate_.coverage is None
    said = "coverage of construction Construction('twice as wide as plus'), which was passed"
    assert said in str(double.certificate_)
    assert said in str(lk.certify(n=40, alpha=0.1, construction=DOUBLED))
    assert clone(double).construction is not None


def test_an_object_of_the_package_is_known_and_refused_where_its_models_lack() -> None:
    given = fitted(construction=CONSTRUCTIONS["minmax"])
    assert given.certificate_.coverage == fitted(construction="minmax").certificate_.coverage
    whole = replace(CONSTRUCTIONS["full"], summary="whole")
    with pytest.raises(ValueError, match=r"\('whole'\) requires the models of LazyJackknife"):
        lk.JackknifeRegressor(construction=whole).fit(X, y)
    with pytest.raises(ValueError, match="construction=3: choose from 'auto', 'plus', 'minmax'"):
        fitted(construction=3)


def rooted(models: RidgeModels, gamma: float) -> LeverageScales:
    """The square root of the leverage's σ."""
    found = leverage(models, gamma)

    class Root(LeverageScales):
        @property
        def own(self) -> Tensor:
            return super().own.sqrt()

        def at(self, rows: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
            sigma, error = super().at(rows, norms)
            return sigma.sqrt(), error

    return Root(found.factors, found.ridges, found.gamma)


def test_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WIDTHS, "rooted", Widths(rooted))
    model = fitted(widths="rooted")
    assert model.widths_ == "rooted"
    spreads = [np.ptp(fitted(widths=w).predict_interval(NEW).width) for w in ("leverage", "rooted")]
    assert 0 < spreads[1] < spreads[0]
    assert model.certificate_.coverage == fitted(widths="leverage").certificate_.coverage


class Rational(Gaussian):
    """1/(1 + Σ w²(x − x')²/2)."""

    def link(self, total: Tensor, left: Tensor, right: Tensor) -> Tensor:
        return 1 / (1 + total)


def test_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="kind='rational': choose from 'gaussian', 'laplace'"):
        lk.wide("rational")
    monkeypatch.setitem(KINDS, "rational", Rational())
    model = lk.LazyJackknifeRegressor([lk.wide("rational"), lk.wide("relu")]).fit(X, y)
    assert set(model.choice_.counts) == {"rational", "relu"}
    assert sum(model.choice_.counts.values()) == 40
    assert model.certificate_.coverage is not None


@dataclass(frozen=True)
class Zeros(lk.BaseMethod):
    """Start from weights that are all 0."""

    def dependence(self, n: int, n_parameters: int | None = None) -> PrivacyCurve:
        return INDEPENDENT

    def learn(self, task: Task) -> Base:
        module = lk.mlp((8,))(task.X.shape[1]).double()
        for parameter in module.parameters():
            torch.nn.init.zeros_(parameter)
        return Base(module, INDEPENDENT)


def test_a_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BASES, "zeros", Zeros)
    model = fitted(base=BASES["zeros"](), ridge=1.0)
    assert model.certificate_.coverage == fitted().certificate_.coverage
    point = model.predict(NEW)
    assert np.ptp(point) < 1e-9  # only the last bias moves


@dataclass(frozen=True)
class Halved(lk.Squared):
    """Half of the squared loss, by Newton's method: the same models at half the ridge."""

    name = "halved"
    closed_form = False

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        return super().value(f, y) / 2

    def gradient(self, f: Tensor, y: Tensor) -> Tensor:
        return super().gradient(f, y) / 2

    def curvature(self, f: Tensor, y: Tensor) -> Tensor:
        return super().curvature(f, y) / 2


def test_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="loss='halved': choose from 'squared', 'huber'"):
        fitted(loss="halved")
    monkeypatch.setitem(LOSSES, "halved", Halved)
    found = fitted(loss="halved", ridge=0.5).predict_interval(NEW)
    wanted = fitted(ridge=1.0, widths="constant").predict_interval(NEW)
    np.testing.assert_allclose(found.to_numpy(), wanted.to_numpy(), rtol=1e-7)


@dataclass(frozen=True)
class FirstOnly(Sketch):
    """A projection with a seed of its own."""

    dimension: int = 12

    def basis(self, tangent: Tangent, X: Tensor, seed: int, kernel: bool = False) -> Basis:
        return super().basis(tangent, X, seed=99, kernel=kernel)


def test_a_feature_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEATURES, "first", FirstOnly)
    model = fitted(features=FEATURES["first"](), ridge=1.0)
    other = replace(Sketch(12))
    assert model.loo_.basis.size == 12  # type: ignore[attr-defined]
    assert model.certificate_.coverage == fitted(features=other, ridge=1.0).certificate_.coverage
    assert not np.allclose(model.predict(NEW), fitted(features=EXACT, ridge=1.0).predict(NEW))
