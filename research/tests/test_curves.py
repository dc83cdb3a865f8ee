"""Curves of measurements and bounds: what is drawn, also at infinity."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from research.curves import Curve, plot_curves, plot_guarantees

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def lines(ax):
    """The labelled lines' points; gaps as None."""
    return {
        line.get_label(): [
            tuple(None if np.isnan(v) else round(float(v), 9) for v in point)
            for point in line.get_xydata()
        ]
        for line in ax.get_lines()
        if not line.get_label().startswith("_")
    }


def line(ax, label):
    return next(line for line in ax.get_lines() if line.get_label() == label)


def ticks(axis):
    labels = [label.get_text() for label in axis.get_ticklabels()]
    return dict(zip(labels, axis.get_ticklocs(), strict=True))


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_curves_have_markers_and_errors_and_bounds_have_neither():
    ax = plot_curves(
        [
            Curve("ours", np.array([2, 1]), np.array([5, 4]), np.array([0.5, 0.25])),
            Curve("theirs", [1, 2], [6, 7]),
            Curve("bound", [1, 2], [1, 2], kind="bound"),
        ],
        xlabel="n",
        ylabel="error",
        target=3,
        target_label="aim",
    )
    assert lines(ax) == {
        "ours": [(1, 4), (2, 5)],
        "theirs": [(1, 6), (2, 7)],
        "bound": [(1, 1), (2, 2)],
        "aim": [(0, 3), (1, 3)],
    }
    assert [bar.tolist() for bar in ax.collections[0].get_segments()] == [
        [[1, 3.75], [1, 4.25]],
        [[2, 4.5], [2, 5.5]],
    ]
    ours, theirs, bound = (line(ax, label) for label in ("ours", "theirs", "bound"))
    assert ours.get_marker() != theirs.get_marker()
    assert ours.get_color() != theirs.get_color()
    assert (bound.get_marker(), bound.get_linestyle()) == ("None", "--")
    assert legend(ax) == ["ours", "theirs", "bound", "aim"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("n", "error")


def test_infinity_has_a_place_of_its_own_and_missing_values_are_gaps():
    eps = [INF, 0.1, 1, 10]
    ax = plot_curves(
        [
            Curve("a", eps, [1, 2, None, 4], [0.1] * 4),
            Curve("b", eps, [5, 6, 7, NAN], kind="bound"),
        ],
        xlabel="ε",
        ylabel="y",
        log_x=True,
    )
    place = ticks(ax.xaxis)["∞"]
    assert 10 < place < ax.get_xlim()[1] < 50
    assert set(ticks(ax.xaxis)) >= {"0.1", "1", "10", "∞"}
    assert all(tick <= 10.001 for label, tick in ticks(ax.xaxis).items() if label != "∞")
    assert max(ax.get_xticks(minor=True)) < 10
    a, b = lines(ax)["a"], lines(ax)["b"]
    assert a == [(0.1, 2), (1, None), (10, 4), (None, None), (round(place, 9), 1)]
    assert b[:4] == [(0.1, 6), (1, 7), (10, None), (None, None)]
    (left, low), (right, high) = b[4:]
    assert 10 < left < place < right
    assert low == high == 5


def test_infinity_after_negative_numbers_on_a_linear_axis():
    ax = plot_curves([Curve("a", [-4, -2, INF], [1, 2, 3])], xlabel="x", ylabel="y")
    assert ticks(ax.xaxis)["−4.0"] == -4
    assert -2 < ticks(ax.xaxis)["∞"] < 0


def test_no_infinity_no_gap():
    ax = plot_curves([Curve("a", [1, 2, 3], [1, 2, 3])], xlabel="x", ylabel="y")
    assert "∞" not in ticks(ax.xaxis)
    assert len(ax.get_lines()) == 1


def test_log_scales_have_plain_numbers():
    ax = plot_curves(
        [Curve("a", [100, 200, 1000], [0.01, 3, 50])],
        xlabel="n",
        ylabel="s",
        log_x=True,
        log_y=True,
    )
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    ax.figure.draw_without_rendering()
    assert {"100", "200", "500", "1000"} <= set(ticks(ax.xaxis))
    assert {"0.01", "0.1", "1", "10"} <= set(ticks(ax.yaxis))


def test_a_curve_of_unequal_lengths_or_unknown_kind_is_refused():
    for wrong in (Curve("a", [1, 2], [1]), Curve("a", [1, 2], [1, 2], [1])):
        with pytest.raises(ValueError, match="curve 'a'"):
            plot_curves([wrong], xlabel="x", ylabel="y")
    with pytest.raises(ValueError, match="kind='bond': choose from 'measured', 'bound'"):
        plot_curves([Curve("a", [1], [1], kind="bond")], xlabel="x", ylabel="y")


def test_guarantees_are_lines_the_first_shaded_and_measurements_points():
    ax = plot_guarantees(
        [Curve("first", [1, 2, INF], [0.8, 0.5, 0.25]), Curve("second", [1, 2], [0.7, 0.0])],
        xlabel="ε",
        measured=[Curve("seen", [1, 2, INF], [0.9, 0.91, 1.0], [0.01] * 3)],
        target=0.9,
    )
    for label in ("first", "second"):
        assert line(ax, label).get_marker() == "None"
    assert line(ax, "first").get_linestyle() != line(ax, "second").get_linestyle()
    assert (line(ax, "seen").get_marker(), line(ax, "seen").get_linestyle()) == ("o", "None")
    (shade,) = [c for c in ax.collections if c.get_label() == "certified"]
    corners = {(x, y) for path in shade.get_paths() for x, y in path.vertices}
    assert {(1, 0), (1, 0.8), (2, 0.5)} <= corners
    assert max(y for x, y in corners if x > 2) == 0.25
    assert len(shade.get_paths()) == 2  # no shade across the gap
    assert ticks(ax.yaxis).values() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert ax.get_ylim()[0] == 0
    assert set(legend(ax)) == {"first", "second", "seen", "certified", "target 0.9"}
    assert plot_guarantees([], xlabel="n", log_x=True, ax=plt.figure().gca()).get_xscale() == "log"


def test_curves_are_drawn_on_the_given_axes():
    for draw in (plot_curves, plot_guarantees):
        ax, words = plt.figure().gca(), {} if draw is plot_guarantees else {"ylabel": "y"}
        assert draw([Curve("a", [1, INF], [0.5, 0.6])], xlabel="x", ax=ax, **words) is ax
