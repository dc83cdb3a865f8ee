"""Whole clusters left out: explicit refits, exact coverage of bags of clusters, a planted error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyknife as lk
from lazyknife import LazyJackknifeRegressor
from lazyknife.choosing.rows import drawn_part, first_of_each
from lazyknife.estimators.fit_clusters import ClustersStep
from lazyknife.estimators.fit_input import prepare
from lazyknife.estimators.fit_outputs import outputs_step
from lazyknife.intervals.asked import Masses, weighted_plus
from lazyknife.intervals.clusters import cluster_models
from lazyknife.intervals.constructions import clusters_miss
from several import refit

FAST: dict[str, Any] = {
    "network": lk.wide("laplace", 1.0),
    "ridge": 0.3,
    "scaling": None,
    "feature_weights": None,
    "target_transform": None,
    "random_state": 0,
}
DEFAULT: dict[str, Any] = {"network": [lk.wide("gaussian"), lk.wide("laplace")], "random_state": 0}


def clustered(seed: int, clusters: int, most: int = 4) -> tuple[Any, Any, Any]:
    """Rows of clusters of unequal sizes, whose rows share features and most of the error."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(clusters), rng.integers(1, most + 1, size=clusters))
    X = rng.normal(size=(clusters, 2))[labels] + 0.05 * rng.normal(size=(len(labels), 2))
    y = X[:, 0] + rng.exponential(size=clusters)[labels] + 0.05 * rng.normal(size=len(labels))
    order = rng.permutation(len(labels))
    return X[order], y[order], labels[order]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 9999), clusters=st.integers(4, 12), k=st.integers(10, 45))
@pytest.mark.filterwarnings("ignore:.*clusters are too few")
def test_intervals_equal_their_definition_by_refits(seed, clusters, k):
    X, y, labels = clustered(seed, clusters + 3)
    old, level = labels < clusters, k / 100 + 0.003
    new = X[~old]
    model = LazyJackknifeRegressor(**FAST, alpha=level)
    found = model.fit(X[old], y[old], clusters=labels[old]).predict_interval(new)
    names, sizes = np.unique(labels[old], return_counts=True)
    ends, masses = [], []
    for name, size in zip(names, sizes, strict=True):
        kept, own = old & (labels != name), labels == name
        error = np.abs(y[own] - refit(X[kept], y[kept][:, None], X[own], 0.3)[:, 0])
        at = refit(X[kept], y[kept][:, None], new, 0.3)
        ends += [(at[:, 0] - each, at[:, 0] + each) for each in error]
        masses += [1 / size] * size
    lower, upper = (np.stack([pair[side] for pair in ends], axis=1) for side in (0, 1))
    mass, total = np.array(masses), clusters + 1
    for row in range(len(new)):
        for got, values in ((found.upper[row], upper[row]), (-found.lower[row], -lower[row])):
            fits = [v for v in values if mass[values > v].sum() + 1 <= level * total]
            assert got == pytest.approx(min(fits, default=np.inf), abs=1e-9)


@pytest.mark.parametrize("terms", [FAST, DEFAULT], ids=["one network", "choosing"])
@pytest.mark.filterwarnings("ignore:.*clusters are too few")
def test_new_clusters_are_missed_no_more_than_the_bound_in_any_bag_and_single_rows_miss(terms):
    """Each of K + 1 clusters is as likely to be the new one, and each of its rows the new row."""
    caught, level, count = 0, 0.25, 12
    for seed in range(4):
        X, y, labels = clustered(seed, count, 5)
        missed, mutant = [], []
        for name in range(count):
            old, new = labels != name, labels == name
            model = LazyJackknifeRegressor(**terms, alpha=level)
            model.fit(X[old], y[old], clusters=labels[old])
            missed.append(1 - model.predict_interval(X[new]).covers(y[new]).mean())
            rows = LazyJackknifeRegressor(**terms, alpha=level).fit(X[old], y[old])
            mutant.append(1 - rows.predict_interval(X[new]).covers(y[new]).mean())
        bound = 2 * level - 1 / count
        assert np.mean(missed) <= bound
        assert model.certificate_.coverage == pytest.approx(1 - bound)
        caught += np.mean(mutant) > bound
    assert caught >= 3


def test_clusters_of_one_row_have_the_bound_of_jackknife_plus():
    for count, rank in [(19, 2), (99, 7), (30, 1)]:
        level = rank / (count + 1)
        assert clusters_miss(level, count) == pytest.approx((2 * rank - 1) / (count + 1))
    assert clusters_miss(0.04, 20) == 0.0
    X, y, _ = clustered(0, 40, 1)
    plain = LazyJackknifeRegressor(**FAST, widths="constant", alpha=0.2).fit(X[:30], y[:30])
    apart = LazyJackknifeRegressor(**FAST, alpha=0.2).fit(X[:30], y[:30], clusters=range(30))
    for end in ("lower", "upper"):
        wanted = getattr(plain.predict_interval(X[30:]), end)
        np.testing.assert_allclose(getattr(apart.predict_interval(X[30:]), end), wanted, atol=1e-9)


def test_every_model_chooses_as_a_fit_without_its_cluster():
    X, y, labels = clustered(3, 14, 6)
    model = LazyJackknifeRegressor(**DEFAULT).fit(X, y, clusters=labels)
    order = list(dict.fromkeys(labels.tolist()))
    for name in order[:4]:
        kept = labels != name
        other = LazyJackknifeRegressor(**DEFAULT).fit(X[kept], y[kept], clusters=labels[kept])
        k = order.index(name)
        assert model.choice_.network[k] == other.choice_.network[-1]
        assert model.choice_.ridge[k] == other.choice_.ridge[-1]


def test_how_many_rows_of_a_cluster_choose_depends_on_no_size_of_another():
    few, many = torch.arange(3), torch.arange(3, 703)
    for other in (torch.arange(703, 708), torch.arange(703, 903)):
        part = set(first_of_each([few, many, other], 20).tolist())
        assert part & set(many.tolist()) == set(range(3, 10))
        assert set(few.tolist()) <= part


def test_columns_names_sides_distributions_and_saving(tmp_path):
    X, y, labels = clustered(5, 80, 8)
    names = np.array([f"school {k}" for k in labels])
    frame = pd.DataFrame(X, columns=["a", "b"])
    old = labels < 60
    model = LazyJackknifeRegressor(**DEFAULT).fit(frame[old], y[old], clusters=names[old])
    new = frame[~old]
    result = model.predict_interval(new, alpha=[0.1, 0.2])
    assert (result.lower[:, 0] <= result.lower[:, 1]).all()
    assert result.certificate[0].coverage == pytest.approx(1 - 0.2 + 1 / 61)
    assert "a new cluster" in str(model.certificate_)
    assert "clusters of the training rows" in model.certificate_.details
    assert "60 clusters" in model.certificate_.subject
    upper = model.predict_interval(new, side="upper")
    assert upper.certificate.coverage == pytest.approx(1 - 0.2 + 1 / 61)
    limit = model.predict_distribution(new).quantile(0.9)
    np.testing.assert_allclose(limit, upper.upper, rtol=1e-6)
    model.save(tmp_path / "m.lk")
    loaded = LazyJackknifeRegressor.load(tmp_path / "m.lk")
    np.testing.assert_array_equal(loaded.predict_interval(new, alpha=[0.1, 0.2]), result)
    assert loaded.certificate_ == model.certificate_
    again = model.fit(frame[old], y[old])
    assert "cluster" not in str(again.certificate_)
    by_name = LazyJackknifeRegressor(**FAST).fit(
        frame[old].assign(c=labels[old]), y[old], clusters="c"
    )
    assert "60 clusters" in by_name.certificate_.subject


def test_too_few_clusters_are_infinite_and_say_so():
    X, y, labels = clustered(0, 8, 6)
    model = LazyJackknifeRegressor(**FAST).fit(X, y, clusters=labels)
    with pytest.warns(UserWarning, match="8 clusters are too few for alpha=0.1"):
        assert np.isinf(model.predict_interval(X).width).all()


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"construction": "minmax"}, "construction='minmax' does not support clusters"),
        ({"base": lk.DPSGD(1.0)}, r"base=DPSGD\(.*\) does not support clusters: use Public\(\)"),
        ({"widths": "leverage"}, "choose widths from None, 'constant'"),
        ({"network": lk.mlp((3,))}, "take infinitely wide networks"),
    ],
)
def test_settings_that_need_single_rows_are_refused(terms, message):
    X, y, labels = clustered(0, 10)
    with pytest.raises((ValueError, TypeError), match=message):
        LazyJackknifeRegressor(**FAST | terms).fit(X, y, clusters=labels)


def test_questions_that_need_single_rows_are_refused():
    X, y, labels = clustered(0, 12)
    model = LazyJackknifeRegressor(**FAST).fit(X, y, clusters=labels)
    for terms in ({"groups": labels}, {"weights": (np.ones(len(y)), np.ones(len(y)))}):
        with pytest.raises(ValueError, match="does not support models that were fitted with clus"):
            model.predict_interval(X, **terms)
    with pytest.raises(ValueError, match="clusters requires all rows at once"):
        model.predict_interval(iter([X]))
    fresh = LazyJackknifeRegressor(**FAST)
    with pytest.raises(ValueError, match="clusters does not support groups"):
        fresh.fit(X, y, clusters=labels, groups=labels)
    with pytest.raises(ValueError, match="clusters does not support X_pool"):
        fresh.fit(X, y, X_pool=X, clusters=labels)
    with pytest.raises(ValueError, match="clusters does not support several outputs"):
        fresh.fit(X, np.column_stack([y, y**2]), clusters=labels)
    with pytest.raises(ValueError, match="clusters has no label for row 1"):
        fresh.fit(X, y, clusters=[0, None, *range(len(y) - 2)])
    with pytest.raises(ValueError, match="clusters has 2 labels"):
        fresh.fit(X, y, clusters=labels % 2)
    with pytest.raises(ValueError, match="clusters does not support JackknifeRegressor"):
        lk.JackknifeRegressor().fit(X, y, clusters=labels)
    with pytest.raises(ValueError, match="5,001 rows, 101 of them in one cluster: clusters take"):
        fresh.fit(np.ones((5001, 2)), np.arange(5001.0), clusters=np.arange(5001) % 50)


def many_step(features: int, seed: int = 0) -> ClustersStep:
    """The step for many rows, whatever their number."""
    settings = LazyJackknifeRegressor(**FAST | {"random_state": seed})
    given = prepare(settings, np.zeros((8, features)), np.arange(8.0), None, None)
    return outputs_step(settings, given, "constant", None).many_clusters(False)


def test_models_of_many_rows_equal_refits_on_the_features_without_each_cluster():
    X, y, labels = clustered(1, 60, 30)
    clusters = [torch.from_numpy(np.flatnonzero(labels == k)) for k in range(60)]
    rows = torch.from_numpy(X)
    loo, _, left = many_step(2).leave_clusters(rows, torch.from_numpy(y), clusters)
    own = labels[left.numpy()]
    assert len(set(own)) == loo.columns.shape[1] == 30
    assert np.array_equal(np.unique(own, return_inverse=True)[1], loo.cluster.numpy())
    F, new = loo.passes.features(rows)[0].numpy(), torch.tensor([[0.3, -0.2], [1.0, 2.0]])
    new = new.double()
    G, at = loo.passes.features(new)[0].numpy(), loo.scaled(new).each.numpy()
    penalty = loo.passes.ridge * np.diag([*np.ones(F.shape[1] - 1), 0.0])
    for name in set(own):
        kept, mine = labels != name, own == name
        fit = F[kept].T @ F[kept] + penalty
        weights = np.linalg.solve(fit, F[kept].T @ (y[kept] - loo.passes.center))
        error = y[left.numpy()[mine]] - loo.passes.center - F[left.numpy()[mine]] @ weights
        np.testing.assert_allclose(loo.residuals[mine], error, atol=1e-7)
        wanted = (G @ weights + loo.passes.center)[:, None].repeat(mine.sum(), axis=1)
        np.testing.assert_allclose(at[:, mine], wanted, atol=1e-7)
        assert (loo.scores[mine] >= torch.from_numpy(np.abs(error))).all()


def test_new_clusters_of_many_rows_are_missed_no_more_than_the_bound_in_any_bag():
    """Given the part, each of the other clusters is as likely to be the new one."""
    level, caught = 0.25, 0
    for seed in range(3):
        X, y, labels = clustered(seed, 24, 12)
        rows, targets = torch.from_numpy(X), torch.from_numpy(y)
        step = many_step(2)
        every = [torch.from_numpy(np.flatnonzero(labels == k)) for k in range(24)]
        apart = sorted(drawn_part(24, step.seed).tolist())
        own = torch.cat([every[k] for k in apart])
        others = [every[k] for k in range(24) if k not in apart]
        passes = step.chosen(rows[own], targets[own], len(own))[0]
        missed, mutant = [], []
        for k, new in enumerate(others):
            rest = [*others[:k], *others[k + 1 :]]
            part = torch.cat([own, *rest])
            places = [
                torch.arange(len(own), len(part))[torch.isin(part[len(own) :], c)] for c in rest
            ]
            loo = cluster_models(passes, rows[part], targets[part], places)
            sizes = torch.tensor([1 / len(c) for c in rest]).double()[loo.cluster]
            masses = Masses(sizes, torch.ones(len(new)).double(), [level])
            _, lower, upper = weighted_plus(loo, rows[new], masses)
            missed.append(
                float(((targets[new, None] < lower) | (targets[new, None] > upper)).double().mean())
            )
            margin = np.quantile(loo.training_residuals.abs(), 1 - level)
            mutant.append(
                float(((targets[new] - loo.point(rows[new])).abs() > margin).double().mean())
            )
        assert np.mean(missed) <= clusters_miss(level, len(others) - 1)
        caught += np.mean(mutant) > clusters_miss(level, len(others) - 1)
    assert caught >= 1


def test_many_rows_of_clusters_are_fitted_certified_and_saved(tmp_path):
    X, y, labels = clustered(2, 400, 40)
    old = labels < 300
    assert old.sum() > 5050
    model = LazyJackknifeRegressor(**FAST).fit(X[old], y[old], clusters=labels[old])
    assert "150 clusters" in model.certificate_.subject
    assert model.certificate_.coverage == pytest.approx(0.8 + 1 / 151)
    result, plain = model.predict_interval(X[~old]), LazyJackknifeRegressor(**FAST)
    covered = result.covers(y[~old])
    shares = [covered[labels[~old] == k].mean() for k in range(300, 400)]
    assert np.mean(shares) >= 0.8
    by_rows = plain.fit(X[old], y[old]).predict_interval(X[~old]).covers(y[~old]).mean()
    assert by_rows < np.mean(shares) - 0.1
    limit = model.predict_interval(X[~old][:9], side="upper").upper
    quantile = model.predict_distribution(X[~old][:9]).quantile(0.9)
    np.testing.assert_allclose(quantile, limit, rtol=1e-6)
    model.save(tmp_path / "m.lk")
    loaded = LazyJackknifeRegressor.load(tmp_path / "m.lk")
    np.testing.assert_array_equal(loaded.predict_interval(X[~old]), result)
