import pickle

import numpy as np
import pytest

from lazyknife import Estimate

ONE = Estimate(0.25, 0.0125)
TWO = Estimate(np.array([1.0, 3.0]), np.array([0.5, np.nan]))


def test_an_estimate_is_its_value_where_a_number_is_needed():
    assert f"{ONE:.1%}" == "25.0%"
    assert float(ONE) == 0.25
    assert ONE == 0.25
    assert Estimate(0.25, 3.0) == ONE
    assert 0.2 < ONE <= 0.25
    assert 2 * ONE + 1 == 1.5
    assert ONE / Estimate(0.5, 0.0) == 0.5
    assert type(ONE - 1) is np.float64
    assert round(float(ONE), 1) == 0.2
    assert np.sqrt(ONE) == 0.5
    assert pytest.approx(ONE) == 0.25
    assert (TWO > 2).tolist() == [False, True]
    np.testing.assert_allclose(TWO, [1.0, 3.0])
    assert np.mean(TWO) == 2.0


def test_both_numbers_can_be_had_and_are_printed():
    value, error = ONE
    assert (value, error) == (0.25, 0.0125) == tuple(ONE)
    assert f"{ONE}" == str(ONE) == repr(ONE) == "0.25 ± 0.013"
    assert str(TWO) == "1 ± 0.5, 3 ± nan"


def test_estimates_are_frozen_and_can_be_pickled():
    again = pickle.loads(pickle.dumps(ONE))
    assert tuple(again) == tuple(ONE)
    with pytest.raises(AttributeError):
        ONE.value = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        float(TWO)
