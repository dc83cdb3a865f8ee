"""The default with any units, ties and duplicates: the same intervals, the same certificate."""

import numpy as np
import pytest

from lazyknife import LazyJackknifeRegressor
from reference import assert_close

rng = np.random.default_rng(3)
X = rng.normal(size=(24, 2))
y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=24)
NEW = rng.normal(size=(5, 2))


def result(X, y, new, **settings):
    model = LazyJackknifeRegressor(random_state=0, **settings).fit(X, y)
    return model.predict_interval(new), model.certificate_.coverage


@pytest.mark.parametrize(("unit", "other"), [(2.0**30, 2.0**-30), (2.0**-30, 2.0**-30)])
def test_units_of_y_are_those_of_intervals_and_units_of_features_change_nothing(unit, other):
    expected, coverage = result(X, y, NEW)
    for factors, size in (((1.0, 1.0), unit), ((unit, other), 1.0)):
        found, again = result(X * factors, size * y, NEW * factors)
        assert again == coverage
        assert_close(found.to_numpy() / size, expected.to_numpy(), relative=1e-6)
