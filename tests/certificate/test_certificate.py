"""Certificates: the numbers of the theory, honest words, and `plan` as the way back."""

import math

import pytest

from lazyknife.base import DPSGD, Perturbed, Plain, Public, Split
from lazyknife.certificate import certificate_for, certify, make_certificate, plan
from lazyknife.intervals import CONSTRUCTIONS, kappa
from lazyknife.records import INDEPENDENT, PrivacyCurve

# n, ε, plus, minmax: α = .1, δ = .001, 10 epochs, batches of 10 at n = 100 and of 32 otherwise.
TABLE = [
    (100, 0.01, 0.809, 0.899),
    (100, 0.1, 0.796, 0.891),
    (100, 1.0, 0.695, 0.818),
    (1000, 0.01, 0.798, 0.898),
    (1000, 0.5, 0.737, 0.857),
    (1000, 1.0, 0.681, 0.817),
    (10000, 1.0, 0.686, 0.821),
]
GUARANTEED = [name for name, each in CONSTRUCTIONS.items() if each.miss is not None]
COMPARISONS = [name for name, each in CONSTRUCTIONS.items() if each.miss is None]


# --- coverage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "epsilon", "plus", "minmax"), TABLE)
def test_certified_coverage_is_that_of_the_table(n, epsilon, plus, minmax):
    base = DPSGD(epsilon=epsilon, batch_size=10 if n == 100 else 32)
    found = {c: certify(n=n, alpha=0.1, construction=c, base=base).coverage for c in GUARANTEED}
    assert found["plus"] == pytest.approx(plus, abs=0.002)
    assert found["minmax"] == pytest.approx(minmax, abs=0.002)


@pytest.mark.parametrize("base", [Public(), Split()])
def test_an_independent_base_certifies_the_constructions_own_bound(base):
    n = 100 if isinstance(base, Public) else 200  # Split leaves half
    assert certify(n=n, alpha=0.1, base=base).coverage == 1 - 19 / 101
    assert certify(n=n, alpha=0.1, construction="minmax", base=base).coverage == 1 - 10 / 101


def test_the_default_base_is_dpsgd():
    assert certify(n=100, alpha=0.1).coverage == certify(n=100, alpha=0.1, base=DPSGD()).coverage


def test_coverage_is_one_minus_the_transferred_miss():
    curve = PrivacyCurve((0.0, 0.3), (0.2, 0.01), (1.0, 0.0))
    found = certificate_for(
        n=19, alpha=0.1, construction="plus", base=DPSGD(), dependence=curve
    ).coverage
    assert found == pytest.approx(1 - min(0.15 + 0.2, math.exp(0.3) * 0.15 + 0.01))


@pytest.mark.parametrize("construction", GUARANTEED)
def test_an_infinite_interval_covers(construction):
    certificate = certify(n=8, alpha=0.1, construction=construction, base=DPSGD(batch_size=8))
    assert kappa(0.1, 8) == 0
    assert certificate.coverage == pytest.approx(1.0, abs=1e-6)
    assert certify(n=8, alpha=0.1, construction=construction, base=Public()).coverage == 1.0


@pytest.mark.parametrize("construction", COMPARISONS)
def test_comparison_constructions_certify_nothing(construction):
    certificate = certify(n=100, alpha=0.1, construction=construction, base=Public(), eta=0.0)
    assert certificate.coverage is None
    assert not certificate.bounds
    text = str(certificate)
    assert "No coverage is guaranteed" in text
    assert repr(construction) in text
    assert "use 'plus'" in text


def test_plain_training_certifies_nothing():
    certificate = certify(n=100, alpha=0.1, base=Plain(), eta=0.0)
    assert certificate.coverage is None
    assert not certificate.bounds
    assert "No coverage is guaranteed" in str(certificate)
    assert "Plain base saw all of the data" in str(certificate)


def test_an_objection_leaves_no_guarantee():
    certificate = make_certificate(
        subject="s", miss=0.1, dependence=INDEPENDENT, objections=("It leaked.",)
    )
    assert certificate.coverage is None
    assert "It leaked." in str(certificate)


def test_a_vacuous_bound_is_zero_and_called_vacuous():
    certificate = certify(n=100, alpha=0.4, base=DPSGD(noise_multiplier=1.0))
    assert certificate.coverage == 0.0
    assert "vacuous" in str(certificate)
    assert "probability at least" not in str(certificate)


def test_split_counts_the_rows_that_it_leaves():
    certificate = certify(n=100, alpha=0.1, base=Split(0.25))
    rows = Split(0.25).rows_left(100)
    assert rows == 75
    assert certificate.coverage == 1 - (2 * kappa(0.1, 75) - 1) / 76
    assert "n = 75" in str(certificate)


@pytest.mark.parametrize("construction", GUARANTEED)
def test_coverage_falls_with_epsilon(construction):
    found = [
        certify(n=100, alpha=0.1, construction=construction, base=DPSGD(epsilon=e)).coverage
        for e in (0.01, 0.1, 1.0)
    ]
    public = certify(n=100, alpha=0.1, construction=construction, base=Public()).coverage
    assert [public, *found] == sorted([public, *found], reverse=True)
    assert len(set(found)) == 3


def test_coverage_falls_with_n_at_a_round_alpha():
    """(2κ−1)/(n+1) rises to 2α along n = 99, 999, 9999."""
    found = [certify(n=n, alpha=0.1, base=Public()).coverage for n in (99, 999, 9999)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(0.8, abs=1e-3)


def test_coverage_rises_with_n_for_the_same_noise():
    """More rows, the same batch, epochs and σ: each row counts for less."""
    found = [
        certify(n=n, alpha=0.1, construction="minmax", base=DPSGD(noise_multiplier=3.0)).coverage
        for n in (99, 199, 399)
    ]
    assert found == sorted(found)
    assert len(set(found)) == 3


def test_more_parameters_sharpen_perturbed_in_the_l2_norm():
    base = Perturbed(sensitivity=1.0, epsilon=1.0)
    found = [certify(n=100, alpha=0.1, base=base, n_parameters=m).coverage for m in (None, 2, 5313)]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(1 - 19 / 101 - 0.0055, abs=1e-4)
    l1 = Perturbed(sensitivity=1.0, epsilon=1.0, norm="l1")
    assert certify(n=100, alpha=0.1, base=l1, n_parameters=5313).coverage == pytest.approx(
        1 - 19 / 101 - min(1 - math.exp(-0.5), (math.e - 1) * 19 / 101)
    )


# --- the paper's bound --------------------------------------------------------------------------


def test_the_papers_bound_is_shown_and_does_not_count():
    with_paper = certify(n=100, alpha=0.1, eta=0.0, nu=0.0)
    without = certify(n=100, alpha=0.1)
    assert with_paper.bounds["paper"] == pytest.approx(0.090, abs=0.002)
    assert with_paper.bounds["ghost_point"] == with_paper.coverage == without.coverage
    assert set(without.bounds) == {"ghost_point"}
    assert with_paper.bounds["paper"] != with_paper.coverage
    assert "0.090" in str(with_paper)
    assert "not certified" in str(with_paper)
    assert "ν = 0" in str(with_paper)
    assert "Theorem 1" not in str(without)


def test_a_papers_bound_above_ours_still_does_not_count():
    generous = PrivacyCurve((0.0,), (0.5,), (0.0, 0.0))
    certificate = certificate_for(
        n=100, alpha=0.1, construction="plus", base=DPSGD(), dependence=generous, eta=0.0
    )
    assert certificate.bounds["paper"] == pytest.approx(0.8)
    assert certificate.coverage == pytest.approx(1 - 19 / 101 - 0.5)


def test_the_papers_bound_falls_to_zero_with_eta():
    found = [certify(n=100, alpha=0.1, eta=eta).bounds["paper"] for eta in (0.0, 0.001, 0.03)]
    assert found[0] > found[1] > found[2] == 0.0


def test_the_papers_bound_is_theorem_one_with_replace_one_privacy():
    epsilon, delta = DPSGD().dependence(100).replace_one
    expected = 1 - 2 * 0.1 - 3 * math.sqrt(2 * 0.001 + 2 * epsilon + delta)
    assert certify(n=100, alpha=0.1, eta=0.001).bounds["paper"] == pytest.approx(expected)


# --- words --------------------------------------------------------------------------------------


def test_the_text_says_how_much_for_what_and_over_what():
    certificate = certify(n=100, alpha=0.1)
    text = str(certificate)
    # Rounded down: what is printed is certified too.
    assert f"{math.floor(certificate.coverage * 1000) / 1000:.3f}" in text
    for words in (
        "alpha = 0.1",
        "n = 100",
        "DPSGD base",
        "'plus'",
        "on average over",
        "not for a given training set",
        "nor for a given x",
        "exchangeable",
        "total variation is 0.0042",
    ):
        assert words in text
    assert "not for a given training set" in certificate.scope


def test_the_printed_number_is_never_above_the_certified_one():
    for alpha in (0.05, 0.1, 0.15, 0.2, 0.33):
        certificate = certify(n=100, alpha=alpha, base=Public())
        printed = float(str(certificate).split("at least ")[1].split()[0])
        assert certificate.coverage - 1e-3 < printed <= certificate.coverage


def test_the_asserted_sensitivity_is_among_the_assumptions_and_printed():
    certificate = certify(n=100, alpha=0.1, base=Perturbed(sensitivity=0.25, epsilon=0.5))
    stated = [assumption for assumption in certificate.assumptions if "0.25" in assumption]
    assert len(stated) == 1
    assert "asserted" in stated[0]
    assert stated[0] in str(certificate)


def test_public_weights_are_taken_on_trust_in_print():
    certificate = certify(n=100, alpha=0.1, base=Public())
    assert any("starting weights" in assumption for assumption in certificate.assumptions)
    assert "starting weights" in str(certificate)


def test_every_assumption_is_printed():
    certificate = certify(n=100, alpha=0.1, base=Public())
    assert all(assumption in str(certificate) for assumption in certificate.assumptions)


# --- folds ---------------------------------------------------------------------------------------


def test_folds_certify_less_with_a_base_that_saw_the_data():
    task = {"n": 100, "alpha": 0.1, "construction": "cv+"}
    assert certify(**task, base=Public()).coverage == pytest.approx(1 - 28 / 110)
    private = certify(**task, base=DPSGD(epsilon=0.01))
    curve = DPSGD(epsilon=0.01).dependence(100)
    assert private.coverage == pytest.approx(1 - curve.transfer(28 / 110))
    assert certify(**task, base=Public(), folds=50).coverage == pytest.approx(1 - 20 / 102)
    assert "10 folds" in repr(private)
    # The bound with few rows in a fold is about a whole fold of new rows, and says so.
    assert "2 new rows" in repr(certify(**task, base=Public(), folds=50))
    assert "new rows, as many" not in repr(certify(**task, base=Public()))


def test_unequal_folds_certify_nothing():
    certificate = certify(n=101, alpha=0.1, construction="cv+", base=Public())
    assert certificate.coverage is None
    assert "101 is not divisible by 10" in repr(certificate)
    with pytest.raises(ValueError, match=r"folds=10.*101 rows"):
        plan(n=101, coverage=0.5, construction="cv+", base=Public())


# --- bad arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        ({"n": 0}, ValueError, "n=0"),
        ({"n": 10.0}, TypeError, "n=10.0"),
        ({"n": True}, TypeError, "n=True"),
        ({"alpha": 0}, ValueError, "alpha=0"),
        ({"alpha": 1.0}, ValueError, "alpha=1.0"),
        ({"alpha": "10%"}, TypeError, "alpha"),
        ({"alpha": math.nan}, ValueError, "alpha"),
        ({"construction": "split"}, ValueError, "construction='split'.*'plus'"),
        ({"eta": -0.1}, ValueError, "eta"),
        ({"eta": "0"}, TypeError, "eta"),
        ({"eta": 0.0, "nu": -1.0}, ValueError, "nu"),
    ],
)
def test_certify_refuses_bad_arguments_by_name(arguments, error, name):
    with pytest.raises(error, match=name):
        certify(**({"n": 100, "alpha": 0.1, "base": Public()} | arguments))


def test_certify_refuses_a_batch_larger_than_the_data():
    with pytest.raises(ValueError, match="batch_size=10"):
        certify(n=5, alpha=0.2)


# --- plan: the largest alpha --------------------------------------------------------------------

PLANNED = [
    (Public(), 0.9),
    (Public(), 0.75),
    (Split(0.3), 0.8),
    (DPSGD(epsilon=0.01), 0.8),
    (DPSGD(epsilon=0.1), 0.85),
    (DPSGD(epsilon=1.0), 0.6),
    (Perturbed(sensitivity=1.0, epsilon=0.1), 0.8),
]


@pytest.mark.parametrize("construction", GUARANTEED)
@pytest.mark.parametrize(("base", "coverage"), PLANNED)
def test_the_planned_alpha_certifies_and_one_rank_more_does_not(base, coverage, construction):
    task = {"n": 150, "construction": construction, "base": base, "folds": 5}
    found = plan(coverage=coverage, **task)
    rows = base.rows_left(150)

    def certified(alpha):
        return certify(alpha=alpha, **task).coverage

    assert certified(found.alpha) >= coverage
    assert found.certificate.coverage == certified(found.alpha)
    rank = kappa(found.alpha, rows)
    assert found.alpha == pytest.approx(rank / (rows + 1))
    assert certified((rank + 1) / (rows + 1)) < coverage
    assert found.base is base
    assert found.epsilon == base.spent(150)
    assert f"alpha = {found.alpha:.4g}" in str(found)


def test_plan_takes_epsilon_for_dpsgd():
    found = plan(n=150, coverage=0.8, epsilon=0.1)
    assert found.base == DPSGD(epsilon=0.1)
    assert found.epsilon == pytest.approx(0.1, rel=2e-3)
    assert found.alpha == plan(n=150, coverage=0.8, base=DPSGD(epsilon=0.1)).alpha


@pytest.mark.parametrize("base", [Public(), DPSGD(epsilon=1.0), Plain()])
def test_no_alpha_is_said_to_be_enough_where_none_is(base):
    found = plan(n=20, coverage=0.99, base=base)
    assert found.alpha is None
    assert found.certificate is None
    assert "No alpha certifies 0.99" in str(found)


# --- plan: the most ε ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("construction", "coverage", "base"),
    [
        ("plus", 0.75, None),
        ("minmax", 0.85, None),
        ("plus", 0.79, DPSGD(epochs=3, batch_size=20)),
        ("plus", 0.75, Perturbed(sensitivity=1.0, epsilon=1.0)),
        ("minmax", 0.88, Perturbed(sensitivity=1.0, epsilon=1.0, norm="l1")),
    ],
)
def test_the_planned_epsilon_certifies_and_two_percent_more_does_not(construction, coverage, base):
    found = plan(n=100, coverage=coverage, construction=construction, alpha=0.1, base=base)

    def certified(method):
        return certify(n=100, alpha=0.1, construction=construction, base=method).coverage

    assert found.alpha == 0.1
    assert certified(found.base) == found.certificate.coverage >= coverage
    assert found.epsilon == found.base.spent(100)
    if isinstance(found.base, DPSGD):
        template = base or DPSGD()
        more = DPSGD(
            epsilon=1.02 * found.epsilon, epochs=template.epochs, batch_size=template.batch_size
        )
    else:
        more = Perturbed(1.0, 1.02 * found.epsilon, norm=found.base.norm)
    assert certified(more) < coverage
    assert f"{found.epsilon:.4g}" in str(found)


def test_no_epsilon_is_said_to_be_enough_where_none_is():
    found = plan(n=100, coverage=0.9, alpha=0.1)
    assert found.alpha is None
    assert found.epsilon is None
    assert found.certificate is None
    assert "No ε certifies 0.9" in str(found)
    assert "only 0.81" in str(found)


def test_a_level_with_infinite_intervals_has_no_most_epsilon():
    """κ = 0 certifies at any ε, so there is none to plan; the sentence says what is wrong."""
    found = plan(n=5, coverage=0.5, alpha=0.1, base=Perturbed(sensitivity=1.0, epsilon=1.0))
    assert found.epsilon is None
    assert found.certificate is None
    assert "infinite" in str(found)


# --- plan: combinations that mean nothing -------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "epsilon= or base="),
        ({"epsilon": 0.1, "base": Public()}, "epsilon= goes alone"),
        ({"epsilon": 0.1, "alpha": 0.1}, "epsilon= goes alone"),
        ({"alpha": 0.1, "base": Public()}, "no noise"),
        ({"alpha": 0.1, "base": Plain()}, "no noise"),
        ({"construction": "naive", "base": Public()}, "construction='naive'"),
        ({"construction": "other", "base": Public()}, "construction='other'.*'plus'"),
        ({"coverage": 1.0, "base": Public()}, "coverage=1.0"),
        ({"n": 0, "base": Public()}, "n=0"),
        ({"alpha": 1.5}, "alpha=1.5"),
        ({"epsilon": -1.0}, "epsilon=-1.0"),
    ],
)
def test_plan_refuses_what_it_cannot_mean(arguments, words):
    with pytest.raises(ValueError, match=words):
        plan(**({"n": 100, "coverage": 0.7} | arguments))
