"""The check on training rows, influence and learning curves: explicit refits, planted errors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes

import lazyknife as lk
from lazyknife import LazyJackknifeRegressor
from lazyknife.estimators.learning_curve import LearningCurve
from lazyknife.intervals import find_construction, kappa
from lazyknife.intervals.games import games

GIVEN: dict[str, Any] = {"ridge": 0.3, "feature_weights": None, "target_transform": None}
WIDE = GIVEN | {"network": lk.wide("laplace", 0.5), "scaling": None}
# Settings under which nothing is chosen: closed forms are refits.
FIXED = {
    "constant": WIDE | {"widths": "constant"},
    "leverage": WIDE | {"widths": "leverage"},
    "no intercept": WIDE | {"widths": "leverage", "fit_intercept": False},
    "minmax": WIDE | {"widths": "leverage", "construction": "minmax"},
    "finite": {"network": lk.mlp((8,)), "ridge": 0.5, "widths": "leverage"},
}
DEFAULT: dict[str, Any] = {"random_state": 0}


def noisy(n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * rng.normal(size=n) * (1 + np.abs(X[:, 2]))


@pytest.mark.parametrize("name", FIXED)
@given(seed=st.integers(0, 9), n=st.integers(12, 18), alpha=st.sampled_from([0.15, 0.3, 0.5]))
@settings(max_examples=2)
def test_the_check_is_that_of_fits_without_each_row(name, seed, n, alpha):
    X, y = noisy(n, seed)
    model = LazyJackknifeRegressor(**FIXED[name], random_state=0).fit(X, y)
    found, wanted = model.self_check(alpha=alpha), model.self_check(alpha=alpha, refit=(X, y))
    assert np.array_equal(found.covered, wanted.covered)
    assert np.array_equal(found.rows, np.arange(n))
    assert wanted.exact


def against(loo: Any, X: Any, i: int) -> tuple[Any, Any, Any]:
    """Predictions of row i, scores and widths of the models that a fit without row i leaves out."""
    found = loo.scaled(torch.tensor(X[[i]]))
    return found.each[0], loo.scores, found.scales.expand_as(found.each)[0]


@pytest.mark.parametrize("name", FIXED)
def test_games_are_those_of_the_models_without_both_rows(name):
    X, y = noisy(14, 3)
    model = LazyJackknifeRegressor(**FIXED[name], random_state=0).fit(X, y)
    found = games(model.loo_, torch.arange(14))
    for i in range(14):
        others = np.delete(np.arange(14), i)
        without = LazyJackknifeRegressor(**FIXED[name], random_state=0).fit(X[others], y[others])
        each, scores, widths = against(without.loo_, X, i)
        close = {"rtol": 1e-6, "atol": 1e-8}
        torch.testing.assert_close(found.errors[i, others], y[i] - each, **close)
        torch.testing.assert_close(found.scores[i, others], scores, **close)
        torch.testing.assert_close(found.widths[i, others], widths, **close)


def test_games_between_scales_of_y_are_on_that_of_the_model_that_is_ranked():
    """Models choose the scale of y alone: those of given scales are the twins."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(16, 2))
    y = np.exp(1.3 * rng.normal(size=16) + 0.5 * X[:, 0])
    settings = FIXED["leverage"] | {"target_transform": "auto"}
    model = LazyJackknifeRegressor(**settings, random_state=0).fit(X, y)
    chosen, scales = model.choice_.scale_of_y[:-1], model.choice_.scales_of_y
    assert len(set(chosen)) > 1
    found = games(model.loo_, torch.arange(16))

    def forward(k: int, values: Any) -> Any:
        return values if scales[k] is None else scales[k].forward(np.asarray(values))

    def inverse(k: int, values: Any) -> Any:
        return values if scales[k] is None else scales[k].inverse(np.asarray(values))

    for i in (*np.unique(chosen, return_index=True)[1], 5, 11):
        others, twins = np.delete(np.arange(16), i), {}
        for k in set(chosen):
            pair = None if scales[k] is None else (scales[k].forward, scales[k].inverse)
            without = LazyJackknifeRegressor(**FIXED["leverage"] | {"target_transform": pair})
            without.fit(X[others], y[others])
            twins[k] = [part.numpy() for part in against(without.loo_, X, i)]
        predicted = inverse(chosen[i], twins[chosen[i]][0])
        for place, j in enumerate(others):
            k = chosen[j]
            error = forward(k, y[i]) - forward(k, predicted[place])
            assert float(found.errors[i, j]) == pytest.approx(float(error), rel=1e-6, abs=1e-8)
            assert float(found.scores[i, j]) == pytest.approx(twins[k][1][place], rel=1e-6)
            assert float(found.widths[i, j]) == pytest.approx(twins[k][2][place], rel=1e-6)


def test_where_rows_set_aside_choose_it_is_that_of_passes_without_the_row():
    X, y = noisy(1100)
    model = LazyJackknifeRegressor(**DEFAULT, network=lk.wide("gaussian")).fit(X, y)
    loo, numbers = model.loo_, model.kept_numbers_
    others = np.setdiff1d(np.arange(1100), numbers)
    n, targets = len(numbers), model.choice_.target_scale
    z = torch.tensor(y if targets is None else targets.forward(y))
    rows, rank = torch.arange(0, n, 7), kappa(0.2, n - 1)
    found = games(loo, rows)
    for construction in ("plus", "minmax"):
        ends = find_construction(construction).ends
        missed = found.missed(rank, construction)
        for i, miss in zip(rows.tolist(), missed.tolist(), strict=True):
            kept = torch.tensor(np.concatenate([np.delete(numbers, i), others]))
            again = loo.passes.models(torch.tensor(X)[kept], z[kept], torch.arange(n - 1))
            _, lower, upper = ends(again, torch.tensor(X)[numbers[[i]]], [rank])
            assert miss == bool(not lower[0, 0] <= z[numbers[i]] <= upper[0, 0])
    check = model.self_check()
    assert check.exact
    assert len(check.covered) == min(n, 200)
    assert set(check.rows) <= set(numbers)
    assert abs(check.coverage - 0.9) < 0.09


@pytest.mark.parametrize(("seed", "n"), [(0, 30), (1, 40)])
def test_where_every_model_chooses_it_nearly_agrees_with_refits(seed, n):
    X, y = noisy(n, seed)
    model = LazyJackknifeRegressor(**DEFAULT, alpha=0.2).fit(X, y)
    found, wanted = model.self_check(), model.self_check(refit=(X, y))
    assert not found.exact
    assert (found.covered == wanted.covered).mean() >= 0.9
    assert abs(found.coverage - wanted.coverage) <= 0.1


def test_the_check_is_on_the_scale_of_y_that_each_model_chose():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 2))
    y = np.exp(1.2 * X[:, 0] + 0.4 * rng.normal(size=40))
    model = LazyJackknifeRegressor(**DEFAULT).fit(X, y)
    assert len({bool(scale) for scale in model.choice_.scales_of_y}) == 2
    found, wanted = model.self_check(), model.self_check(refit=(X, y))
    assert (found.covered == wanted.covered).mean() >= 0.93


def test_parts_are_groups_columns_or_values():
    X, y = noisy(60)
    labels = np.array(["low", "high"])[(X[:, 2] > 0).astype(int)]
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=labels)
    model = LazyJackknifeRegressor(**DEFAULT).fit(frame, y, groups="kind")
    by_group = model.self_check()
    assert [name for name, _, _ in by_group.parts] == ["high", "low"]
    assert sum(rows for _, rows, _ in by_group.parts) == 60
    total = sum(rows * share for _, rows, share in by_group.parts)
    assert total == pytest.approx(by_group.covered.sum())
    assert model.self_check("kind").parts == by_group.parts == model.self_check(labels).parts
    fifths = model.self_check("c").parts
    assert [rows for _, rows, _ in fifths] == [12] * 5
    starts = [float(name.split(" to ")[0]) for name, _, _ in fifths]
    assert starts == sorted(starts)
    assert fifths[2][0].startswith(f"{np.quantile(X[:, 2], 0.4):.4g} to ")
    assert "60 training rows" in repr(by_group)
    assert repr(by_group).count("\n") == 2


def test_a_saved_model_answers_too(tmp_path):
    X, y = noisy(40)
    model = LazyJackknifeRegressor(**DEFAULT).fit(X, y)
    model.save(tmp_path / "m.lk")
    loaded = LazyJackknifeRegressor.load(tmp_path / "m.lk")
    assert np.array_equal(loaded.self_check().covered, model.self_check().covered)
    assert np.array_equal(loaded.influence().row, model.influence().row)
    with pytest.raises(ValueError, match="a saved model has no rows"):
        loaded.self_check("a")


@pytest.mark.parametrize(
    "extra",
    [
        {"construction": "full"},
        {"construction": "cv+"},
        {"nu": 0.1},
        {"network": lk.mlp((2,)), "readout": "network", "ridge": 100.0},
    ],
)
def test_models_that_are_not_known_are_refused_and_refits_are_not(extra):
    X, y = noisy(24)
    model = LazyJackknifeRegressor(**DEFAULT | extra, alpha=0.3).fit(X, y)
    with pytest.raises(ValueError, match=r"models without two rows .* refit=\(X, y\)"):
        model.self_check()
    with pytest.raises(ValueError, match="models without two rows"):
        model.influence()
    check = model.self_check(refit=(X, y), rows=3)
    assert len(check.rows) == 3


def test_estimators_that_retrain_are_checked_by_refits():
    X, y = noisy(30)
    model = lk.SplitConformalRegressor(lk.mlp((3,)), random_state=0, alpha=0.3).fit(X, y)
    assert len(model.self_check(refit=(X, y), rows=2).covered) == 2
    with pytest.raises(ValueError, match="refit has 29 rows"):
        model.self_check(refit=(X[:29], y[:29]), rows=2)


def test_clusters_and_outputs_are_refused_for_what_they_are():
    """Other settings, which the message for single rows lists, would not do."""
    X, y = noisy(24)
    by_cluster = LazyJackknifeRegressor(**WIDE).fit(X, y, clusters=np.arange(24) % 8)
    several = LazyJackknifeRegressor(**WIDE).fit(X, np.column_stack([y, -y]))
    for ask in ("self_check", "influence"):
        with pytest.raises(ValueError, match=r"^clusters are left out as a whole"):
            getattr(by_cluster, ask)()
        with pytest.raises(ValueError, match=r"^y has 2 outputs: fit each of them on its own"):
            getattr(several, ask)()


def test_rows_to_fit_again_are_checked():
    X, y = noisy(48)
    model = LazyJackknifeRegressor(**WIDE, alpha=0.4).fit(X, y)
    for refit in (5, (X,), {"X": X, "y": y}):
        with pytest.raises(TypeError, match=r"^refit is a \w+: give \(X, y\), the rows of fit"):
            model.self_check(refit=refit)
    for short in (y[:5], 1.0):
        with pytest.raises(ValueError, match=r"^y has shape .*: give a number for each of the 48"):
            model.self_check(refit=(X, short))
        with pytest.raises(ValueError, match=r"^y has shape .*: give a number for each of the 48"):
            model.plan(X, short)


@pytest.mark.parametrize("name", ["constant", "leverage", "no intercept"])
def test_influence_is_what_fits_without_the_row_say(name):
    X, y = noisy(14)
    model = LazyJackknifeRegressor(**FIXED[name], alpha=0.3, random_state=0).fit(X, y)
    found = model.influence()
    assert sorted(found.row) == list(range(14))
    assert (np.diff(np.abs(found.studentized)) <= 1e-12).all()
    scores = model.loo_.scores.numpy()
    size = np.sort(scores)[::-1][kappa(0.3, 14) - 1]
    for k, row in enumerate(found.row):
        others = np.delete(np.arange(14), row)
        without = LazyJackknifeRegressor(**FIXED[name], alpha=0.3, random_state=0)
        without.fit(X[others], y[others])
        gap = model.predict(X[others]) - without.predict(X[others])
        assert found.moves[k] == pytest.approx(np.sqrt(np.mean(gap**2)))
        assert found.residual[k] == pytest.approx(y[row] - without.predict(X[[row]])[0])
        less = np.sort(without.loo_.scores.numpy())[::-1][kappa(0.3, 13) - 1]
        assert found.widens[k] == pytest.approx(size / less - 1, abs=1e-9)
        unit = np.quantile(scores[others], 0.5, method="lower") / 0.6745
        sign = np.sign(model.loo_.residuals[row].item())
        assert found.studentized[k] == pytest.approx(sign * scores[row] / unit, rel=1e-6)


@pytest.mark.parametrize("n", [120, 1200])
def test_planted_errors_come_first(n):
    X, y = noisy(n)
    frame = pd.DataFrame(X, index=[f"r{k}" for k in range(n)], columns=["a", "b", "c"])
    clean = LazyJackknifeRegressor(**DEFAULT, network=lk.wide("gaussian")).fit(frame, y)
    planted = clean.kept_numbers_[5::25][:5]
    y = y.copy()
    y[planted] += 8 * np.array([1, -1, 1, -1, 1])[: len(planted)]
    model = LazyJackknifeRegressor(**DEFAULT, network=lk.wide("gaussian")).fit(frame, y)
    found = model.influence()
    assert set(planted) <= set(found.row[: len(planted) + 1])
    table = found.to_frame()
    assert list(table.columns) == ["row", "residual", "studentized", "moves", "widens"]
    assert list(table.index) == [f"r{k}" for k in found.row]
    assert f"{len(found) - 5:,} more rows" in repr(found)
    first = found.row[0]
    assert found.residual[0] * (y[first] - clean.predict(frame.iloc[[first]])[0]) > 0


@pytest.mark.parametrize(("n", "settings"), [(60, {}), (1100, {}), (30, FIXED["finite"])])
def test_fitted_objects_print_in_a_few_lines(n, settings):
    model = LazyJackknifeRegressor(**DEFAULT | settings).fit(*noisy(n))
    for name in ("loo_", "choice_", "certificate_", "scaling_", "target_", "reader_"):
        if hasattr(model, name):
            assert len(repr(getattr(model, name))) < 700, name
    assert "leave-one-out models" in repr(model.loo_)


def test_a_learning_curve_is_of_fits_to_blocks():
    X, y = noisy(80)
    model = LazyJackknifeRegressor(**WIDE, alpha=0.2, random_state=0)
    curve = model.plan(X, y, width=2.5)
    assert curve.sizes.tolist() == [20, 40, 60]
    assert curve.widths.shape == (3, 4)
    assert (np.diff(curve.widths.mean(axis=1)) < 0).all()
    low, middle, high = curve.width([60, 600]).T
    assert (low <= middle).all()
    assert (middle <= high).all()
    assert middle[1] < middle[0]
    assert "60 rows" in repr(curve)
    assert "Width 2.5: " in repr(curve)


def test_curves_that_are_known_are_continued():
    sizes = np.array([100, 200, 300])
    widths = np.repeat((1 + 50 / sizes)[:, None], 4, axis=1)
    curve = LearningCurve(0.1, sizes, widths)
    low, _, high = curve.width(1000)
    assert low <= 1.05 <= high
    assert low < high
    first, _, last = curve.rows(1.05)
    assert first <= 1000 * 1.02
    assert last >= 1000 * 0.98
    assert np.isinf(curve.rows(0.5)[2])
    assert curve.rows(2)[0] == 100
    falling = LearningCurve(0.1, sizes, np.repeat((40 / sizes)[:, None], 4, axis=1))
    assert falling.width(1000)[0] <= 0.04 <= falling.width(1000)[2]
    for wanted, said in (
        (1.3, r"about 1[78]0 rows \(1\d0 to 2\d0\)"),
        (0.9, r"rows \([\d,]+ or more, perhaps never"),
        (0.5, "never, by the middle curve"),
    ):
        assert re.search(said, repr(LearningCurve(0.1, sizes, widths, wanted)))
    rising = LearningCurve(0.1, sizes, np.repeat(sizes[:, None] / 100.0, 4, axis=1), 0.5)
    assert repr(rising).endswith("Width 0.5: never.")


def drawn_curve(rng: Any, n: int, more: int) -> tuple[LearningCurve, float]:
    """Widths of fits to blocks of n rows, and of one to ``more`` rows, by the model of the page."""
    floor, decay, variance = (
        rng.choice([0.0, 0.5, 0.9]),
        rng.choice([0.5, 1.0]),
        rng.uniform(0.3, 2),
    )

    def mean(rows: int) -> Any:
        return np.log(floor + (1 - floor) * (4 * rows / n) ** -decay)

    each = rng.normal(size=4 * more // n) * np.sqrt(4 * variance / n)  # of a quarter of n rows
    fits = [
        [mean(s * n // 4) + each[(k + np.arange(s)) % 4].mean() for k in range(4)]
        for s in (1, 2, 3)
    ]
    fits += 0.04 * rng.normal(size=(3, 4))
    width = np.exp(mean(more) + each.mean() + 0.04 * rng.normal())
    return LearningCurve(0.1, np.array([1, 2, 3]) * n // 4, np.exp(fits)), width


def test_ranges_contain_the_widths_of_more_rows_and_curves_alone_do_not():
    """Of 400 draws, each inside with probability .8 if the model is right: 75 % at least."""
    rng, inside, alone = np.random.default_rng(0), [], []
    for k in range(400):
        n = (100, 240)[k % 2]
        curve, width = drawn_curve(rng, n, n * (2 + k % 3))
        low, _, high = curve.width(n * (2 + k % 3))
        inside.append(low <= width <= high)
        middles, shares, _ = curve._curves(np.array([n * (2.0 + k % 3)]))
        order = middles[:, 0].argsort()
        ends = middles[order, 0][np.searchsorted(shares[order].cumsum(), [0.1, 0.9])]
        alone.append(ends[0] <= np.log(width) <= ends[1])
    assert np.mean(inside) >= 0.75, np.mean(inside)
    assert np.mean(alone) < 0.7, np.mean(alone)


def test_a_plan_of_real_rows_contains_the_widths_of_two_and_four_times_as_many():
    X, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    model = LazyJackknifeRegressor(network=lk.wide("laplace"), random_state=0)
    curve = model.plan(X[:100], y[:100])
    for n in (200, 400):
        width = model.fit(X[:n], y[:n]).predict_interval(X[n:]).width.mean()
        low, _, high = curve.width(n)
        assert low <= width <= high < 1.6 * low


def test_rows_with_other_columns_than_those_of_the_fit_are_refused():
    X, y = noisy(60)
    model = LazyJackknifeRegressor(**WIDE, alpha=0.2).fit(X, y)
    for ask in (lambda rows: model.plan(rows, y), lambda rows: model.self_check(refit=(rows, y))):
        with pytest.raises(ValueError, match=r"^X has 2 features, but .* is expecting 3 features"):
            ask(X[:, :2])
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model.fit(frame, y)
    with pytest.raises(ValueError, match="'c'"):
        model.plan(frame.rename(columns={"c": "d"}), y)


def test_curves_and_influence_of_nothing_to_measure_are_numbers():
    X, y = noisy(60)
    model = LazyJackknifeRegressor(**WIDE, alpha=0.2)
    curve = model.plan(X, 0 * y, width=1)
    assert (curve.width([10, 100]) <= 1e-9).all()
    found = model.fit(X, 0 * y).influence()
    assert not np.isnan(found.studentized).any()
    assert not np.isnan(found.widens).any()
    for rows in (0, -5, [3, np.nan]):
        with pytest.raises(ValueError, match="rows"):
            curve.width(rows)
    for X_of_batches in (iter([X]), None):
        with pytest.raises(TypeError, match="give all rows as one array or frame"):
            model.plan(X_of_batches, y)


def test_too_few_rows_for_a_curve_are_refused():
    X, y = noisy(30)
    model = LazyJackknifeRegressor(**DEFAULT)
    with pytest.raises(ValueError, match=r"X has 30 rows: a learning curve at alpha=0\.1 takes"):
        model.plan(X, y)
    with pytest.raises(ValueError, match="width=-1"):
        model.plan(X, y, width=-1)
