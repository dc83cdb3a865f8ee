"""Sums over parts are those over all rows."""

from __future__ import annotations

import numpy as np
import pytest

from lazyknife.cli.totals import totals_of
from lazyknife.metrics import coverage, interval_score, mean_width
from lazyknife.results import Intervals


@pytest.fixture
def whole():
    rng = np.random.default_rng(0)
    point, half = rng.normal(size=30), rng.random((30, 2))
    return Intervals(point, point[:, None] - half, point[:, None] + half, (0.1, 0.3))


def test_parts_add_up(whole):
    y = np.random.default_rng(1).normal(size=30)
    parts = [totals_of(whole[rows], y[rows]) for rows in (slice(0, 7), slice(7, 30))]
    found = parts[0] + parts[1]
    assert found.rows == 30
    for level in range(2):
        assert found.width(level) == pytest.approx(mean_width(whole).value[level])
        assert found.score(level) == pytest.approx(interval_score(y, whole).value[level])
        share = coverage(y, whole)
        assert found.coverage(level) == pytest.approx((share.value[level], share.error[level]))


def test_without_a_target_there_are_widths_alone(whole):
    found = totals_of(whole[:4], None) + totals_of(whole[4:], None)
    assert found.width(0) == pytest.approx(mean_width(whole).value[0])
    assert found.score(0) is None
    assert found.coverage(0) is None
