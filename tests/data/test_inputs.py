"""The caller's rows as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lazyknife import LazyJackknifeRegressor, mlp, wide
from lazyknife.data.inputs import check_features, to_tensor


def test_an_array_that_is_given_away_is_not_copied() -> None:
    rows = np.arange(6.0).reshape(3, 2)
    assert to_tensor(rows).data_ptr() != rows.ctypes.data
    assert to_tensor(rows, copy=False).data_ptr() == rows.ctypes.data
    turned = to_tensor(np.asfortranarray(rows), copy=False)
    assert turned.is_contiguous()
    np.testing.assert_array_equal(turned, rows)


@pytest.mark.parametrize("network", [None, wide("gaussian"), mlp((4,))])
def test_integer_tensors_are_codes_unless_they_are_made_numbers(network: Any) -> None:
    codes, y = torch.randint(0, 9, (30, 3)), np.arange(30.0)
    model = LazyJackknifeRegressor(network=network, ridge=1.0, random_state=0)
    with pytest.raises(ValueError, match=r"integers are codes: pass X\.float\(\) if they are numb"):
        model.fit(codes, y)
    model.fit(codes.float(), y)


@pytest.mark.parametrize("X", [np.array([[1, 5], [2, 2**53 + 1]]), [[1, 5], [2, -(2**53) - 1]]])
def test_integers_that_floats_would_change_are_refused(X: Any) -> None:
    with pytest.raises(ValueError, match=r"X: column 1 has .*9007199254740993 is not a float64"):
        LazyJackknifeRegressor().fit(X, [1.0, 2.0])
    model = LazyJackknifeRegressor(mlp((4,)), ridge=1.0).fit(np.eye(9, 2), np.arange(9.0))
    with pytest.raises(ValueError, match=r"X: column 1 has .*9007199254740993 is not a float64"):
        model.predict(torch.tensor(X))
    assert check_features(np.array([[2**60], [2**53 + 2]]), None).tolist() == [
        [2.0**60],
        [2.0**53 + 2],
    ]
