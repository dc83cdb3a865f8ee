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
