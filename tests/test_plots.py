import matplotlib as mpl
import numpy as np
import pytest

import lazyknife as lk
from lazyknife.plots import plot_intervals, plot_methods

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_intervals_are_sorted_and_misses_are_marked():
    intervals = lk.Intervals(
        np.array([3.0, 1.0, 2.0]), np.array([2.0, 0, 1]), np.array([4.0, 2, 3]), 0.1
    )
    ax = plot_intervals(intervals, [3.5, 9.0, 2.0])
    lines = {line.get_label(): line.get_xydata().tolist() for line in ax.get_lines()}
    assert lines["prediction"] == [[0, 1], [1, 2], [2, 3]]
    assert lines["y, missed"] == [[0, 9]]
    assert lines["y, covered"] == [[1, 2], [2, 3.5]]


def test_methods_are_listed_from_the_top_on_the_given_axes():
    _, ax = plt.subplots()
    drawn = plot_methods(["a", "b"], [1, 2], [0.1, 0.1], label="width", target=1.5, ax=ax)
    assert drawn is ax
    labels = [tick.get_text() for tick in ax.get_yticklabels()]
    assert dict(zip(labels, ax.get_yticks(), strict=True)) == {"a": 1, "b": 0}
    assert ax.get_xlabel() == "width"
