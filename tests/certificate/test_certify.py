"""Certificates: the numbers of the theory, and what they say in words."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import beta

from lazyknife import LazyJackknifeRegressor, SplitConformalRegressor
from lazyknife.base import DPSGD, Perturbed, Plain, Public, Split
from lazyknife.base.method import BaseMethod
from lazyknife.certificate import certify, lazy_claim
from lazyknife.certificate.certify import Certifier
from lazyknife.choosing.rows import Leaving
from lazyknife.intervals import CONSTRUCTIONS, kappa
from lazyknife.networks import mlp, wide
from lazyknife.records import Base, PrivacyCurve
from lazyknife.sentences import EXCHANGEABLE, PRIVATE_REMARKS, UNTUNED, either

# n, ε, σ, τ, plus, minmax: α = .1, δ = .001, 10 epochs, batches of 10 at n = 100, else of 32.
TABLE = [
    (100, 0.01, 94.0, 0.0042, 0.809, 0.899),
    (100, 0.1, 17.5, 0.023, 0.796, 0.891),
    (100, 1.0, 2.75, 0.147, 0.695, 0.818),
    (1000, 0.01, 53.8, 0.0042, 0.798, 0.898),
    (1000, 0.5, 2.78, 0.084, 0.737, 0.857),
    (1000, 1.0, 1.68, 0.147, 0.681, 0.817),
    (10000, 1.0, 0.79, 0.139, 0.686, 0.821),
]
GUARANTEED = [c for c in CONSTRUCTIONS if CONSTRUCTIONS[c].miss is not None]
COMPARISONS = [c for c in CONSTRUCTIONS if c not in GUARANTEED]


@pytest.mark.parametrize(("n", "epsilon", "sigma", "tau", "plus", "minmax"), TABLE)
def test_noise_and_certified_coverage_are_those_of_the_table(n, epsilon, sigma, tau, plus, minmax):
    base = DPSGD(epsilon=epsilon, batch_size=10 if n == 100 else 32)
    assert base.mechanism(n).noise_multiplier == pytest.approx(sigma, rel=0.01)
    # The table gives two or three digits.
    assert base.dependence(n).total_variation == pytest.approx(tau, rel=0.01, abs=6e-4)
    for construction, expected in (("plus", plus), ("minmax", minmax)):
        found = certify(n=n, alpha=0.1, construction=construction, base=base).coverage
        assert found == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize(
    ("n", "base", "rows"),
    [(100, None, 100), (100, Public(), 100), (200, Split(), 100), (100, Split(0.25), 75)],
)
def test_an_independent_base_certifies_the_constructions_own_bound(n, base, rows):
    """Of the rows that it leaves."""
    rank = kappa(0.1, rows)
    plus, minmax = (certify(n=n, alpha=0.1, construction=c, base=base) for c in ("plus", "minmax"))
    assert plus.coverage == 1 - (2 * rank - 1) / (rows + 1)
    assert minmax.coverage == 1 - rank / (rows + 1)
    assert f"n = {rows}" in plus.details


def test_coverage_is_one_minus_the_transferred_miss():
    curve = PrivacyCurve((0.0, 0.3), (0.2, 0.01), (1.0, 0.0))
    claim = lazy_claim("plus", DPSGD(), curve, Leaving(19))
    assert claim(0.1).coverage == pytest.approx(1 - min(0.15 + 0.2, math.exp(0.3) * 0.15 + 0.01))
    leaked = replace(claim, objections=("It leaked.",))(0.1)
    assert leaked.coverage is None
    assert "It leaked." in leaked.details


@pytest.mark.parametrize("construction", GUARANTEED)
def test_an_infinite_interval_covers(construction):
    task = {"n": 8, "alpha": 0.1, "construction": construction, "folds": 4}
    assert kappa(0.1, 8) == 0
    if construction != "split":
        certificate = certify(base=DPSGD(batch_size=8), **task)
        assert certificate.coverage == pytest.approx(1.0, abs=1e-6)
    assert certify(base=Public(), **task).coverage == 1.0


UNPROVEN = f"Construction {{!r}} has no coverage guarantee: use {either(GUARANTEED)}."


@pytest.mark.parametrize(
    ("construction", "base", "reason"),
    [
        *((construction, Public(), UNPROVEN.format(construction)) for construction in COMPARISONS),
        ("plus", Plain(), "The Plain base was trained on all rows without"),
    ],
)
def test_without_a_bound_nothing_is_certified(construction, base, reason):
    certificate = certify(n=101, alpha=0.1, construction=construction, base=base, eta=0.0)
    assert certificate.coverage is None
    assert not certificate.bounds
    assert str(certificate).startswith("No coverage is guaranteed")
    (objection,) = certificate.objections
    assert reason in objection
    assert objection in str(certificate)


def test_a_vacuous_bound_is_zero_and_called_vacuous():
    certificate = certify(n=100, alpha=0.4, base=DPSGD(noise_multiplier=1.0))
    assert certificate.coverage == 0.0
    assert "vacuous" in str(certificate)
    assert "Guaranteed" not in str(certificate)


def test_the_papers_bound_is_shown_and_does_not_count():
    """Theorem 1 with replace-one privacy, below our bound and above it."""
    generous = PrivacyCurve((0.0,), (0.5,), (0.0, 0.0))
    for curve, eta in itertools.product((DPSGD().dependence(100), generous), (0.0, 0.001, 0.03)):
        claim = lazy_claim("plus", DPSGD(), curve, Leaving(100))
        (epsilon, delta), found = curve.replace_one, claim(0.1, eta=eta, nu=0.0)
        bound = max(0.0, 1 - 2 * 0.1 - 3 * math.sqrt(2 * eta + 2 * epsilon + delta))
        assert found.bounds["paper"] == pytest.approx(bound)
        assert found.bounds["ghost_point"] == found.coverage == claim(0.1).coverage != bound
        assert set(claim(0.1).bounds) == {"ghost_point"}
        for words in (f"{bound:.3f}", "not certified", "ν = 0"):
            assert words in found.details
        assert "Theorem 1" not in claim(0.1).details
    for construction in ("full", "cv+", "naive"):  # is about jackknife+
        assert "paper" not in certify(n=99, alpha=0.1, construction=construction, eta=0.0).bounds
    settings = certify(n=100, alpha=0.1, base=DPSGD(), eta=0.0, nu=0.0)
    assert settings.bounds["paper"] == pytest.approx(0.090, abs=0.002)
    assert settings.bounds["paper_literal"] == pytest.approx(0.365, abs=0.0005)
    assert "0.365 if ε and δ are read under adding" in settings.details


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        (PrivacyCurve.from_dp(0.3, 0.01), (0.3, 0.01)),
        (Perturbed(sensitivity=1.0, epsilon=2.0).dependence(9), (2.0, 0.0)),
        (Perturbed(sensitivity=1.0, epsilon=99.0).dependence(9), (math.inf, 0.0)),  # too large
        (DPSGD(epsilon=0.5, delta=1e-5).dependence(99), (0.5, 1e-5)),
        (PrivacyCurve((0.0, math.log(2)), (0.3, 0.1), (2.0, 0.2)), (math.log(1.5), 0.2)),
        (Public().dependence(9), (0.0, 0.0)),
    ],
)
def test_the_stated_privacy_is_read_off_the_curve(curve, expected):
    assert curve.add_remove == pytest.approx(expected, rel=2e-3)


def test_the_text_says_how_much_for_what_and_over_what():
    certificate = certify(n=100, alpha=0.1, base=DPSGD())
    text = certificate.details
    for words in (
        "Expect about 90 % of the intervals to contain the true y.",
        "Guaranteed: at least 80.89 %, for any new row.",
        "construction 'plus', n = 100, DPSGD base, alpha = 0.1.",
        "on average over",
        "not for a given training set or a given x",
        "a fit or certificate that is refused counts as covered",
        "total variation is 0.0042",
        *PRIVATE_REMARKS,
        *certificate.assumptions,
    ):
        assert words in text
    assert certificate.assumptions == (EXCHANGEABLE, UNTUNED)
    assert "not for a given training set" in certificate.scope


def test_a_base_of_ones_own_brings_its_own_sentences():
    class Own(BaseMethod):
        assumptions = ("It was asserted.",)
        remarks = ("It was remarked.",)

        def dependence(self, n, n_parameters=None):
            return PrivacyCurve.from_dp(0.1)

        def learn(self, task):
            return Base(task.start, self.dependence(task.n))

    certificate = certify(n=100, alpha=0.1, base=Own())
    assert certificate.coverage == pytest.approx(1 - math.exp(0.1) * 19 / 101)
    assert certificate.assumptions[-1] == "It was asserted."
    assert "What dependence() of the base Own returns" in certificate.details
    assert "dependence()" not in certify(n=100, alpha=0.1, base=DPSGD()).details
    assert all(f"It was {done}." in certificate.details for done in ("asserted", "remarked"))
    assert "Own base" in certificate.subject


def test_the_printed_number_is_never_above_the_certified_one():
    for alpha in (0.05, 0.1, 0.15, 0.2, 0.33):
        certificate = certify(n=100, alpha=alpha, base=Public())
        printed = float(str(certificate).split("at least ")[1].split()[0]) / 100
        assert certificate.coverage - 1e-3 < printed <= certificate.coverage


def test_folds_certify_less_with_a_base_that_saw_the_data():
    task = {"n": 100, "alpha": 0.1, "construction": "cv+"}
    assert certify(**task, base=Public()).coverage == pytest.approx(1 - 28 / 110)
    private = certify(**task, base=DPSGD(epsilon=0.01))
    curve = DPSGD(epsilon=0.01).dependence(100)
    assert private.coverage == pytest.approx(1 - curve.transfer(28 / 110))
    assert certify(**task, base=Public(), folds=50).coverage == pytest.approx(1 - 20 / 102)
    assert "10 folds" in private.details
    # The bound with few rows in a fold is about a whole fold of new rows, and says so.
    assert "A whole fold of 2 new rows" in certify(**task, base=Public(), folds=50).details
    assert "whole fold" not in certify(**task, base=Public()).details


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        ({"n": 0}, ValueError, "n=0"),
        ({"alpha": 1.0}, ValueError, "alpha=1.0"),
        ({"alpha": "10%"}, TypeError, "alpha"),
        ({"construction": "folds"}, ValueError, "construction='folds'.*'plus'"),
        ({"construction": "cv+", "folds": 101}, ValueError, "folds=101 is more than the 100 rows"),
        ({"network": []}, ValueError, r"network=\[\]"),
        ({"eta": -0.1}, ValueError, "eta"),
        ({"eta": 0.0, "nu": -1.0}, ValueError, "nu"),
        ({"n_parameters": 0}, ValueError, "n_parameters"),
        ({"n": 5, "base": DPSGD()}, ValueError, "batch_size=10"),
    ],
)
def test_certify_refuses_bad_arguments_by_name(arguments, error, name):
    with pytest.raises(error, match=name):
        certify(**({"n": 100, "alpha": 0.1, "base": Public()} | arguments))


@pytest.mark.parametrize(("construction", "most"), [("plus", 3), ("minmax", 0), ("cv+", 0)])
def test_fewer_undetermined_models_than_the_rank_leave_the_guarantee_of_plus_alone(
    construction, most
):
    """κ = 4 of 40 rows: plus is covered by 40 − 3 models that are known."""
    claim = lazy_claim(construction, Public(), Public().dependence(40), Leaving(40))
    for undetermined, certified in ((most, True), (most + 1, False)):
        loo = SimpleNamespace(
            residuals=torch.ones(40), undetermined=undetermined, typical_error=lambda: (0.0, 0.0)
        )
        found = Certifier(claim, loo, 1.0, None)(0.1)
        assert (found.coverage is not None) == certified


@pytest.mark.parametrize(("n", "rank"), [(20, 2), (150, 15), (150, 1)])
def test_most_training_sets_cover_as_certified_and_no_more(n: int, rank: int) -> None:
    """Of uniform scores, where the coverage of a set is its order statistic.

    False alarms: 1e-6. With one rank less or more the share is another.
    """
    rng, share, sets = np.random.default_rng(0), 0.9, 20_000
    covered = np.sort(rng.uniform(size=(sets, n)), axis=1)[:, n - rank]
    miss = CONSTRUCTIONS["split"].miss_of_most_sets(rank, n, 10, share)
    below = (covered < 1 - miss).mean()
    assert abs(below - (1 - share)) < 4.9 * math.sqrt(share * (1 - share) / sets)


def test_folds_cover_most_training_sets() -> None:
    """2(κ − 1)/n + √(2 log(K/δ)/m), m rows of the smallest fold."""
    found = CONSTRUCTIONS["cv+"].miss_of_most_sets(1000, 10_003, 10, 0.95)
    expected = 2 * 999 / 10_003 + math.sqrt(2 * math.log(10 / 0.05) / 1000)
    assert found == pytest.approx(expected)
    assert CONSTRUCTIONS["cv+"].miss_of_most_sets(2, 20, 10, 0.95) == 1.0
    assert CONSTRUCTIONS["cv+"].miss_of_most_sets(0, 20, 10, 0.95) == 0.0


def test_a_given_training_set_is_certified_where_that_is_possible() -> None:
    found = certify(n=25_000, alpha=0.1, construction="split", confidence=0.99)
    assert found.coverage == pytest.approx(0.88992, abs=1e-5)  # a quantile of Beta(4501, 500)
    assert "with 99 % of all training sets" in str(found)
    assert any("independent draws" in each for each in found.assumptions)
    assert not any("exchangeable" in each for each in found.assumptions)
    for construction in ("plus", "minmax", "full"):
        none = certify(n=500, alpha=0.1, construction=construction, confidence=0.99)
        assert none.coverage is None
        assert "use 'cv+' or 'split'" in str(none)
    seen = certify(n=5000, alpha=0.1, construction="cv+", base=DPSGD(), confidence=0.99)
    assert seen.coverage is None
    assert "seen all rows" in str(seen)
    with pytest.raises(ValueError, match=r"confidence=1\.5"):
        certify(n=500, alpha=0.1, confidence=1.5)
    with pytest.raises(ValueError, match="requires infinitely wide networks"):
        certify(n=500, alpha=0.1, construction="split", base=DPSGD())


def test_fits_certify_a_given_training_set() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    for model, left in (
        (LazyJackknifeRegressor(wide("laplace"), construction="split", random_state=0), 30),
        (SplitConformalRegressor(mlp(()), epochs=1, calibration=0.4, random_state=0), 24),
    ):
        fitted = model.fit(X, X[:, 0])
        rank = kappa(0.1, left)
        assert fitted.certificate_.coverage == 1 - rank / (left + 1)
        found = fitted.certify(confidence=0.9)
        assert found.coverage == pytest.approx(float(beta.ppf(0.1, left + 1 - rank, rank)))
        assert fitted.certify() == fitted.certificate_
    pooled = SplitConformalRegressor(mlp(()), epochs=1, scaling="standardize", random_state=0)
    assert pooled.fit(X, X[:, 0], X_pool=X[:9]).certify(confidence=0.9).coverage is None
