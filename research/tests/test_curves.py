"""Curves of measurements and bounds: what is drawn, also at infinity."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from research.curves import Curve, plot_curves

INF, NAN = float("inf"), float("nan")


def drawn(*curves, **options):
    words = {"xlabel": "x", "ylabel": "y", "ax": Figure().subplots()}
    return plot_curves(curves, **words | options)


def points(ax, label):
    """A line's points; gaps as None."""
    line = next(line for line in ax.get_lines() if line.get_label() == label)
    return [
        tuple(None if np.isnan(v) else round(float(v), 9) for v in p) for p in line.get_xydata()
    ]


def ticks(axis):
    labels = [label.get_text() for label in axis.get_ticklabels()]
    return dict(zip(labels, axis.get_ticklocs(), strict=True))


def test_curves_have_markers_and_errors_and_bounds_have_neither():
    ours = Curve("ours", np.array([2, 1]), np.array([5, 4]), np.array([0.5, 0.25]))
    bound = Curve("bound", [1, 2], [1, 2], kind="bound")
    ax = drawn(ours, Curve("theirs", [1, 2], [6, 7]), bound, target=3, target_label="aim")
    assert points(ax, "ours") == [(1, 4), (2, 5)]
    assert points(ax, "aim") == [(0, 3), (1, 3)]
    assert [bar.tolist() for bar in ax.collections[0].get_segments()] == [
        [[1, 3.75], [1, 4.25]],
        [[2, 4.5], [2, 5.5]],
    ]
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert lines["ours"].get_marker() != lines["theirs"].get_marker()
    assert lines["ours"].get_color() != lines["theirs"].get_color()
    assert (lines["bound"].get_marker(), lines["bound"].get_linestyle()) == ("None", "--")
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["ours", "theirs", "bound", "aim"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")


def test_infinity_has_a_place_of_its_own_and_missing_values_are_gaps():
    x = [INF, 0.1, 1, 10]
    measured = Curve("a", x, [1, 2, None, 4], [0.1] * 4)
    ax = drawn(measured, Curve("b", x, [5, 6, 7, NAN], kind="bound"), log_x=True)
    place = ticks(ax.xaxis)["∞"]
    assert 10 < place < ax.get_xlim()[1] < 100
    assert set(ticks(ax.xaxis)) >= {"0.1", "1", "10", "∞"}
    assert all(tick <= 10.001 for label, tick in ticks(ax.xaxis).items() if label != "∞")
    assert max(ax.get_xticks(minor=True)) < 10.001
    assert points(ax, "a") == [(0.1, 2), (1, None), (10, 4), (None, None), (round(place, 9), 1)]
    *finite, (left, low), (right, high) = points(ax, "b")
    assert finite == [(0.1, 6), (1, 7), (10, None), (None, None)]
    assert 10 < left < place < right
    assert low == high == 5


def test_log_scales_have_plain_numbers():
    ax = drawn(Curve("a", [100, 200, 1000], [0.01, 3, 50]), log_x=True, log_y=True)
    ax.figure.draw_without_rendering()
    assert {"100", "200", "500", "1000"} <= set(ticks(ax.xaxis))
    assert {"0.01", "0.1", "1", "10"} <= set(ticks(ax.yaxis))
    assert "∞" not in ticks(ax.xaxis)


def test_limits_of_y_leave_room_for_the_legend():
    ax = drawn(Curve("a", [1, 2], [0.5, 0.6], kind="bound"), limits=(0.0, 1.0))
    assert ax.get_ylim()[0] == pytest.approx(0.0)
    assert ax.get_ylim()[1] > 1.0
