"""Scales of y: what they are, what they cost, and that every model chooses on its own rows."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lazyknife as lk
from lazyknife.choosing.target_scale import KINDS, ROWS, scales_of_y
from lazyknife.data.own_scaling import Compression
from lazyknife.networks import wide
from reference import Array


@pytest.mark.parametrize("kind", KINDS)
@given(
    y=st.floats(-1e9, 1e9, allow_subnormal=False),
    unit=st.sampled_from([2.0**-20, 0.25, 1.0, 2.0**9]),
)
def test_a_scale_is_odd_rises_and_has_the_slope_it_says(kind: str, y: float, unit: float) -> None:
    scale, at = Compression(kind, unit), np.array([y, -y])
    z = scale.forward(at)
    assert z[0] == -z[1]
    np.testing.assert_allclose(scale.inverse(z), at, rtol=1e-12, atol=1e-300)
    step = 1e-5 * max(abs(y), unit)
    slope = (scale.forward(at + step) - scale.forward(at - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(scale.log_slope(at)), slope, rtol=1e-5)


def by_hand(own: Array) -> dict[str, tuple[float, float]]:
    """The unit of each scale that a model with these rows is offered, and what it costs."""
    middle = sorted(abs(own))[(len(own) - 1) // 2]
    if middle == 0:
        return {}
    power = np.floor(np.log2(middle) + 0.5 + np.sqrt(2) / 100)
    found = {}
    for kind, (share, gain) in KINDS.items():
        if kind == "log" and not (min(own) > 0 or max(own) < 0):
            continue
        scale = Compression(kind, share * 2.0**power)
        cost = gain * max(1, ROWS / len(own)) - 2 * np.mean([scale.log_slope(y) for y in own])
        found[kind] = scale.unit, cost
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
        assert {s.kind: s.unit for s in offered if s} == {kind: u for kind, (u, _) in own.items()}
        for scale, cost in zip(found.scales, found.offsets[k], strict=True):
            if scale in offered and scale:
                assert cost == pytest.approx(own[scale.kind][1], rel=1e-9)
    assert found.targets(torch.from_numpy(y)).shape == (len(found.scales), len(y))


def skewed(seed: int, n: int) -> tuple[Array, Array, Array]:
    """Rows whose y are far apart, of which one may be negative."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 3, 2))
    y = np.exp(4 * X[:n, 0] + rng.normal(size=n))
    y[1] *= (-1) ** seed
    return X[:n], y, X[n:]


def fitted(X: Array, y: Array, **settings: object) -> lk.LazyJackknifeRegressor:
    return lk.LazyJackknifeRegressor(wide("gaussian"), alpha=0.2, random_state=0, **settings).fit(
        X, y
    )


def test_every_model_has_the_scale_of_y_that_its_own_rows_choose() -> None:
    """The model without a row is the full model of a fit on the others, its scale included."""
    seen, apart = set(), 0
    for seed in range(4):
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
    assert {"None", "root", "log"} <= seen
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
