"""The caller's rows as tensors."""

from __future__ import annotations

import numpy as np

from lazyknife.data.inputs import to_tensor


def test_an_array_that_is_given_away_is_not_copied() -> None:
    rows = np.arange(6.0).reshape(3, 2)
    assert to_tensor(rows).data_ptr() != rows.ctypes.data
    assert to_tensor(rows, copy=False).data_ptr() == rows.ctypes.data
    turned = to_tensor(np.asfortranarray(rows), copy=False)
    assert turned.is_contiguous()
    np.testing.assert_array_equal(turned, rows)
