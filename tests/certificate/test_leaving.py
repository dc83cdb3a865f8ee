"""Certificates before and after a fit count the same rows, also where a part of them chooses."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import lazyknife as lk
from lazyknife.base import DPSGD, Perturbed, Public, Split
from lazyknife.base.method import BaseMethod
from lazyknife.certificate import certify, plan, plan_rows
from lazyknife.certificate.certify import left_out
from rows import linear

QUICK = lk.wide("gaussian", scale=1.0)
SETTINGS: dict[str, Any] = {"ridge": 1.0, "widths": "constant", "feature_weights": None}


def fitted(n: int, network: Any = None, **settings: Any) -> lk.LazyJackknifeRegressor:
    X, y = linear(n)
    return lk.LazyJackknifeRegressor(network, random_state=0, **settings).fit(X[:, :1], y)


@pytest.mark.parametrize("construction", ["auto", "plus", "minmax", "cv+"])
@pytest.mark.parametrize("n", [400, 401, 1000, 1001])
def test_the_certificate_of_a_fit_is_known_before(n: int, construction: str) -> None:
    model = fitted(n, QUICK, construction=construction, **SETTINGS)
    for alpha in (0.1, 100 / 1001):
        expected = certify(n=n, alpha=alpha, construction=construction, network=QUICK)
        assert model.certify(alpha=alpha) == expected
    found = model.certificate_
    assert found == model.certify(alpha=0.1)
    if construction != "cv+":
        assert f"n = {150 if n == 1001 else n}, " in found.subject
        assert ("851 more were set aside" in found.details) == (n == 1001)


MODULE, PRIVATE = torch.nn.Linear(1, 1), Perturbed(sensitivity=1.0, epsilon=0.1, norm="l1")


@pytest.mark.parametrize(
    ("network", "base", "assumed"),
    [
        (MODULE, None, "starting weights"),  # assumed to be public
        ([lk.mlp((2,)), lk.mlp((3,)), QUICK], PRIVATE, "asserted"),  # two of them are paid for
    ],
)
def test_that_of_networks_of_ones_own_is_known_before(
    network: Any, base: BaseMethod | None, assumed: str
) -> None:
    found = fitted(40, network, base=base, ridge=1.0).certificate_
    assert found == certify(n=40, alpha=0.1, base=base, network=network)
    assert any(assumed in each for each in found.assumptions)


@pytest.mark.parametrize("base", [None, Split(0.3), DPSGD(epochs=1)])
@pytest.mark.parametrize("network", [None, lk.mlp((4,)), [QUICK, lk.mlp((4,))]])
@pytest.mark.parametrize("construction", ["auto", "plus", "minmax", "cv+", "full", "split"])
def test_plans_and_fits_count_rows_by_one_rule(
    construction: str, network: Any, base: BaseMethod | None
) -> None:
    """At sizes that are too large to fit in a test: what the fit's own code says."""
    model = lk.LazyJackknifeRegressor(network, construction=construction, base=base)
    like = torch.zeros(1, 3, dtype=torch.float64)
    for n in (400, 401, 999, 1000, 1001, 2001, 4001, 5001, 7001, 8001, 16_001, 40_000):
        own = model._leaving(like.expand(n, 3))
        assert own == left_out(n, construction, base or Public())


@pytest.mark.parametrize(("ridge", "coins"), [("auto", True), (1.0, False)])
@pytest.mark.parametrize("construction", ["plus", "minmax", "cv+"])
def test_coins_that_choose_a_ridge_are_counted(ridge: Any, coins: bool, construction: str) -> None:
    terms = {"features": lk.Sketch(8), "construction": construction}
    found, rank = fitted(501, lk.mlp((4,)), ridge=ridge, **terms).certificate_, 50
    misses = {
        "plus": 2 * rank / 503 if coins else (2 * rank - 1) / 502,
        "minmax": rank / 502,
        "cv+": (2 * rank - 2 + 10) / 511,
    }
    assert found.coverage == 1 - misses[construction]
    assert ("whichever rows it draws" in found.details) == (coins and construction == "plus")
    assert ("a given seed" in found.scope) == (coins and construction == "minmax")


@pytest.mark.parametrize(
    ("ask", "terms"),
    [
        (certify, {"n": 100, "alpha": 0.1}),
        (plan, {"n": 100, "coverage": 0.7}),
        (plan_rows, {"coverage": 0.7}),
    ],
)
def test_a_base_that_would_train_nothing_is_refused_before_the_fit(
    ask: Any, terms: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="no weights to train"):
        ask(base=DPSGD(), network=QUICK, **terms)


def fewest(coverage: float, **terms: Any) -> int:
    """All numbers of rows, one after the other, each with the least alpha of finite intervals."""
    terms = {"base": Public(), "construction": "plus"} | terms
    base, construction = terms["base"], terms["construction"]
    for n in range(8 if construction == "split" else terms.get("folds", 1), 30_000):
        least = 1 / (left_out(n, construction, base).rows + 1)
        if certify(n=n, alpha=least, **terms).coverage >= coverage:  # type: ignore[operator]
            return n
    raise AssertionError


# Neither what is left out nor the bound is monotone at 400 and at 1,000 rows.
COVERAGES = [0.9, 0.95, 0.99, 0.9974, 0.998, 0.9985, 0.99905, 0.9995]


@pytest.mark.parametrize(
    ("coverage", "terms"),
    [
        *((c, {"construction": "plus"}) for c in COVERAGES),
        *((c, {"construction": "auto"}) for c in COVERAGES[::3]),
        *((c, {"construction": k}) for c in COVERAGES[::3] for k in ("minmax", "full", "split")),
        (0.9985, {"network": QUICK, "base": Public()}),
        (0.9985, {"network": lk.mlp((4,)), "base": Split(0.5)}),
        (0.9, {"base": Split(0.5)}),
        (0.8, {"base": Perturbed(sensitivity=1.0, epsilon=0.01)}),
        (0.9, {"construction": "cv+", "folds": 10}),
        (0.95, {"construction": "cv+", "folds": 10}),
        (0.9, {"construction": "cv+", "folds": 7}),
        (0.72, {"construction": "cv+", "folds": 3}),
    ],
)
def test_no_fewer_rows_are_enough(coverage: float, terms: dict[str, Any]) -> None:
    found = plan_rows(coverage=coverage, **terms)
    assert found.n == fewest(coverage, **terms)
    assert found.certificate.coverage >= coverage
    assert str(found).startswith(f"At least {found.n} rows are needed to certify a coverage of ")
    task = {"coverage": coverage} | {"base": Public()} | terms
    assert found.alpha == plan(n=found.n, **task).alpha


def test_a_base_may_need_more_rows_than_a_wanted_coverage() -> None:
    base = DPSGD(noise_multiplier=50.0, epochs=1, batch_size=16)
    assert plan_rows(coverage=0.8, base=base).n == 16  # fewer cannot be learnt from
    base = Perturbed(sensitivity=1.0, epsilon=1.0)
    found = plan(n=1100, coverage=0.9, alpha=1e-3, base=base, network=QUICK)
    assert "At least 6660 rows are needed." in str(found)


def warning_of(model: Any, level: float) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.predict_interval(np.zeros((1, 1)), alpha=level)
    return str(caught[-1].message)


@pytest.mark.parametrize(
    ("n", "base", "level", "said", "needed"),
    [
        (1001, None, 1e-4, "150 left-out", "9999 are needed, which takes 29999 rows in all"),
        (
            1001,
            None,
            1e-3,
            "150 left-out",
            "999 are needed, which takes 6660 rows in all, not 1001",
        ),
        (30, None, 1e-2, "30", "infinite. At least 99 rows are needed"),
        (30, None, 5e-4, "30", "infinite. At least 21999 rows are needed"),
        (30, Split(0.5), 0.05, "15 left-out", "19 are needed, which takes 37 rows in all"),
    ],
)
def test_a_warning_says_how_many_rows_are_needed_in_all(
    n: int, base: BaseMethod | None, level: float, said: str, needed: str
) -> None:
    model = fitted(n, lk.mlp((4,)) if base else QUICK, base=base, **SETTINGS)
    found = warning_of(model, level)
    assert f"{said} rows are too few for alpha={level}: " in found
    assert needed in found


def test_split_conformal_counts_its_calibration_rows() -> None:
    X, y = linear(30)
    model = lk.SplitConformalRegressor(lk.mlp((2,)), epochs=1, calibration=0.3, random_state=0)
    said = warning_of(model.fit(X[:, :1], y), 0.05)
    assert said.startswith("9 left-out rows are too few")
    assert said.endswith("At least 19 are needed, which takes 62 rows in all, not 30")
