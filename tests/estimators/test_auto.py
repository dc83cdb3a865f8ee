"""``construction="auto"``: what it stands for on both sides of the switch, and what it answers."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import pytest
import torch

import lazyknife as lk
from lazyknife.certificate.certify import About
from lazyknife.choosing.rows import MANY, part_of
from lazyknife.intervals import CONSTRUCTIONS, find_construction, is_parted, kappa, resolved
from rows import linear

QUICK = lk.wide("gaussian", scale=1.0)
SETTINGS: dict[str, Any] = {"ridge": 1.0, "feature_weights": None, "random_state": 0}
NEW = 40
SIDES = (MANY, MANY + 1)
OTHER = {"plus": "full", "full": "plus"}


def fitted(n: int, network: Any = QUICK, **settings: Any) -> lk.LazyJackknifeRegressor:
    X, y = linear(n)
    return lk.LazyJackknifeRegressor(network, **SETTINGS | settings).fit(X[:, :1], y)


@pytest.fixture(scope="module")
def models() -> dict[int, lk.LazyJackknifeRegressor]:
    return {n: fitted(n) for n in SIDES}


@pytest.fixture(scope="module")
def new() -> Any:
    return linear(NEW, seed=7)[0][:, :1]


@pytest.mark.parametrize(
    ("n", "networks", "widths", "expected"),
    [
        (MANY, [QUICK], None, "plus"),
        (MANY + 1, [QUICK], None, "full"),
        (MANY + 1, [QUICK], "constant", "full"),
        (MANY + 1, [QUICK], "leverage", "plus"),
        (MANY + 1, [QUICK, lk.mlp((4,))], None, "plus"),
    ],
)
def test_what_it_stands_for(n: int, networks: Any, widths: Any, expected: str) -> None:
    assert resolved("auto", is_parted(n, networks, "auto", widths)) == expected
    for name in (*CONSTRUCTIONS, CONSTRUCTIONS["minmax"]):
        assert resolved(name, parted=n > MANY) == name


def assert_certified(model: lk.LazyJackknifeRegressor, n: int, new: Any) -> None:
    """The intervals, their certificate and ``construction_`` are those of what should run."""
    few = n <= MANY  # then models choose on rows that coins pick
    expected, m = ("plus", n) if few else ("full", n - part_of(n))
    rank = kappa(0.1, m)
    assert model.construction_ == expected
    assert model.certificate_.coverage == 1 - (2 * rank / (m + 2) if few else rank / (m + 1))
    assert f"construction {expected!r}, n = {m}, " in model.certificate_.subject
    found = model.predict_interval(new)
    assert found.certificate == model.certificate_
    rows = torch.from_numpy(model.scaling_(new))
    _, lower, upper = find_construction(expected).ends(model.loo_, rows, [rank])
    ends = model.target_.ends(lower, upper, 0.0)
    assert np.array_equal(found.to_numpy(), torch.cat(ends, dim=1).numpy())


@pytest.mark.parametrize("n", SIDES)
def test_intervals_and_certificate_are_of_what_it_stands_for(models: Any, new: Any, n: int) -> None:
    model = models[n]
    assert_certified(model, n, new)
    assert model.certificate_ == lk.certify(n=n, alpha=0.1, network=QUICK)
    own = fitted(n, construction=model.construction_)
    assert np.array_equal(own.predict_interval(new).upper, model.predict_interval(new).upper)
    assert own.certificate_ == model.certificate_
    # Mutants: the other one answers, or the other one is certified.
    swapped, wrong = copy(model), copy(model)
    swapped.construction_ = OTHER[str(model.construction_)]
    other = About(construction=swapped.construction_)
    wrong._certificate = model._certify(alpha=0.1, about=other)
    for mutant in (swapped, wrong):
        with pytest.raises((AssertionError, AttributeError)):  # plus has no models of full
            assert_certified(mutant, n, new)


def test_the_switch_is_said_where_it_pays(models: Any) -> None:
    few, many = (models[n].certificate_.headline for n in SIDES)
    assert "at least 80.03 % (90 % with construction='full')" in few
    assert "at least 90.06 %, for any new row" in many


def test_jackknife_plus_answers_what_full_conformal_prediction_cannot(new: Any) -> None:
    n = MANY + 1
    auto, plus, full = (fitted(n, construction=c) for c in ("auto", "plus", "full"))
    weights = np.linspace(1, 2, n), np.ones(NEW)
    found, same = (each.predict_interval(new, weights=weights) for each in (auto, plus))
    assert np.array_equal(found.upper, same.upper)
    assert found.certificate == same.certificate
    assert "construction 'plus', " in found.certificate.subject
    assert found.certificate.coverage == pytest.approx(0.8)
    found, same = (each.predict_distribution(new) for each in (auto, plus))
    assert np.array_equal(found.quantile(0.9), same.quantile(0.9))
    assert found.certify(0.9) == same.certify(0.9)
    assert "construction 'plus', " in found.certify(0.9).subject
    rank, m = kappa(0.1, n - part_of(n)), n - part_of(n)
    assert found.certify(0.9).coverage == pytest.approx(1 - (2 * rank - 1) / (m + 1))
    checks = [each.self_check() for each in (auto, plus)]
    assert np.array_equal(checks[0].covered, checks[1].covered)
    assert np.array_equal(auto.influence().widens, plus.influence().widens)
    for ask in (
        lambda: full.predict_interval(new, weights=weights),
        lambda: full.predict_distribution(new),
        full.self_check,
        full.influence,
    ):
        with pytest.raises(ValueError, match=r"full|plus"):
            ask()
    # Everything else is answered, and certified, by full conformal prediction.
    one = auto.predict_interval(new, side="upper")
    assert one.certificate == full.predict_interval(new, side="upper").certificate
    assert one.certificate.coverage == auto.certificate_.coverage


def test_a_saved_model_knows_what_it_stands_for(models: Any, new: Any, tmp_path: Any) -> None:
    for n, model in models.items():
        model.save(tmp_path / "model.lk")
        again = lk.LazyJackknifeRegressor.load(tmp_path / "model.lk")
        assert again.construction == "auto"
        assert_certified(again, n, new)


def test_other_fits_are_plus() -> None:
    X, y = linear(120)
    terms: dict[str, Any] = {"network": QUICK, "feature_weights": None, "random_state": 0}
    several = lk.LazyJackknifeRegressor(**terms).fit(X, np.stack([y, -y], axis=1))
    clustered = lk.LazyJackknifeRegressor(**terms).fit(X, y, clusters=np.arange(120) % 12)
    for model in (several, clustered):
        assert model.construction_ == "plus"
        assert "'plus'" in model.certificate_.subject
    own = lk.LazyJackknifeRegressor(torch.nn.Linear(3, 1), random_state=0).fit(*linear(MANY + 1))
    assert own.construction_ == "plus"
    assert own.certificate_ == lk.certify(n=MANY + 1, alpha=0.1, network=torch.nn.Linear(3, 1))


def test_print_shows_the_certificate_and_the_check(models: Any) -> None:
    for model in models.values():
        parts = repr(model), str(model.certificate_), str(model.self_check())
        assert str(model) == "\n".join(parts)
    assert "each by the other rows: " in str(models[SIDES[0]])
    assert "each by the other rows (construction 'plus'): " in str(models[SIDES[1]])


def test_print_checks_once_and_again_after_a_change() -> None:
    model, asked = Counting(QUICK, **SETTINGS), []
    X, y = linear(60)
    assert str(model) == repr(model)
    model.calls = asked
    for _ in range(2):
        model.fit(X, y)
        assert str(model) == str(model)
    assert len(asked) == 2
    model.set_params(alpha=0.3)
    assert "70% is the aim" in str(model)
    assert len(asked) == 3
    model.set_params(ridge=2.0)  # intervals are refused until the next fit
    assert str(model) == repr(model)
    plain = lk.LazyJackknifeRegressor(QUICK, **SETTINGS, construction="full").fit(X, y)
    assert str(plain).endswith(str(plain.certificate_))


class Counting(lk.LazyJackknifeRegressor):
    """Notes each check."""

    calls: list[float]

    def self_check(self, *args: Any, **terms: Any) -> Any:
        self.calls.append(self.alpha)
        return super().self_check(*args, **terms)
