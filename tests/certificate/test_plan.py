"""``plan``: the way back from a wanted coverage to alpha or ε."""

from dataclasses import replace

import pytest

from lazyknife.base import DPSGD, Perturbed, Plain, Public, Split
from lazyknife.certificate import certify, plan, plan_rows
from lazyknife.certificate.certify import left_out
from lazyknife.intervals import CONSTRUCTIONS, kappa

GUARANTEED = [c for c in CONSTRUCTIONS if CONSTRUCTIONS[c].miss is not None]


PLANNED = [
    (150, Public(), 0.9),
    (150, Public(), 0.75),
    (150, Split(0.3), 0.8),
    (150, DPSGD(epsilon=0.01), 0.8),
    (150, DPSGD(epsilon=0.1), 0.85),
    (150, DPSGD(epsilon=1.0), 0.6),
    (150, Perturbed(sensitivity=1.0, epsilon=0.1), 0.8),
    *((n, Public(), 0.9) for n in (401, 1000, 1001, 2000, 4000, 16_000)),  # a part is set aside
]


@pytest.mark.parametrize("construction", GUARANTEED)
@pytest.mark.parametrize(("n", "base", "coverage"), PLANNED)
def test_the_planned_alpha_certifies_and_one_rank_more_does_not(n, base, coverage, construction):
    task = {"n": n, "construction": construction, "base": base, "folds": 5}
    if construction == "split" and base.trains:
        with pytest.raises(ValueError, match="infinitely wide"):
            plan(coverage=coverage, **task)
        return
    found = plan(coverage=coverage, **task)
    rows = left_out(n, construction, base).rows
    rank = round(found.alpha * (rows + 1))
    assert found.alpha == pytest.approx(rank / (rows + 1))
    assert kappa(found.alpha, rows) == rank
    assert found.certificate == certify(alpha=found.alpha, **task)
    assert found.certificate.coverage >= coverage
    assert certify(alpha=(rank + 1) / (rows + 1), **task).coverage < coverage
    assert found.base is base
    assert found.epsilon == base.spent(n)
    assert f"alpha = {found.alpha:.4g}" in str(found)


def test_plan_takes_epsilon_for_dpsgd():
    found = plan(n=150, coverage=0.8, epsilon=0.1)
    assert found.base == DPSGD(epsilon=0.1)
    assert found.epsilon == pytest.approx(0.1, rel=2e-3)
    assert found.alpha == plan(n=150, coverage=0.8, base=DPSGD(epsilon=0.1)).alpha


@pytest.mark.parametrize(
    ("base", "construction", "coverage", "words"),
    [
        (Public(), "plus", 0.99, "at most 0.9523. Use more rows."),
        (DPSGD(epsilon=1.0), "plus", 0.99, "Use more rows or a smaller ε."),
        (
            Public(),
            "cv+",
            0.9,
            "Use more rows or construction 'plus', 'minmax', 'full' or 'split'.",
        ),
        (Plain(), "plus", 0.99, "trained on all rows without differential privacy"),
    ],
)
def test_no_alpha_is_said_to_be_enough_where_none_is(base, construction, coverage, words):
    found = plan(n=20, coverage=coverage, base=base, construction=construction, folds=4)
    assert (found.alpha, found.certificate) == (None, None)
    assert f"No alpha certifies {coverage} with n = 20 and {base}: " in str(found)
    assert words in str(found)


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
    assert certified(replace(base or DPSGD(), epsilon=1.02 * found.epsilon)) < coverage
    assert f"{found.epsilon:.4g}" in str(found)


INFINITE = "the intervals are infinite, whatever the base. At least 9 rows are needed."


@pytest.mark.parametrize(
    ("n", "coverage", "base", "words"),
    [
        (100, 0.9, None, "at most 0.8118. Use a smaller alpha."),
        (5, 0.5, Perturbed(sensitivity=1.0, epsilon=1.0), INFINITE),  # κ = 0 certifies at any ε
    ],
)
def test_no_epsilon_is_said_to_be_enough_where_none_is(n, coverage, base, words):
    found = plan(n=n, coverage=coverage, alpha=0.1, base=base)
    assert (found.alpha, found.epsilon, found.certificate) == (None, None, None)
    assert str(found).startswith("No ε ")
    assert words in str(found)


def test_folds_are_planned_as_public_weights_certify_them():
    """With few rows in a fold weights that saw the rows have a worse bound than public ones."""
    task = {"n": 100, "coverage": 0.7, "alpha": 0.1, "construction": "cv+"}
    assert plan(**task).certificate.coverage >= 0.7
    found = plan(**task, folds=50)
    assert found.certificate is None
    assert "a base certifies at most 0.5466" in str(found)
    assert "base=Public(), which certifies 0.8039" in str(found)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "epsilon= or base="),
        ({"epsilon": 0.1, "base": Public()}, "epsilon=0.1 cannot be combined"),
        ({"epsilon": 0.1, "alpha": 0.1}, "epsilon=0.1 cannot be combined"),
        ({"alpha": 0.1, "base": Public()}, "no noise"),
        ({"construction": "naive"}, r"'naive' has.*'plus', 'minmax', 'full', 'cv\+' or 'split'"),
        ({"construction": "other"}, "construction='other'.*'plus'"),
        ({"coverage": 1.0, "base": Public()}, "coverage=1.0"),
        ({"n": 0, "base": Public()}, "n=0"),
        ({"alpha": 1.5}, "alpha=1.5"),
        ({"n": 9, "construction": "cv+", "base": Public()}, "folds=10 is more than the 9 rows"),
    ],
)
def test_plan_refuses_what_it_cannot_mean(arguments, words):
    with pytest.raises(ValueError, match=words):
        plan(**({"n": 100, "coverage": 0.7} | arguments))


def test_no_number_of_rows_may_be_enough():
    found = plan_rows(coverage=0.9, base=Plain())
    assert found.n is found.alpha is None
    assert str(found).startswith("No number of rows below 1,048,576 certifies a coverage of 0.9")
    assert str(found).endswith("Use a base with a guarantee, or a smaller ε.")
    with pytest.raises(ValueError, match="construction='naive'"):
        plan_rows(coverage=0.9, construction="naive")


def test_a_plan_says_what_to_expect_beyond_the_lower_bound():
    assert "Expect about 95.0%: what is certified is a lower bound." in str(
        plan(n=199, coverage=0.9, base=Public())
    )
    assert "Expect" not in str(plan(n=199, coverage=0.9, base=Public(), construction="full"))
