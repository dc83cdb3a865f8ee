"""Scaling by each model's own rows: twins that delete rows, and what a change of units changes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyknife.data.own_scaling import SHIFT, FeatureScales, own_scales, without
from reference import Array, assert_close

ALL = torch.arange(0)  # the rows that the full model leaves out


def frame_of(X: Array) -> tuple[Array, Array]:
    """Centre and scale of rows, in numpy."""
    ordered, last = np.sort(X, axis=0), len(X) - 1
    low, middle, high = (ordered[k] for k in (last // 4, last // 2, last - last // 4))
    far = (np.ptp(X, axis=0) > 6 * X.std(axis=0)) & (high > low)
    room = np.where(far, 8 * (high - low), np.inf)
    X = np.clip(X, middle - room, middle + room)
    least, span = X.min(axis=0), np.ptp(X, axis=0)
    two = np.array([len(np.unique(column)) <= 2 for column in X.T])
    sizes = np.where(two, np.where(span == 0, 1.0, span), X.std(axis=0))
    scales = 2.0 ** np.floor(np.log2(sizes) + 0.5 + SHIFT)
    rounded = scales * np.floor(X.mean(axis=0) / scales + 0.5 + SHIFT)
    return np.where(two, least, rounded), scales


def frames_of(X: Array) -> FeatureScales:
    sets = [torch.tensor([j]) for j in range(len(X))]
    return own_scales(without(torch.from_numpy(X), [*sets, ALL]))


def rows(seed: int, n: int, features: int = 3) -> Array:
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.integers(-3, 6, size=features)
    return (rng.normal(size=(n, features)) + rng.normal(size=features)) * scales


@given(seed=st.integers(0, 10**6), n=st.integers(3, 12))
@settings(max_examples=40, deadline=None)
def test_each_model_has_the_frame_of_its_own_rows(seed: int, n: int) -> None:
    lone = np.where(np.arange(n) == 1, 1000.0, 0.0)  # constant without row 1
    X = np.column_stack([rows(seed, n), lone, np.full(n, 0.1), np.full(n, -1e5)])
    folds = [torch.tensor([0, n - 1]), torch.tensor([1]), ALL]
    found = own_scales(without(torch.from_numpy(X), folds))
    for k, gone in enumerate(folds):
        center, scale = frame_of(np.delete(X, gone.numpy(), axis=0))
        if not found.doubtful[k]:
            assert_close(found.centers[found.of[k]], center, 1e-12)
            assert_close(found.scales[found.of[k]], scale, 1e-12)
    assert found.doubtful.sum() <= 1


def test_models_share_a_frame_whatever_the_tails() -> None:
    """Also of a column with gaps, of one that is 0 in most rows, and with one far value."""
    rng = np.random.default_rng(1)
    counts = np.where(rng.uniform(size=150) < 0.9, 0.0, rng.poisson(3, 150))
    X = np.column_stack([rng.standard_cauchy((150, 8)), rng.standard_t(2, (150, 8)), counts])
    X[7, 0], X[:9, 1] = -1e12, np.nan
    found = frames_of(X)
    assert len(found) <= 6  # 12 if far values count as they are
    assert not found.doubtful.any()
    for k in (3, 7, 149):
        own = np.delete(X, k, axis=0)
        for f in range(17):
            center, scale = frame_of(own[~np.isnan(own[:, f])][:, [f]])
            frame = found[int(found.of[k])]
            assert_close(frame.center[[f]], center, 1e-12)
            assert_close(frame.scale[[f]], scale, 1e-12)


def test_a_reach_at_the_boundary_is_doubtful() -> None:
    """One of 72 values reaches over 6 standard deviations of √71/72: its reach is just 8.5."""
    column = np.arange(-36.0, 36.0) / 100
    rest = np.delete(column, 0)

    def reach(far: float) -> float:
        return float(np.ptp([far, *rest]) - 6 * np.std([far, *rest]))

    low, high = 0.5, 1000.0
    for _ in range(200):
        low, high = (
            (low, (low + high) / 2) if reach((low + high) / 2) > 0 else ((low + high) / 2, high)
        )
    for far, doubt in ((low, True), (low * 1.01, False)):
        found = own_scales([torch.from_numpy(np.array([far, *rest])[:, None])])
        assert found.doubtful.tolist() == [doubt]


def test_values_at_a_boundary_are_doubtful() -> None:
    """Without rows 3 and 4 the deviation is the boundary of two powers."""
    end = 2.0 ** (-0.5 - SHIFT) * np.sqrt(1.5)
    X = np.array([[-end], [end], [0.0], [0.3], [0.1]])
    found = own_scales(without(torch.from_numpy(X), [torch.tensor([3, 4]), ALL]))
    assert found.doubtful.tolist() == [True, False]


# Columns of which the row that is left out, 0, hides how the others differ once anything of it has
# been subtracted from them.
HIDING = {
    "an indicator with a code for missing": [2.0**63 - 1, *([2.0**63 - 1] * 5), 0.0, 1.0, 0.0, 1.0],
    "two numbers that differ by a rounding": [1000.0, *([0.3] * 5), *([0.1 + 0.2] * 4)],
    "a tiny number beside 0": [1.0, *([0.0] * 5), *([1e-17] * 4)],
}


@pytest.mark.parametrize("column", HIDING.values(), ids=HIDING.keys())
@pytest.mark.parametrize("other", [1.0, -1e3, 1e280, 5e-324])
def test_a_row_that_is_left_out_changes_nothing(column: list[float], other: float) -> None:
    X = np.column_stack([column, rows(3, 10, 2)])
    changed = X.copy()
    changed[0] *= other
    sets = [torch.tensor([0]), torch.tensor([0, 1]), torch.arange(6)]
    one, two = (own_scales(without(torch.from_numpy(Z), sets)) for Z in (X, changed))
    alone = own_scales(without(torch.from_numpy(X[1:]), [ALL, torch.tensor([0]), torch.arange(5)]))
    for found in (two, alone):
        assert torch.equal(one.centers[one.of], found.centers[found.of])
        assert torch.equal(one.scales[one.of], found.scales[found.of])
        assert torch.equal(one.doubtful, found.doubtful)


def test_columns_far_from_0_have_a_frame() -> None:
    """The mean of numbers around 1e15 is found from how far they lie above the smallest."""
    rng = np.random.default_rng(0)
    X = np.column_stack([1e15 + rng.integers(0, 20, 30), 19000 + rng.choice([0, 3e-11], 30)])
    found = frames_of(X)
    assert not found.doubtful.any()
    framed = found[int(found.of[-1])].apply(torch.from_numpy(X))
    assert float(framed.abs().max()) < 4


# Whole fits.


def test_codes_of_categories_are_left_as_they_are() -> None:
    X = torch.from_numpy(np.column_stack([rows(5, 12, 2), np.arange(12) % 4]))
    frame = own_scales([X], nominal=(False, False, True))[0]
    assert (float(frame.center[2]), float(frame.scale[2])) == (0.0, 1.0)
    assert frame.nominal == (False, False, True)
    assert torch.equal(frame.scale[:2], own_scales([X[:, :2]])[0].scale)
