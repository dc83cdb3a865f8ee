"""Scales of y: what they are, what they cost, and that every model chooses on its own rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lazyknife as lk
from lazyknife.choosing.target_scale import KINDS, ROWS, scales_of_y
from lazyknife.data.own_scaling import Compression
from lazyknife.intervals.chosen import OtherScale
from lazyknife.networks import wide
from reference import Array


@pytest.mark.parametrize("kind", KINDS)
@given(
    y=st.floats(-1e9, 1e9, allow_subnormal=False),
    unit=st.sampled_from([2.0**-20, 0.25, 1.0, 2.0**9]),
)
def test_a_scale_is_odd_rises_and_has_the_slope_it_says(kind: str, y: float, unit: float) -> None:
    center = 64 * unit if kind == "asinh" else 0.0
    scale, at = Compression(kind, unit, center), center + np.array([y, -y])
    z = scale.forward(at)
    assert z[0] == pytest.approx(-z[1], rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(scale.inverse(z), at, rtol=1e-12, atol=1e-12 * center + 1e-300)
    step = 1e-5 * max(abs(y), center, unit)
    slope = (scale.forward(at + step) - scale.forward(at - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(scale.log_slope(at)), slope, rtol=1e-5)


@pytest.mark.parametrize("kinds", [*itertools.product([None, *KINDS], repeat=2)])
def test_infinite_ends_of_a_model_stay_infinite_on_every_scale(
    kinds: tuple[str | None, ...],
) -> None:
    """NaN would rank above all other lower ends."""
    own, full = (kind and Compression(kind, 2.0) for kind in kinds)
    ends = torch.tensor([-np.inf]), torch.tensor([np.inf])
    moved = OtherScale(own, full, ends[0])(*ends)
    assert [float(end) for end in moved] == [-np.inf, np.inf]


def by_hand(own: Array) -> dict[Compression, float]:
    """The scales that a model with these rows is offered, and what each costs."""
    found = {}
    for kind, (share, gain) in KINDS.items():
        center = sorted(own)[(len(own) - 1) // 2] if kind == "asinh" else 0.0
        middle = sorted(abs(own - center))[(len(own) - 1) // 2]
        if middle == 0 or (kind == "log" and not (min(own) > 0 or max(own) < 0)):
            continue
        unit = share * 2.0 ** np.floor(np.log2(middle) + 0.5 + np.sqrt(2) / 100)
        scale = Compression(kind, unit, unit * np.floor(center / unit + 0.5 + np.sqrt(2) / 100))
        slope = np.mean([scale.log_slope(y) for y in own])
        found[scale] = gain * max(1, ROWS / len(own)) - 2 * slope
    return found


@pytest.mark.parametrize("seed", range(12))
def test_scales_are_those_of_each_models_own_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = np.exp(2 * rng.normal(size=rng.integers(3, 30))) - (seed % 3) * 0.1
    y[: seed % 4] = 0.0
    if seed == 9:  # some models have more zeros than others
        y[: len(y) // 2] = 0.0
    sets = (
        [np.array([j]) for j in range(len(y))] if seed % 2 else np.array_split(np.arange(len(y)), 3)
    )
    found = scales_of_y(torch.from_numpy(y), [*sets, np.empty(0, dtype=int)])
    assert found.scales[0] is None
    assert not found.offsets[:, 0].any()
    for k, rows in enumerate([*sets, []]):
        own = by_hand(np.delete(y, rows))
        offered = [
            s for s, cost in zip(found.scales, found.offsets[k], strict=True) if cost < np.inf
        ]
        assert {scale for scale in offered if scale} == set(own)
        for scale, cost in zip(found.scales, found.offsets[k], strict=True):
            if scale in own:
                assert cost == pytest.approx(own[scale], rel=1e-9)
    assert found.targets(torch.from_numpy(y)).shape == (len(found.scales), len(y))


def skewed(seed: int, n: int) -> tuple[Array, Array, Array]:
    """Rows whose y are far apart, of which one may be negative; last, far from 0."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 3, 2))
    y = np.exp(4 * X[:n, 0] + rng.normal(size=n))
    y[1] *= (-1) ** seed
    if seed == 4:
        y = 1e4 + np.sinh(3 * X[:n, 0] + rng.normal(size=n))
    return X[:n], y, X[n:]


def fitted(X: Array, y: Array, **settings: object) -> lk.LazyJackknifeRegressor:
    return lk.LazyJackknifeRegressor(wide("gaussian"), alpha=0.2, random_state=0, **settings).fit(
        X, y
    )


def test_every_model_has_the_scale_of_y_that_its_own_rows_choose() -> None:
    """The model without a row is the full model of a fit on the others, its scale included."""
    seen, apart = set(), 0
    for seed in range(5):
        X, y, new = skewed(seed, 12)
        model = fitted(X, y)
        choice, found = model.choice_, model.loo_.scaled(torch.from_numpy(new))
        for j in range(len(y)):
            kept = np.arange(len(y)) != j
            twin = fitted(X[kept], y[kept])
            scale = choice.scales_of_y[choice.scale_of_y[j]]
            assert scale == twin.choice_.target_scale
            each = found.each[:, j].numpy()
            mine = each if scale is None else scale.inverse(each)
            np.testing.assert_allclose(mine, twin.predict(new), rtol=1e-7)
        seen |= {str(scale).split()[0] for scale in choice.scales_of_y}
        apart += len(set(choice.scale_of_y.tolist())) > 1
    assert {"None", "root", "log", "asinh"} <= seen
    assert apart >= 2  # a scale that all rows had chosen would be another one


def test_ends_of_models_on_other_scales_are_those_of_y() -> None:
    """Order statistics of the ends on the scale of y, computed one by one."""
    X, y, new = skewed(1, 12)
    model = fitted(X, y)
    choice, found = model.choice_, model.loo_.scaled(torch.from_numpy(new))
    assert len(set(choice.scale_of_y[:-1].tolist())) > 1
    ends = np.empty((2, len(new), len(y)))
    for j, scale in enumerate(choice.scale_of_y[:-1]):
        own = choice.scales_of_y[scale]
        z, width = found.each[:, j].numpy(), (model.loo_.scores[j] * found.scales[:, j]).numpy()
        for side in (0, 1):
            end = z + (2 * side - 1) * width
            ends[side, :, j] = end if own is None else own.inverse(end)
    rank = int(0.2 * (len(y) + 1))
    result = model.predict_interval(new)
    np.testing.assert_allclose(result.lower, np.sort(ends[0], axis=1)[:, rank - 1], rtol=1e-6)
    np.testing.assert_allclose(result.upper, np.sort(ends[1], axis=1)[:, -rank], rtol=1e-6)


def test_skewed_targets_get_narrower_intervals_and_others_stay_as_they_are() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(260, 2))
    z = X[:, 0] + 0.3 * rng.normal(size=260)
    long = 100 + np.sinh(2 * z)
    for y, narrower in ((np.exp(1.5 * z), True), (long, True), (z, False), (100 + z, False)):
        plain, auto = (
            fitted(X[:120], y[:120], target_transform=given).predict_interval(X[120:])
            for given in (None, "auto")
        )
        scores = [lk.interval_score(y[120:], found) for found in (plain, auto)]
        if narrower:
            assert scores[1] < 0.8 * scores[0]
            assert auto.covers(y[120:]).mean() > 0.7
        else:
            np.testing.assert_array_equal(plain.to_numpy(), auto.to_numpy())
