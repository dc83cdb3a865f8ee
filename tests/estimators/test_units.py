"""The default with any units, ties and duplicates: the same intervals, the same certificate."""

import numpy as np
import pytest

from lazyknife import LazyJackknifeRegressor
from reference import assert_close

rng = np.random.default_rng(3)
X = rng.normal(size=(24, 2))
y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=24)
NEW = rng.normal(size=(5, 2))
HUGE = 2.0**30  # about 1e9


def result(X, y, new, **settings):
    model = LazyJackknifeRegressor(random_state=0, **settings).fit(X, y)
    return model.predict_interval(new), model.certificate_.coverage


EXPECTED, COVERAGE = result(X, y, NEW)


@pytest.mark.parametrize("unit", [HUGE, 1 / HUGE])
def test_another_unit_of_y_changes_the_unit_of_intervals(unit):
    found, coverage = result(X, unit * y, NEW)
    assert coverage == COVERAGE
    assert_close(found.to_numpy() / unit, EXPECTED.to_numpy(), relative=1e-6)


@pytest.mark.parametrize("units", [(HUGE, HUGE), (1 / HUGE, 1 / HUGE), (HUGE, 1 / HUGE)], ids=str)
def test_other_units_of_features_change_nothing(units):
    found, coverage = result(X * units, y, NEW * units)
    assert coverage == COVERAGE
    assert_close(found.to_numpy(), EXPECTED.to_numpy(), relative=1e-6)


@pytest.mark.parametrize(
    ("rows", "targets"),
    [
        (X, np.round(y)),
        (X, (y > 0).astype(float)),
        (X, np.full(24, 3.3)),
        (np.round(X), y),
        (np.repeat(X[:8], 3, axis=0), np.repeat(y[:8], 3)),
        (np.repeat(X[:1], 24, axis=0), y),
        (X, np.where(np.arange(24) == 5, 1e12, y)),
        (np.where(np.arange(48).reshape(24, 2) == 5, 1e12, X), y),
    ],
    ids=["ties", "binary", "constant", "grid", "duplicates", "one x", "outlier", "far x"],
)
def test_ties_duplicates_and_outliers_have_finite_intervals(rows, targets):
    found, coverage = result(rows, targets, NEW)
    assert coverage == COVERAGE
    assert np.isfinite(found.to_numpy()).all()
    assert (found.lower <= found.upper).all()
