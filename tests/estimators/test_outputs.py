"""Boxes for several outputs: explicit refits, exact coverage of bags, planted errors."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyknife as lk
from lazyknife import LazyJackknifeRegressor
from lazyknife.choosing.likelihood import leave_one_out_values, of_own_scales
from lazyknife.intervals import kappa
from several import laplace, refit

FAST: dict[str, Any] = {
    "network": lk.wide("laplace", 1.0),
    "ridge": 0.3,
    "scaling": None,
    "feature_weights": None,
    "widths": "constant",
    "random_state": 0,
}
DEFAULT: dict[str, Any] = {"network": [lk.wide("gaussian"), lk.wide("laplace")], "random_state": 0}


def several(seed: int, n: int, outputs: int = 3, features: int = 2) -> tuple[Any, Any]:
    """Rows, and outputs in very different units, the errors of which are not all alike."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, features))
    errors = rng.exponential(size=(n, outputs)) * rng.uniform(0.1, 2, size=outputs)
    Y = np.tanh(X @ rng.normal(size=(features, outputs))) + errors
    return X, Y * 10.0 ** np.arange(-2, outputs - 2)


def boxes_by_refits(X: Any, Y: Any, new: Any, level: float, construction: str) -> Any:
    """Ends by the definition."""
    n, rank = len(X), kappa(level, len(X))
    residuals, units, at = np.empty_like(Y), np.empty_like(Y), np.empty((len(new), *Y.shape))
    for j in range(n):
        kept = np.arange(n) != j
        residuals[j] = Y[j] - refit(X[kept], Y[kept], X[[j]], 0.3)[0]
        at[:, j] = refit(X[kept], Y[kept], new, 0.3)
        own = X[kept]
        G = laplace(own, own) + 0.3 * np.eye(n - 1)
        centred = Y[kept] - np.linalg.solve(G, Y[kept]).sum(axis=0) / np.linalg.inv(G).sum()
        units[j] = np.sqrt((centred * np.linalg.solve(G, centred)).sum(axis=0))
    units /= np.exp(np.log(units).mean(axis=1, keepdims=True))
    scores = (np.abs(residuals) / units).max(axis=1)
    if construction == "minmax":
        scores = np.full(n, np.sort(scores)[::-1][rank - 1])
    margins = scores[:, None] * units
    lower, upper = np.sort(at - margins, axis=1), np.sort(at + margins, axis=1)
    place = rank - 1 if construction == "plus" else 0
    return lower[:, place], upper[:, -1 - place]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 9999), n=st.integers(10, 30), outputs=st.integers(2, 4))
@pytest.mark.parametrize("construction", ["plus", "minmax"])
def test_boxes_equal_their_definition_by_refits(construction, seed, n, outputs):
    X, Y = several(seed, n + 5, outputs)
    model = LazyJackknifeRegressor(**FAST, construction=construction, alpha=0.2).fit(X[:n], Y[:n])
    found = model.predict_box(X[n:])
    lower, upper = boxes_by_refits(X[:n], Y[:n], X[n:], 0.2, construction)
    size = np.abs(Y).max(axis=0)
    np.testing.assert_allclose(found.lower / size, lower / size, atol=1e-9)
    np.testing.assert_allclose(found.upper / size, upper / size, atol=1e-9)
    np.testing.assert_allclose(model.predict(X[n:]), found.point)


def test_the_criterion_of_own_scales_does_not_depend_on_units():
    X, Y = several(0, 25)
    targets = torch.from_numpy(Y.T.copy())[None]
    ridges = torch.full((2,), 0.3, dtype=torch.float64)
    kernels = torch.stack([torch.tensor(laplace(scale * X, scale * X)) for scale in (1.0, 3.0)])
    first, second = (
        of_own_scales(leave_one_out_values(kernels.clone(), ridges, each.repeat(2, 1, 1), True))
        for each in (targets, targets * torch.tensor([1e3, 1.0, 7.0]).double()[:, None])
    )
    gaps = (found.values[0] - found.values[1] for found in (first, second))
    np.testing.assert_allclose(*gaps, atol=1e-9)


@pytest.mark.parametrize("terms", [FAST, DEFAULT], ids=["one network", "choosing"])
@pytest.mark.parametrize("construction", ["plus", "minmax"])
def test_boxes_miss_no_more_than_their_bound_in_any_bag_and_separate_intervals_do(
    terms, construction
):
    """Each of n + 1 rows is as likely to be the new one."""
    caught, level, count = 0, 0.26, 14
    rank = kappa(level, count - 1)
    bound = (2 * rank - 1 if construction == "plus" else rank) / count
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, Y = rng.normal(size=(count, 1)), rng.exponential(size=(count, 4)) ** 2
        missed, apart = [], []
        for i in range(count):
            others = np.arange(count) != i
            model = LazyJackknifeRegressor(**terms, construction=construction, alpha=level)
            model.fit(X[others], Y[others])
            missed.append(not model.predict_box(X[[i]]).covers(Y[[i]])[0])
            new = torch.from_numpy(X[[i]])
            point = np.array([float(column.scaled(new).point) for column in model.loo_.columns])
            margins = [column.scores.sort().values[-rank].item() for column in model.loo_.columns]
            apart.append((np.abs(Y[i] - point) > margins).any())
        assert np.mean(missed) <= bound
        assert model.certificate_.coverage == pytest.approx(1 - bound)
        caught += np.mean(apart) > bound
    assert caught >= 4


@pytest.mark.parametrize("n", [60, 1200])
def test_frames_levels_and_saving(n, tmp_path):
    X, Y = several(1, n + 300)
    frame = pd.DataFrame(X, columns=["a", "b"], index=np.arange(len(X)) + 5)
    targets = pd.DataFrame(Y, columns=["p", "q", "r"])
    model = LazyJackknifeRegressor(**DEFAULT).fit(frame[:n], targets[:n])
    result = model.predict_box(frame[n:])
    assert result.lower.shape == result.width.shape == (300, 3)
    assert 0.8 <= result.covers(targets[n:]).mean() <= 0.99
    assert result.to_frame().columns[:3].tolist() == ["point_0", "lower_0", "upper_0"]
    assert result.to_frame().index[0] == n + 5
    assert repr(result).startswith("300 boxes: alpha = 0.1, mean widths ")
    # No output is much more often outside than another, and all are wider for a smaller alpha.
    outside = ((result.lower > Y[n:]) | (result.upper < Y[n:])).mean(axis=0)
    assert outside.max() <= 0.12
    assert (model.predict_box(frame[n:], alpha=0.05).width >= result.width).all()
    model.save(tmp_path / "m.lk")
    loaded = LazyJackknifeRegressor.load(tmp_path / "m.lk")
    again = loaded.predict_box(frame[n:])
    np.testing.assert_array_equal(again.lower, result.lower)
    assert again.certificate == result.certificate
    assert "boxes to contain all outputs" in str(result.certificate)
    assert model.score(frame[n:], targets[n:]) == loaded.score(frame[n:], targets[n:])
    with pytest.raises(ValueError, match="y has 3 outputs: call predict_box"):
        model.predict_interval(frame[n:])
    with pytest.raises(ValueError, match="y has 3 outputs: call predict_box"):
        model.predict_distribution(frame[n:])


def test_units_of_outputs_change_boxes_by_these_units_and_a_pool_is_named():
    X, Y = several(2, 80, 2)
    first, second = (
        LazyJackknifeRegressor(**DEFAULT).fit(X[:60], each[:60]).predict_box(X[60:])
        for each in (Y, Y * [2.0**20, 1.0])
    )
    np.testing.assert_allclose(first.lower * [2.0**20, 1.0], second.lower, rtol=1e-6)
    Y[:, 0] = np.arange(80) == 7  # one row alone has another value
    result = LazyJackknifeRegressor(**DEFAULT).fit(X[:60], Y[:60]).predict_box(X)
    assert np.isfinite(result.width).all()
    model = LazyJackknifeRegressor(**FAST | {"scaling": "standardize"}, alpha=0.2)
    model.fit(X[:50], Y[:50], X_pool=X[50:])
    assert "X_pool" in str(model.predict_box(X[50:]).certificate)
    with pytest.warns(UserWarning, match="not among the rows passed as X_pool"):
        model.predict_box(X[50:] + 1.0)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"construction": "full"}, "construction='full' does not support several outputs"),
        ({"loss": "huber", "widths": None}, "loss='huber' does not support several outputs"),
        ({"bounds": (0, None)}, "choose bounds from None, or fit each output on its own"),
        ({"target_transform": "symlog"}, "target_transform='symlog' does not support"),
        ({"network": lk.mlp((3,))}, "take infinitely wide networks"),
        ({"base": lk.Split()}, "does not support several outputs"),
    ],
)
def test_settings_and_questions_for_one_output_are_refused(terms, message):
    X, Y = several(0, 30)
    with pytest.raises((ValueError, TypeError), match=message):
        LazyJackknifeRegressor(**(FAST | {"widths": None} | terms)).fit(X, Y)
    model = LazyJackknifeRegressor(**FAST)
    with pytest.raises(ValueError, match=r"y\[:, 1\] is constant"):
        model.fit(X, np.where([False, True, False], 2.0, Y))
    with pytest.raises(ValueError, match="y has one output: call predict_interval"):
        model.fit(X, Y[:, 0]).predict_box(X)
    with pytest.raises(ValueError, match="y should be a 1d array"):
        lk.JackknifeRegressor().fit(X, Y)


def test_groups_of_several_outputs_are_refused():
    X, y = np.random.default_rng(0).normal(size=(2, 20, 2))
    with pytest.raises(ValueError, match="groups does not support several outputs"):
        lk.LazyJackknifeRegressor().fit(X, y, groups=np.arange(20) % 2)


def test_no_new_rows_in_groups_are_refused_for_what_they_are():
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20.0)
    model = lk.LazyJackknifeRegressor(network=lk.wide(), ridge=1.0).fit(X, y, groups=y % 2)
    with pytest.raises(ValueError, match="0 sample"):
        model.predict_interval(X[:0], groups=[])
