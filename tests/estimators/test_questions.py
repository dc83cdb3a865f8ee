"""One side, groups, weights and distributions: definitions, exact coverage, and planted errors.

Given a bag of n + 1 rows, every one of which is as likely to be the new one, the probability of a
miss is the share of rows that are missed by the interval of the others. It is computed here for
drawn bags, so that the inequality must hold for each of them, and nothing is left to chance.
"""

from collections.abc import Callable
from copy import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyknife as lk
from lazyknife import LazyJackknifeRegressor
from lazyknife.intervals import kappa
from lazyknife.intervals.order import mass_largest, mass_smallest
from lazyknife.records import INDEPENDENT
from rows import simulated

pytestmark = pytest.mark.filterwarnings("ignore:groups with too few|.*rows of X weigh more")
FAST: dict[str, Any] = {"network": lk.wide("laplace", 1.0), "ridge": 0.3, "random_state": 0}
DEFAULT: dict[str, Any] = {"random_state": 0}
KINDS = {
    "one network": FAST,
    "minmax": FAST | {"construction": "minmax"},
    "choosing": DEFAULT,
    "finite": {"network": lk.mlp((3,)), "random_state": 0},
}


def bag(seed: int, n: int = 9) -> tuple[Any, Any, Any]:
    """N + 1 rows with skewed errors, and a group that the size of the errors depends on."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.arange(n + 1) % 2)
    X = np.column_stack([rng.normal(size=n + 1), groups])
    errors = rng.exponential(size=n + 1) * np.where(groups == 1, 4.0, 0.2)
    return X, X[:, 0] + errors, groups


def misses(ask: Callable[[Any, Any, Any, Any], Any], X: Any, y: Any, groups: Any) -> Any:
    """For each row whether the answer that the others give for it misses it."""
    found = []
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        result = ask(X[others], y[others], groups[others], i)
        found.append(not bool(result.covers(y[[i]])[0]))
    return np.array(found)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("side", ["upper", "lower"])
def test_limits_are_order_statistics_of_signed_errors(name, side):
    X, y = simulated(3, 0, 60)
    model = LazyJackknifeRegressor(**KINDS[name]).fit(X[:40], y[:40])
    result = model.predict_interval(X[40:], alpha=[0.1, 0.3], side=side)
    ends = {"upper": result.upper, "lower": -result.lower}
    assert np.isinf(ends.pop("lower" if side == "upper" else "upper")).all()
    found, sign = model.loo_.scaled(torch.tensor(X[40:])), 1.0 if side == "upper" else -1.0
    each, widths = sign * found.each.numpy(), found.scales.numpy()
    errors = sign * (model.loo_.scores * model.loo_.residuals.sign()).numpy()
    for k, rank in enumerate((kappa(0.1, 40), kappa(0.3, 40))):
        if model.construction == "minmax":
            wanted = (each + np.sort(errors)[-rank] * widths).max(axis=1)
        else:
            wanted = np.sort(each + errors * widths, axis=1)[:, -rank]
        assert (ends[side][:, k] >= wanted - 1e-12).all()  # never inside
        np.testing.assert_allclose(ends[side][:, k], wanted, rtol=1e-9, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 30), k=st.integers(1, 99), seed=st.integers(0, 999))
def test_equal_weights_give_the_ranks_and_others_the_definition(n, k, seed):
    rng, level = np.random.default_rng(seed), k / 100
    values = torch.from_numpy(rng.integers(0, 6, size=(2, n)).astype(float))
    own, new = torch.ones(n).double() * 3, torch.ones(2).double() * 3
    rank = kappa(level, n)
    ordered = values.sort(dim=1).values
    wanted = ordered[:, n - rank] if rank else torch.full((2,), torch.inf).double()
    assert torch.equal(mass_largest(values, own, new, [level])[:, 0], wanted)
    wanted = ordered[:, rank - 1] if rank else torch.full((2,), -torch.inf).double()
    assert torch.equal(mass_smallest(values, own, new, [level])[:, 0], wanted)
    own, new = (torch.from_numpy(rng.uniform(0, 1, size=size)) for size in (n, 2))
    for row, found in enumerate(mass_largest(values, own, new, [level])[:, 0].tolist()):
        allowed = level * float(own.sum() + new[row])
        above = [float(own[values[row] > v].sum() + new[row]) for v in values[row]]
        fits = [float(v) for v, mass in zip(values[row], above, strict=True) if mass <= allowed]
        assert found == min(fits, default=np.inf)


@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("settings", [FAST, DEFAULT], ids=["one network", "choosing"])
def test_each_side_misses_no_more_than_its_bound_in_any_bag(settings, side):
    def ask(X_old: Any, y_old: Any, _: Any, i: int) -> Any:
        model = LazyJackknifeRegressor(**settings, alpha=0.2).fit(X_old, y_old)
        return model.predict_interval(X[[i]], side=side)

    for seed in range(3):
        X, y, groups = bag(seed)
        assert misses(ask, X, y, groups).mean() <= (2 * kappa(0.2, 9) - 1) / 10


def asking(X: Any, terms: Callable[[Any, Any], dict[str, Any]], **settings: Any) -> Any:
    """Ask for a row, with what is known of the old rows and of the new one."""

    def ask(X_old: Any, y_old: Any, old: Any, i: int) -> Any:
        model = LazyJackknifeRegressor(**FAST | settings).fit(X_old, y_old, groups=old)
        return model.predict_interval(X[[i]], **terms(np.arange(len(X)) != i, [i]))

    return ask


@pytest.mark.parametrize("construction", ["plus", "minmax"])
def test_groups_cover_each_of_them_in_any_bag_and_other_groups_do_not(construction):
    """The mutants take the errors of the other group, and give points in place of limits."""
    caught, rank = 0, kappa(0.34, 5)
    bound = (2 * rank - 1) / 6 if construction == "plus" else rank / 6
    for seed in range(8):
        X, y, groups = bag(seed, 11)
        own, other = (
            misses(asking(X, terms, construction=construction, alpha=0.34), X, y, groups)
            for terms in (
                lambda _, new, groups=groups: {"groups": groups[new]},
                lambda _, new, groups=groups: {"groups": 1 - groups[new]},
            )
        )
        assert max(own[groups == g].mean() for g in (0, 1)) <= bound + 1e-12
        caught += max(other[groups == g].mean() for g in (0, 1)) > bound
    assert caught >= 6


@pytest.mark.parametrize("construction", ["plus", "minmax"])
def test_weights_cover_in_any_bag_and_their_inverses_do_not(construction):
    """Given the bag, row i is the new one with a probability in proportion to its weight."""
    caught, bound = 0, 0.4 if construction == "plus" else 0.2
    for seed in range(4):
        X, y, groups = bag(seed, 19)
        weights = np.where(groups == 1, 6.0, 0.2)
        right, inverse = (
            misses(asking(X, terms, construction=construction, alpha=0.2), X, y, groups)
            for terms in (
                lambda old, new, w=weights: {"weights": (w[old], w[new])},
                lambda old, new, w=1 / weights: {"weights": (w[old], w[new])},
            )
        )
        assert shares(weights) @ right <= bound + 1e-12
        caught += shares(weights) @ inverse > bound
    assert caught >= 1


@pytest.mark.parametrize("n", [60, 1500])
def test_questions_survive_saving_and_agree_with_each_other(n, tmp_path):
    X, y = simulated(4, 0, n + 200)
    labels = np.where(X[:, 0] > 0, "a", "b")
    model = LazyJackknifeRegressor(random_state=0).fit(X[:n], y[:n], groups=labels[:n])
    new, groups, ones = X[n:], labels[n:], (np.ones(n), np.ones(200))
    model.save(tmp_path / "m.lk")
    loaded = LazyJackknifeRegressor.load(tmp_path / "m.lk")
    asked: list[dict[str, Any]] = [
        *({"side": "upper"}, {"groups": groups}, {"groups": groups, "side": "lower"}),
        *({"weights": (np.arange(n) + 1.0, ones[1])}, {"weights": "estimate"}),
    ]
    for terms in asked:
        first, second = (m.predict_interval(new, **terms) for m in (model, loaded))
        np.testing.assert_allclose(first.to_numpy(), second.to_numpy(), rtol=1e-9)
    plain, jackknife = model.predict_interval(new).to_numpy(), copy(model)
    jackknife.construction_ = "plus"  # which answers in place of full conformal prediction
    same, wanted = model.predict_interval(new, weights=ones), jackknife.predict_interval(new)
    np.testing.assert_allclose(same.to_numpy(), wanted.to_numpy(), rtol=1e-6)
    everyone = LazyJackknifeRegressor(random_state=0).fit(X[:n], y[:n], groups=["all"] * n)
    alike = everyone.predict_interval(new, groups=["all"] * 200)
    np.testing.assert_allclose(alike.to_numpy(), plain, rtol=1e-9)
    with pytest.raises(ValueError, match="a saved model has no training rows for a function"):
        loaded.predict_interval(new, weights=lambda rows: rows[:, 0])


def test_overlapping_groups_contain_the_intervals_of_each_and_unknown_ones_are_infinite():
    X, y = simulated(3, 0, 140)
    columns = np.column_stack([X[:, 0] > 0, np.arange(140) % 3])
    model = LazyJackknifeRegressor(**FAST).fit(X[:100], y[:100], groups=columns[:100])
    both = model.predict_interval(X[100:], groups=columns[100:])
    for k in (0, 1):
        single = LazyJackknifeRegressor(**FAST).fit(X[:100], y[:100], groups=columns[:100, k])
        one = single.predict_interval(X[100:], groups=columns[100:, k])
        assert (both.lower <= one.lower + 1e-9).all()
        assert (both.upper >= one.upper - 1e-9).all()
    strange = columns[100:].copy()
    strange[0, 1] = 7
    with pytest.warns(
        UserWarning, match=r"too few rows for alpha=0.1: without training rows \(0\)"
    ):
        found = model.predict_interval(X[100:], groups=strange)
    assert np.isinf(found.width[0])
    assert np.isfinite(found.width[1:]).all()


def test_columns_of_a_frame_name_groups_and_functions_weigh_its_rows():
    X, y = simulated(2, 0, 90)
    frame = pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "kind": np.where(X[:, 0] > 0, "a", "b")})
    model = LazyJackknifeRegressor(random_state=0).fit(frame[:60], y[:60], groups="kind")
    result = model.predict_interval(frame[60:], groups="kind")
    assert result.certificate.rows == "any new row, in each group"
    by_array = model.predict_interval(frame[60:], groups=frame["kind"][60:])
    assert (by_array.to_numpy() == result.to_numpy()).all()
    weighted = model.predict_interval(frame[60:], weights=lambda rows: np.exp(rows["x"] / 9))
    assert weighted.certificate.coverage == pytest.approx(0.8)
    assert "the weights that were passed" in weighted.certificate.details
    estimated = model.predict_interval(frame[60:], weights="estimate")
    assert "the one that was estimated" in estimated.certificate.details


def test_estimated_weights_cure_a_shift_of_the_features():
    """Errors grow with x: rows with larger x are covered too rarely without weights."""
    rng, coverage = np.random.default_rng(0), []
    for _ in range(6):
        X = rng.normal(size=(3000, 1))
        y = X[:, 0] + rng.normal(size=3000) * np.exp(X[:, 0])
        model = LazyJackknifeRegressor(**FAST).fit(X[:400], y[:400])
        chosen = rng.choice(np.arange(400, 3000), 500, p=shares(np.exp(X[400:, 0])))
        new, truth = X[chosen], y[chosen]
        pair = (model.predict_interval(new), model.predict_interval(new, weights="estimate"))
        coverage.append([result.covers(truth).mean() for result in pair])
    plain, weighted = np.mean(coverage, axis=0)
    assert plain < 0.85
    assert weighted > 0.87


def shares(weights: Any) -> Any:
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"side": "left"}, "side='left': choose from 'both', 'upper', 'lower'"),
        ({"groups": [0] * 5}, "groups was not passed to fit"),
        ({"weights": 3}, "weights: give a pair"),
        ({"weights": "guess"}, "weights='guess': choose from 'estimate'"),
        ({"weights": (np.ones(40), -np.ones(5))}, r"weights of X\[0\]=-1 is below 0"),
        ({"weights": (np.ones(39), np.ones(5))}, r"weights\[0\] has shape \(39,\)"),
        ({"weights": "estimate"}, "requires 20 training rows and 20 rows of X to compare, not 5"),
        ({"groups": np.zeros((5, 2, 2))}, "groups was not passed to fit"),
    ],
)
def test_questions_that_make_no_sense_are_refused(terms, message):
    X, y = simulated(2, 0, 45)
    model = LazyJackknifeRegressor(**FAST).fit(X[:40], y[:40])
    with pytest.raises((ValueError, TypeError), match=message):
        model.predict_interval(X[40:], **terms)


def test_questions_that_models_cannot_answer_are_refused_with_the_way_out():
    X, y = simulated(2, 0, 60)
    labels = np.arange(60) % 2
    full = LazyJackknifeRegressor(**FAST, construction="full").fit(X[:40], y[:40], groups=[0] * 40)
    folds = lk.CVPlusRegressor(lk.mlp((3,)), epochs=1, random_state=0).fit(X[:40], y[:40])
    shown = LazyJackknifeRegressor(**FAST, construction="minmax").fit(X[:40], y[:40])
    for model, terms, why in (
        (full, {"side": "upper"}, "construction='full' does not support side: use 'plus'"),
        (full, {"groups": labels[40:]}, "construction='full' does not support groups"),
        (folds, {"weights": (np.ones(40), np.ones(20))}, "'cv\\+' does not support weights"),
    ):
        with pytest.raises(ValueError, match=why):
            model.predict_interval(X[40:], **terms)
    with pytest.raises(ValueError, match="'minmax' has no distribution: use construction='plus'"):
        shown.predict_distribution(X[40:])
    shown.loo_ = SimpleNamespace(residuals=shown.loo_.residuals)  # as after a fit to Dask
    for rows in (X, iter([X])):
        with pytest.raises(ValueError, match="side: this model keeps no errors of single rows"):
            shown.predict_interval(rows, side="upper")
    shown = LazyJackknifeRegressor(**FAST).fit(X[:40], y[:40])
    frame = pd.DataFrame(X, columns=["a", "b"])
    with pytest.raises(ValueError, match=r"groups=\['a', 'c'\]: the columns of X are 'a', 'b'"):
        LazyJackknifeRegressor(**FAST).fit(frame, y, groups=["a", "c"])
    with pytest.raises(ValueError, match="parts have different sides"):
        lk.Intervals.concat([shown.predict_interval(X, side=side) for side in ("upper", "lower")])


# What certificates say.


def test_certificates_of_groups_count_their_rows_in_every_construction():
    """Folds of some rows have any size, so that only the bound for such folds holds in a group."""
    X, y = simulated(2, 0, 60)
    labels = np.arange(60) % 3 == 0  # 20 rows against 40
    base = lk.DPSGD(epsilon=0.5, epochs=1)
    for terms in (
        {**FAST, "construction": "plus"},
        {**FAST, "construction": "cv+", "folds": 10},
        {"network": lk.mlp((3,)), "base": base, "random_state": 0, "construction": "minmax"},
    ):
        model = LazyJackknifeRegressor(**terms).fit(X, y, groups=labels)
        one = model.predict_interval(X[:1], alpha=0.2, groups=labels[:1]).certificate
        rank = kappa(0.2, 20)
        miss = {
            "plus": (2 * rank - 1) / 21,
            "cv+": (2 * rank - 2 + 10) / 30,
            "minmax": rank / 21,
        }[str(terms["construction"])]
        curve = base.dependence(60) if "base" in terms else INDEPENDENT
        assert one.coverage == pytest.approx(max(0.0, 1 - curve.transfer(miss)))
        assert not any("A whole fold" in each for each in one.assumptions)


def test_certificates_name_the_pool_the_seed_and_what_weights_are_worth():
    X, y = simulated(2, 0, 460)
    labels, old, pool = X[:, 0] > 0, slice(30), X[430:]
    scaled = LazyJackknifeRegressor(lk.mlp((3,)), scaling="standardize", alpha=0.3, random_state=0)
    scaled.fit(X[old], y[old], X_pool=pool, groups=labels[old])
    grouped = scaled.predict_interval(pool, groups=labels[430:]).certificate
    assert grouped.rows == "the rows passed as X_pool, and no others, in each group"
    pair = (np.r_[np.ones(10), np.zeros(20)], np.ones(30))
    shifted = scaled.predict_interval(pool, weights=pair).certificate
    assert "weights that leave the training rows as much as 10 equal ones tell" in shifted.subject
    assert shifted.rows.endswith("and no others, if the weights are right")
    assert not any("exchangeable" in each for each in shifted.assumptions)
    drawn = LazyJackknifeRegressor(lk.wide("laplace", 1.0), random_state=0).fit(X[:430], y[:430])
    weighed = drawn.predict_interval(pool, weights=(np.ones(430), np.ones(30))).certificate
    assert "includes the seed" in weighed.scope
    assert "whichever" not in weighed.details


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e308])
def test_weights_count_up_to_a_factor_and_zero_weights_tell_nothing(size):
    X, y = simulated(2, 0, 60)
    model = LazyJackknifeRegressor(**FAST).fit(X[:40], y[:40])
    pair = (np.full(40, size), np.full(20, size))
    found, plain = model.predict_interval(X[40:], weights=pair), model.predict_interval(X[40:])
    np.testing.assert_allclose(found.to_numpy(), plain.to_numpy(), rtol=1e-9)
    spread = model.predict_distribution(X[40:], weights=pair)
    np.testing.assert_allclose(spread.crps(y[40:]), model.predict_distribution(X[40:]).crps(y[40:]))
    for new in (np.zeros(20), pair[1]):
        nothing = model.predict_interval(X[40:], weights=(np.zeros(40), new))
        assert np.isinf(nothing.lower).all()
        assert np.isinf(nothing.upper).all()


# Distributions.


def test_ties_lie_within_quantiles_and_unknown_models_beyond_them():
    """Y is 0 or 1 whatever x: an end that rounding moves inwards misses half of the rows."""
    X, y = np.zeros((10, 1)), np.repeat([0.0, 1.0], 5)
    for i in range(10):
        others = np.arange(10) != i
        found = LazyJackknifeRegressor(**FAST).fit(X[others], y[others]).predict_distribution(X[:1])
        assert found.quantile(0.2)[0] <= y[i] <= found.quantile(0.8)[0]
        assert found.p_value(y[[i]])[0] > 0.5
    known = np.array([[0.0, 1.0, 2.0]])
    lows, values = (np.append(known, [[end]], axis=1) for end in (-np.inf, np.inf))
    one = lk.Distribution(np.zeros(1), lows, values, np.ones((1, 4)), np.ones(1))
    assert one.p_value([5.0], "upper")[0] == pytest.approx(3 / 5)  # 2 · 1 + 1 of 5
    assert one.p_value([-5.0], "lower")[0] == pytest.approx(3 / 5)
    assert one.mean()[0] == pytest.approx(1.0)
    assert one.crps([1.0])[0] == pytest.approx(2 / 3 - 4 / 9)
    assert set(one.sample(50, random_state=0)[0]) == {0.0, 1.0, 2.0}
    zeros = np.zeros((1, 3))
    nothing = lk.Distribution(np.ones(1), zeros, zeros, zeros, np.ones(1))
    assert np.isnan([nothing.mean(), nothing.crps(0.0), nothing.sample(1)[:, 0]]).all()
    assert nothing.quantile([0.1, 0.5, 0.9]).tolist() == [[-np.inf, 1.0, np.inf]]


def test_distributions_of_many_rows_count_the_models_that_are_kept():
    X, y = simulated(2, 0, 100)
    labels = np.arange(100) % 2
    model = LazyJackknifeRegressor(**FAST).fit(X[:90], y[:90], groups=labels[:90])
    model.kept_ = np.arange(0, 90, 3)  # as if there were more than 2,000 rows
    found = model.predict_distribution(X[90:])
    assert found.values.shape == (10, 30)
    assert found.certify(0.9).coverage == pytest.approx(1 - (2 * 3 - 1) / 31)
    grouped = model.predict_distribution(X[90:], groups=labels[90:])
    assert grouped.certify(0.8).coverage == pytest.approx(1 - (2 * 3 - 1) / 16)


@pytest.mark.parametrize("settings", [FAST, DEFAULT], ids=["one network", "choosing"])
@pytest.mark.parametrize("n", [50, 1300])
@pytest.mark.filterwarnings("ignore")
def test_quantiles_of_a_distribution_are_the_limits_of_their_sides(settings, n):
    X, y = simulated(3, 1, n + 40)
    model = LazyJackknifeRegressor(**settings, construction="plus").fit(X[:n], y[:n])
    found = model.predict_distribution(X[n:])
    for q in (0.03, 0.2, 0.45, 0.55, 0.8, 0.97):
        side = "upper" if q > 0.5 else "lower"
        limit = model.predict_interval(X[n:], alpha=min(q, 1 - q), side=side)
        np.testing.assert_allclose(found.quantile(q), getattr(limit, side), rtol=1e-5, atol=1e-5)
        assert found.certify(q).coverage == limit.certificate.coverage


def test_scores_and_moments_equal_their_definitions():
    X, y = simulated(3, 2, 70)
    model = LazyJackknifeRegressor(**FAST).fit(X[:50], y[:50])
    found, truth = model.predict_distribution(X[50:]), y[50:]
    values = found.values
    below = (values < truth[:, None]).sum(axis=1)
    spread = np.abs(values - truth[:, None]).mean(axis=1)
    pairs = np.abs(values[:, :, None] - values[:, None]).mean(axis=(1, 2)) / 2
    draws = found.sample(2000, random_state=0)
    for actual, wanted, close in (
        (found.crps(truth), spread - pairs, 0),
        (found.mean(), values.mean(axis=1), 0),
        (found.var(), values.var(axis=1), 0),
        (found.cdf(truth), (below + 0.5) / 51, 0),
        (found.p_value(truth, "upper"), np.minimum((2 * (50 - below) + 1) / 51, 1), 0),
        (draws.mean(axis=1), found.mean(), 0.3),
    ):
        np.testing.assert_allclose(actual, wanted, rtol=1e-7, atol=close)
    assert found.to_frame().columns.tolist()[0] == "mean"
    assert len(found[:3]) == 3
    assert repr(found).startswith("20 predictive distributions")
    found.plot(truth)
    with pytest.raises(ValueError, match=r"^q=\[\]: give at least one level"):
        found.quantile([])
    with pytest.raises(ValueError, match=r"^y=nan is not a finite number"):
        found.cdf(np.nan)


def test_upper_p_values_are_valid_in_any_bag():
    """P(p ≤ t) ≤ t for the true y; half of the p-value is not."""
    for seed in range(6):
        X, y, _ = bag(seed, 14)
        found = []
        for i in range(15):
            others = np.arange(15) != i
            model = LazyJackknifeRegressor(**FAST).fit(X[others], y[others])
            found.append(float(model.predict_distribution(X[[i]]).p_value(y[[i]], "upper")[0]))
        ordered = np.sort(found)
        assert all((ordered <= t).mean() <= t + 1e-12 for t in ordered)
        assert not all((ordered / 4 <= t).mean() <= t + 1e-12 for t in ordered / 4)


def test_groups_and_weights_enter_distributions():
    X, y, groups = bag(0, 199)
    model = LazyJackknifeRegressor(**FAST).fit(X[:100], y[:100], groups=groups[:100])
    for terms in (
        {"groups": groups[100:]},
        {"weights": (np.exp(X[:100, 0]), np.exp(X[100:, 0]))},
    ):
        found = model.predict_distribution(X[100:], **terms)
        limit = model.predict_interval(X[100:], alpha=0.2, side="upper", **terms)
        np.testing.assert_allclose(found.quantile(0.8), limit.upper, rtol=1e-6)
    assert found.certify(0.8).coverage == pytest.approx(0.6)
