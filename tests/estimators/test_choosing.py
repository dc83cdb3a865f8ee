"""Every leave-one-out model equals the full-data model of a fresh fit on its own rows."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.gaussian_process import kernels as gp
from torch import Tensor

import lazyknife as lk
from lazyknife import compute
from lazyknife.choosing.rows import draw_part, rows_apart
from lazyknife.data.own_scaling import SHIFT
from lazyknife.estimators.fit_input import Seeds
from lazyknife.networks import DEFAULT, mlp, wide
from lazyknife.ridge.leave_one_out import draw_folds
from lazyknife.ridge.widths import LeverageAgain, LeverageScales
from reference import Array
from rows import linear
from widths import OwnFactors, names_in_order

SEED = 3


def user_kernel(left: Tensor, right: Tensor) -> Tensor:
    return torch.exp(-torch.cdist(left, right).square()) * (1 + left @ right.T / 4)


NETWORKS: dict[str, Any] = {
    "default": None,
    "laplace": wide("laplace"),
    "list": [mlp((8,)), wide("laplace", 0.5), wide(user_kernel)],
    "sklearn": [wide(gp.RBF(0.7) + gp.DotProduct()), wide("matern52")],
    "relu": [wide("relu"), wide("anova_gaussian", squash=True)],
}


def data(seed: int, n: int, features: int = 2, new: int = 4) -> tuple[Array, Array, Array, Array]:
    """Rows with columns of several sizes: X, y, new X and new y."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + new, features)) * 10.0 ** rng.integers(-2, 3, size=features)
    y = np.sin(2 * X[:, 0] / X[:, 0].std()) + (0.3 + 0.2 * (X[:, -1] > 0)) * rng.normal(
        size=n + new
    )
    return X[:n], y[:n], X[n:], y[n:]


def fitted(X: Array, y: Array, **settings: Any) -> lk.LazyJackknifeRegressor:
    settings = {"random_state": SEED, "alpha": 0.2} | settings
    return lk.LazyJackknifeRegressor(**settings).fit(X, y)


def each(model: lk.LazyJackknifeRegressor, X: Array) -> Array:
    """Predictions of the models without each row, on the scale of y, shape (m, n)."""
    found: Array = model.loo_.scaled(torch.from_numpy(X)).each.cpu().numpy()
    choice = model.choice_
    for k, scale in enumerate(choice.scales_of_y):
        if scale is not None and len(choice.scale_of_y) == found.shape[1] + 1:  # no folds
            on = choice.scale_of_y[:-1] == k
            found[:, on] = scale.inverse(found[:, on])
    return found


def same_choice(one: Any, j: int, other: Any, k: int) -> bool:
    return (
        one.network[j] == other.network[k]
        and one.ridge[j] == other.ridge[k]
        and np.array_equal(one.weights[j], other.weights[k], equal_nan=True)
    )


CHOICES = ("network", "ridge", "fit_intercept", "widths", "feature_weights", "scaling")


def check_twin(model: lk.LazyJackknifeRegressor, k: int, gone: Array, *rows: Array) -> None:
    """Model k, which leaves these rows out, is the full model of a fit on the others."""
    X, y, new = rows
    kept = np.setdiff1d(np.arange(len(y)), gone)
    twin = fitted(X[kept], y[kept], **{name: getattr(model, name) for name in CHOICES})
    assert same_choice(model.choice_, k, twin.choice_, -1)
    close = {"rtol": 0, "atol": 1e-8}
    np.testing.assert_allclose(each(model, new)[:, gone[0]], twin.predict(new), **close)
    gap, own = model.choice_.log_likelihood_gap[k], twin.choice_.log_likelihood_gap[-1]
    np.testing.assert_allclose(gap / len(y), own / len(kept), atol=1e-8)
    found = np.array([each(model, X[i : i + 1])[0, i] for i in gone])
    np.testing.assert_allclose(found, twin.predict(X[gone]), **close)


TWINS = [
    ("laplace", 9, 2, {}),
    ("list", 7, 2, {}),
    ("sklearn", 6, 2, {"fit_intercept": False}),
    ("relu", 6, 2, {"scaling": None}),
    ("laplace", 7, 3, {"feature_weights": None}),
    ("laplace", 6, 2, {"ridge": 0.1}),
]
LARGER = [(name, n, 3, {}) for name in NETWORKS for n in (11, 12)]


@pytest.mark.parametrize(
    ("name", "n", "features", "settings"),
    [*TWINS, *(pytest.param(*twin, marks=pytest.mark.slow) for twin in LARGER)],
)
def test_every_model_is_the_full_model_of_its_own_rows(
    name: str, n: int, features: int, settings: dict[str, Any]
) -> None:
    X, y, new, _ = data(n + features, n, features)
    model = fitted(X, y, network=NETWORKS[name], **settings)
    assert not model.loo_.doubtful.any()
    assert model.choice_.searched == n
    for j in range(n):
        check_twin(model, j, np.array([j]), X, y, new)


def test_rows_that_hide_the_others_are_left_out_like_any_others() -> None:
    """An indicator with a code for missing values, and a huge y."""
    X, y, new, _ = data(0, 14, 3)
    X[:, 2], new[:, 2] = np.arange(14) % 2, 1.0
    X[:6, 2], y[8] = 2.0**63 - 1, 1e6
    model = fitted(X, y, network=[wide("gaussian")])
    assert not model.loo_.doubtful.any()
    for j in (0, 7, 8):
        check_twin(model, j, np.array([j]), X, y, new)


def with_y(size: float) -> Any:
    return lambda X, y: (X, np.where(np.arange(len(y)) == 4, size, y))


def far_from_0(X: Array, y: Array) -> Any:
    return np.column_stack([X[:, 0], 1e15 + np.round(8 * X[:, 0]), X[:, 2]]), y


def two_dates(X: Array, y: Array) -> Any:
    days = np.array(["2024-01-01T10:00:00", "2024-01-01T10:00:00.000003"], dtype="M8[us]")
    day = days[np.arange(len(y)) // 29]
    return pd.DataFrame({"a": X[:, 0], "day": day, "b": 1e5 * X[:, 1]}), y


# Rows on which a certificate is easily lost: their number, and how they are made of ordinary ones.
HARD: dict[str, tuple[int, Any]] = {
    "huge y": (30, with_y(1e6)),
    "vast y, few rows": (18, with_y(1e12)),
    "an overflowing square": (30, with_y(1e200)),
    "one y unlike the others": (30, lambda X, y: with_y(1e9)(X, np.full(len(y), 0.1))),
    "one 1 among zeros": (14, lambda X, y: with_y(1.0)(X, 0 * y)),
    "large units of y": (30, lambda X, y: (X, 1e150 * y)),
    "a column far from 0": (30, far_from_0),
    "two dates": (30, two_dates),
    "ties": (24, lambda X, y: (X, np.round(y))),
    "two values": (24, lambda X, y: (X, (y > 0).astype(float))),
    "constant y": (24, lambda X, y: (X, np.full(len(y), 3.3))),
    "a grid": (24, lambda X, y: (np.round(X / X.std(axis=0)), y)),
    "duplicates": (24, lambda X, y: (np.repeat(X[:8], 3, axis=0), np.repeat(y[:8], 3))),
    "one x": (24, lambda X, y: (np.repeat(X[:1], 24, axis=0), y)),
    "far x": (24, lambda X, y: (np.where(np.arange(72).reshape(24, 3) == 5, 1e12, X), y)),
}


@pytest.mark.parametrize("terms", [{}, {"construction": "minmax"}])
@pytest.mark.parametrize("name", HARD)
def test_hard_rows_keep_their_certificate(name: str, terms: dict[str, Any]) -> None:
    n, changed = HARD[name]
    rows = changed(*data(1, n, 3)[:2])
    # The square of a root may be beyond the range of numbers.
    scale = {"target_transform": None} if "overflowing" in name else {}
    model = fitted(*rows, alpha=0.1, **terms | scale)
    assert model.loo_.undetermined == 0
    assert model.certificate_.coverage is not None
    found = model.predict_interval(rows[0])
    assert np.isfinite(found.to_numpy()).all()
    assert (found.lower <= found.upper).all()
    if name == "vast y, few rows" and terms:
        one = fitted(*rows, network=mlp((8,)), alpha=0.1, **terms)
        assert one.certificate_.coverage is not None


@pytest.mark.filterwarnings("ignore:no coverage is guaranteed")
def test_advice_is_not_what_was_done_already_and_helps() -> None:
    """The model scales features by itself: neither their units nor a scaling are to blame."""
    X, y, _, _ = data(0, 30, 3)
    X[3:9], X[:, 1] = X[3], 1e5 * X[:, 1]
    (objection,) = fitted(X, y, ridge=1e-13, alpha=0.1).certificate_.objections
    assert "scaling=" not in objection
    assert "ridge=0.01" in objection
    assert fitted(X, y, ridge=0.01, alpha=0.1).certificate_.coverage is not None
    rng = np.random.default_rng(0)
    X = rng.normal(size=(18, 2))
    y = X[:, 0] + 0.3 * rng.normal(size=18)
    y[7] = 1e300  # near the end of the range of numbers: rounding decides widths
    plain = {"target_transform": None, "alpha": 0.1, "random_state": 0}
    found = fitted(X, y, **plain)
    assert found.loo_.factors.doubtful.any()
    for name, value in (("widths", "constant"), ("target_transform", "symlog")):
        assert f"{name}={value!r}" in found.certificate_.objections[0]
        assert fitted(X, y, **plain | {name: value}).certificate_.coverage is not None


@pytest.mark.parametrize(("name", "n"), [("laplace", 12), ("list", 9)])
def test_every_fold_is_the_full_model_of_the_rows_outside(name: str, n: int) -> None:
    X, y, new, _ = data(n, n)
    model = fitted(X, y, network=NETWORKS[name], construction="cv+", folds=3)
    parts = draw_folds(n, 3, Seeds.of(SEED).lazy)
    predictions = each(model, new)
    for k, part in enumerate(parts):
        rows = part.numpy()
        assert np.ptp(predictions[:, rows], axis=1).max() == 0  # one model for the whole fold
        check_twin(model, k, rows, X, y, new)


# Widths.


def frame_of(X: Array) -> tuple[Array, Array]:
    scales = 2.0 ** np.floor(np.log2(X.std(axis=0)) + 0.5 + SHIFT)
    return scales * np.floor(X.mean(axis=0) / scales + 0.5 + SHIFT), scales


@pytest.mark.parametrize(("kind", "seed"), [("local", 1), ("local", 3), ("level", 3)])
def test_widths_are_those_of_the_rows_alone(kind: str, seed: int) -> None:
    """Models without a row, with what it chose given, have its leverage and its errors."""
    n = 16
    X, _, new, _ = data(seed, n)
    noise, level = np.random.default_rng(seed).normal(size=n), X[:, 0] / np.abs(X[:, 0]).max()
    y = np.exp(2 * level + 0.7 * noise)
    if kind == "local":
        y = np.where(X[:, 1] > 0, 3.0, 0.03) * noise
    model = fitted(X, y, network=wide("laplace"), target_transform=None)
    choice, scales = model.choice_, model.loo_.scaled(torch.from_numpy(new)).scales.numpy()
    assert len(set(choice.widths)) > 1
    terms: dict[str, Any] = {"network": wide("laplace", 1.0), "widths": "leverage"}
    terms |= dict.fromkeys(("feature_weights", "scaling", "target_transform"))
    for j in range(n):
        own, labels = np.delete(X, j, axis=0), np.delete(y, j)
        center, scale = frame_of(own)
        at = np.vstack([new, X[j]])
        all_rows, left, rows = (
            (part - center) / scale * choice.weights[j] * np.sqrt(2) for part in (X, own, at)
        )
        terms["ridge"] = choice.ridge[j]
        found = fitted(all_rows, y, **terms).loo_.scaled(torch.from_numpy(rows))
        values, leverage = (part[:, j].numpy() for part in (found.each, found.scales))
        loo = fitted(left, labels, **terms).loo_
        alone = OwnFactors(own, labels, loo.scores.numpy(), labels - loo.residuals.numpy(), scale)
        k = alone.chosen
        shift = alone.shift(model.alpha)
        assert choice.widths[j] == names_in_order()[k] + ", shifted" * (shift != 0)
        sigma = leverage * [alone.at(k, *place) for place in zip(at, values, strict=True)]
        np.testing.assert_allclose(each(model, new)[:, j], values[:-1], atol=1e-8)
        np.testing.assert_allclose(scales[:, j], sigma[:-1], rtol=1e-7)
        score = abs((y[j] - values[-1]) / sigma[-1] - shift)
        assert float(model.loo_.scores[j]) == pytest.approx(score, rel=1e-6)


# Many rows.


def test_the_part_of_the_rows_has_a_random_size() -> None:
    """A fixed size would tell a model about the row that it leaves out."""
    X, y, _, _ = data(0, 600, 1)
    terms: dict[str, Any] = {"network": wide("laplace", 1.0), "feature_weights": None, "ridge": 0.1}
    sizes = [fitted(X, y, random_state=state, **terms).choice_.searched for state in range(3)]
    assert len(set(sizes)) > 1
    for state, size in enumerate(sizes):
        generator = torch.Generator().manual_seed(Seeds.of(state).lazy)
        coins = torch.rand(600, generator=generator, dtype=torch.float64)
        assert size == (coins < 400 / 600).sum()
    assert fitted(X[:399], y[:399], **terms).choice_.searched == 399
    folds = fitted(X, y, construction="cv+", folds=300, **terms)  # some lie outside the part
    assert np.isfinite(folds.loo_.residuals.numpy()).all()
    drawn = [len(draw_part(4000, seed, 400)) for seed in range(200)]
    # Binomial(4000, .1): standard deviation 19, of the mean of 200 draws 1.3.
    assert abs(np.mean(drawn) - 400) < 6.5
    assert 14 < np.std(drawn) < 24


# What users meet.


@pytest.mark.slow
def test_factors_that_do_not_fit_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "LEAST_BUDGET", 1)
    X, y, new, _ = data(0, 30)
    found = [fitted(X, y, memory_budget=size) for size in (10**8, 10**4)]
    kinds = [{type(group.read.scales.scales) for group in model.loo_.groups} for model in found]
    assert kinds == [{LeverageScales}, {LeverageAgain}]
    kept, again = (model.predict_interval(new) for model in found)
    np.testing.assert_allclose(again.lower, kept.lower, rtol=1e-9)
    np.testing.assert_allclose(again.upper, kept.upper, rtol=1e-9)


@pytest.mark.parametrize("construction", ["plus", "cv+"])
@pytest.mark.filterwarnings("ignore:the moved networks are far")
def test_moved_networks_of_many_rows_leave_out_those_that_do_not_choose(construction: str) -> None:
    X, y, X_new, _ = data(1, 1101, 2)
    terms = {"construction": construction, "readout": "network", "widths": "constant"}
    model = fitted(X, y, network=mlp((2,)), **terms)
    rest, _ = rows_apart(len(y), model.seeds_.lazy)
    assert len(model.loo_.residuals) == len(rest) == 165
    assert np.isfinite(model.predict_interval(X_new[:5]).to_numpy()).all()
    assert f"n = {165}" in model.certificate_.subject


def test_models_whose_scale_a_far_row_exceeds_are_conceded() -> None:
    X, y, _, _ = data(1, 20, 2)
    X[3, 1] = 1e9
    model = fitted(X, y, network=mlp((4,), skip=True))
    assert torch.isinf(model.loo_.scores).nonzero().tolist() == [[3]]
    assert model.certificate_.coverage is not None


def test_columns_far_from_0_are_centred_without_loss() -> None:
    X, y = linear(40, 2, noise=0.1)
    near, far = (
        float(fitted(X + offset, y, network=mlp((16,), skip=True)).loo_.residuals.abs().median())
        for offset in (0.0, 123_456_789.0)
    )
    assert far == pytest.approx(near, rel=1e-4)  # centres in float32: larger by a fifth


@pytest.mark.parametrize(
    "settings", [{"base": lk.Split()}, {"n_starts": 2}, {"parameters": "last"}], ids=str
)
def test_the_default_network_chooses_as_a_given_one_does(settings: dict[str, Any]) -> None:
    X, y, new, _ = data(0, 40)
    own, given = (fitted(X, y, network=network, **settings) for network in (None, DEFAULT))
    assert own.choice_.networks == given.choice_.networks
    assert own.widths_ == given.widths_ == "auto"
    if "base" not in settings:  # rows that the base learns from also scale the default network
        assert np.array_equal(own.predict_interval(new).lower, given.predict_interval(new).lower)
