"""What the plots draw, that they leave matplotlib's settings alone, and the files they become."""

import re
import subprocess
import sys
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

import lazyknife as lk
from lazyknife.metrics import Bins
from lazyknife.plots import (
    Panel,
    figure_svg,
    plot_band,
    plot_comparison,
    plot_coverage_by_bin,
    plot_intervals,
    plot_methods,
    save_figure,
    style,
)
from lazyknife.plots.figures import short

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


def texts(ax):
    return [text.get_text() for text in ax.texts]


def ticks(axis):
    labels = [label.get_text() for label in axis.get_ticklabels()]
    return dict(zip(labels, axis.get_ticklocs(), strict=True))


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def new_axes():
    return plt.figure().gca()


def intervals(rows, alpha=0.1):
    rng = np.random.default_rng(rows)
    point, width = rng.normal(size=rows), 0.5 + rng.random(rows)
    return lk.Intervals(point, point - width, point + width, alpha), point + rng.normal(size=rows)


# Intervals, row by row.


def test_intervals_are_sorted_and_misses_are_marked():
    three = lk.Intervals(np.array([3.0, 1, 2]), np.array([2.0, 0, 1]), np.array([4.0, 2, 3]), 0.1)
    ax = plot_intervals(three, [3.5, 9.0, 2.0])
    drawn = lines(ax)
    assert drawn["prediction"] == [(0, 1), (1, 2), (2, 3)]
    assert drawn["y, missed"] == [(0, 9)]
    assert drawn["y, covered"] == [(1, 2), (2, 3.5)]
    bars = np.concatenate([path.vertices for path in ax.collections[0].get_paths()])
    corners = {(-0.3, 0), (0.3, 2), (1.7, 2), (2.3, 4)}
    assert corners <= set(map(tuple, bars.round(9).tolist()))
    many = lk.Intervals(*(np.arange(20.0) + shift for shift in (0, -1, 1)), 0.1)
    band = plot_intervals(many, ax=new_axes()).collections[0].get_paths()[0].vertices
    assert {(0, -1), (0, 1), (19, 18), (19, 20)} <= set(map(tuple, band))
    assert legend(ax) == ["interval", "prediction", "y, covered", "y, missed"]
    assert not ax.spines["top"].get_visible()


@pytest.mark.parametrize(("rows", "drawn"), [(2000, 2000), (2001, 1000), (30_000, 1000)])
def test_of_many_rows_evenly_spaced_ones_are_drawn(rows, drawn):
    many, y = intervals(rows)
    ax = plot_intervals(many, y)
    ranks = np.array(lines(ax)["prediction"])[:, 0]
    assert len(ranks) == drawn
    assert (ranks[0], ranks[-1]) == (0, rows - 1)
    assert np.ptp(np.diff(ranks)) <= 1
    covered, missed = (len(lines(ax)[f"y, {name}"]) for name in ("covered", "missed"))
    assert covered + missed == drawn
    assert missed / drawn == pytest.approx(1 - lk.coverage(y, many).value, abs=0.04)
    note = f"({drawn:,} of {rows:,} drawn)"
    assert (note in ax.get_xlabel()) == (drawn < rows)
    assert np.array(lines(ax)["prediction"])[:, 1] == pytest.approx(
        np.sort(many.point)[ranks.astype(int)], abs=1e-8
    )


def test_infinite_ends_leave_the_axes_and_do_not_stretch_them():
    lower, upper = np.array([-1, -INF, 1, 2.0]), np.array([1, 2, INF, 4.0])
    ax = plot_intervals(lk.Intervals(np.arange(4.0), lower, upper, 0.1), [0, 9.0, 2, 3])
    low, high = ax.get_ylim()
    assert -3 < low < -1
    assert 9 < high < 15
    band = np.concatenate([path.vertices for path in ax.collections[0].get_paths()])
    assert np.isfinite(band).all()
    assert band[:, 1].min() < low
    assert band[:, 1].max() > high
    x = np.arange(3.0)
    ax = plot_band(x, lk.Intervals(x, x - 1, np.array([1, 2, INF]), 0.1), [1], [5], ax=new_axes())
    assert 5 < ax.get_ylim()[1] < 8
    assert ax.collections[0].get_paths()[0].vertices[:, 1].max() > 20


def test_infinite_and_empty_intervals_are_drawn_without_truths():
    whole = np.full(3, INF)
    ax = plot_intervals(lk.Intervals(np.ones(3), -whole, whole, 0.1))
    assert np.isfinite(ax.get_ylim()).all()
    assert legend(ax) == ["interval", "prediction"]
    assert ax.get_xlabel() == "rows, sorted by prediction"
    ax.figure.draw_without_rendering()
    empty = lk.Intervals(np.zeros(3), np.full(3, 1.0), np.full(3, -1.0), 0.9)
    band = plot_intervals(empty, ax=new_axes()).collections[0]
    assert set(band.get_paths()[0].vertices[:, 1]) == {1.0}


# The band over one feature.


def test_the_band_is_drawn_in_the_order_of_x():
    x = np.array([2.0, 0, 1])
    ax = plot_band(
        x, lk.Intervals(x + 5, x + 4, x + 6, 0.1), x_train=[1, 0], y_train=[7, 8], truth=10 * x
    )
    drawn = lines(ax)
    assert drawn["prediction"] == [(0, 5), (1, 6), (2, 7)]
    assert drawn["true curve"] == [(0, 0), (1, 10), (2, 20)]
    assert sorted(drawn["training rows"]) == [(0, 8), (1, 7)]
    assert {(0, 4), (1, 7), (2, 8)} <= set(map(tuple, ax.collections[0].get_paths()[0].vertices))
    assert legend(ax) == ["interval", "training rows", "true curve", "prediction"]


def test_the_bands_of_several_levels_are_nested():
    x, half = np.arange(5.0), np.array([1.0, 3, 2])
    nested = lk.Intervals(x, x[:, None] - half, x[:, None] + half, (0.5, 0.05, 0.2))
    ax = plot_band(x, nested)
    assert [band.get_label() for band in ax.collections] == [
        f"interval, α = {alpha}" for alpha in (0.05, 0.2, 0.5)
    ]
    heights = [np.ptp(band.get_paths()[0].vertices[:, 1]) for band in ax.collections]
    assert heights == [10, 8, 6]
    shades = [float(np.mean(band.get_facecolor()[0, :3])) for band in ax.collections]
    assert shades == sorted(shades, reverse=True)


def test_many_training_rows_are_thinned_and_the_legend_says_so():
    x = np.linspace(0, 1, 7000)
    ax = plot_band(x, lk.Intervals(x, x - 1, x + 1, 0.1), x_train=x[::-1], y_train=x[::-1])
    assert len(lines(ax)["1,000 of 7,000 rows"]) == len(lines(ax)["prediction"]) == 1000
    assert len(ax.collections[0].get_paths()[0].vertices) < 3000


THREE = lk.Intervals(np.zeros(3), np.zeros(3), np.ones(3), 0.1)
BOTH = lk.Intervals(np.zeros(3), np.zeros((3, 2)), np.ones((3, 2)), (0.1, 0.2))
ONE = Panel("width", [1], [1])
REFUSED = [
    (lambda: plot_intervals(BOTH), "one alpha"),
    (lambda: plot_intervals(THREE, [1, 2]), r"y has shape \(2,\)"),
    (lambda: plot_band([1, 2], THREE), r"x has shape \(2,\): give shape \(3,\)"),
    (lambda: plot_band([1, 2, 3], THREE, truth=[1, 2]), r"truth has shape \(2,\): give shape \(3,"),
    (
        lambda: plot_band([1, 2, 3], THREE, [1, 2], [1]),
        r"y_train has shape \(1,\): give shape \(2,",
    ),
    (lambda: plot_comparison(["a", "b"], [ONE]), "'width' has 1 values and 1 errors"),
    (lambda: plot_comparison(["a"], [ONE] * 2, axes=plt.gca()), "axes has 1 axes: give 2"),
    *(
        (lambda p=p: figure_svg(plt.figure(), title="t", id_prefix=p), "id_prefix=")
        for p in ("", "1a", 'a"b', "é")
    ),
    (lambda: save_figure(plt.figure(), "a.jpg"), r"a\.jpg'.*\.svg, \.pdf, \.png"),
]


@pytest.mark.parametrize(("draw", "words"), REFUSED)
def test_what_cannot_be_drawn_is_refused_with_the_way_out(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()


# Coverage by bin.


def test_bins_have_their_ranges_below_and_errors_about_them():
    edges = np.array([-2.0, -0.5, 1, INF])
    bins = Bins(edges[:-1], edges[1:], np.full(3, 9), np.array([0.7, 0.8, 1]), *np.ones((2, 3)))
    ax = plot_coverage_by_bin(bins, target=0.8, label="dose")
    assert ticks(ax.xaxis) == {"−2.00 to −0.500": 0, "−0.500 to 1.00": 1, "1.00–∞": 2}
    (bar,) = ax.containers
    assert bar[0].get_xydata().tolist() == [[0, 0.7], [1, 0.8], [2, 1]]
    assert bar[2][0].get_segments()[0].tolist() == pytest.approx(np.array([[0, -0.3], [0, 1.7]]))
    assert line(ax, "target 0.8").get_ydata() == [0.8, 0.8]
    assert line(ax, "target 0.8").get_linestyle() == ":"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("dose", "coverage")
    assert plot_coverage_by_bin(bins, ax=new_axes()).get_legend() is None


# Methods.


def panels(count):
    values = [1.0 + k for k in range(count)]
    return [
        Panel("coverage", values, [0.5] * count, target=0.8, target_label="1 − α"),
        Panel("time (s)", [10.0**k for k in range(count)], [0.1] * count, log=True),
        Panel("width", [0.9] * count, [0.1] * count),
    ]


def test_each_panel_has_values_errors_and_numbers_and_the_first_has_names():
    axes = plot_comparison(["a", "b"], panels(2), best="a")
    assert [ax.get_xlabel() for ax in axes] == ["coverage", "time (s)", "width"]
    assert [ax.get_xscale() for ax in axes] == ["linear", "log", "linear"]
    first = axes[0]
    (bars,) = first.containers
    assert bars[0].get_xydata().tolist() == [[1, 1], [2, 0]]
    segments = [part.tolist() for part in bars[2][0].get_segments()]
    assert segments == [[[0.5, 1], [1.5, 1]], [[1.5, 0], [2.5, 0]]]
    assert texts(first) == ["1.00", "2.00", "1 − α"]
    assert [text.xy for text in first.texts[:2]] == [(1, 1), (2, 0)]
    assert ticks(first.yaxis) == {"a": 1, "b": 0}
    assert any(list(line.get_xdata()) == [0.8, 0.8] for line in first.get_lines())
    assert [ax.yaxis.get_tick_params()["labelleft"] for ax in axes] == [True, False, False]
    assert [name.get_fontweight() for name in first.get_yticklabels()] == ["bold", "normal"]
    assert first.texts[2].xy == (0.8, 1)


def test_infinite_and_missing_values_are_said_in_words():
    values, errors = [INF, NAN, 2.0, 3.0], [NAN, NAN, NAN, 0.1]
    for log in (False, True):
        (ax,) = plot_comparison(list("abcd"), [Panel("width", values, errors, log=log)])
        assert texts(ax) == ["∞ →", "failed", "2.00", "3.00"]
        assert [text.xy for text in ax.texts] == [(0.995, 3), (0.995, 2), (2, 1), (3, 0)]
        assert ax.containers[0][0].get_xydata().tolist() == [[2, 1], [3, 0]]
        assert ax.get_xlim()[1] < 5
        assert len(ax.get_xticks()) >= 2
        ax.figure.draw_without_rendering()
    assert texts(plot_comparison("a", [Panel("time", [0.0], [0.0], log=True)])[0]) == ["0.00"]
    (ax,) = plot_comparison(["a"], [Panel("width", [INF], [NAN], log=True)])
    assert [*ax.get_xticks(), *ax.get_xticks(minor=True)] == []  # no made-up scale


def test_values_far_above_the_others_are_cut():
    values = [1.0, 1.2, 0.9, 500.0]
    ax = plot_methods(list("abcd"), values, [0.1] * 4, label="score")
    assert ax.get_xlim()[1] < 2
    assert texts(ax)[-1] == "500 →"
    ax = plot_methods("abcd", values, [0.1] * 4, label="time", log=True, ax=new_axes())
    assert ax.get_xlim()[1] > 500


# Numbers.


SHORT = {0.9: "0.900", 12.34: "12.3", 99.96: "100", 12345: "12,345", 2.5e7: "2.5e7"}
SHORT |= {1.2e-5: "1.2e−5", 0: "0.00", -3: "−3.00", INF: "∞", -INF: "−∞"}


def test_numbers_are_short():
    assert {value: short(value) for value in SHORT} == SHORT


# Settings and files.


def draw_all():
    every = [*(plt.figure().gca() for _ in range(4)), *plt.subplots(1, 3)[1]]
    some, y = intervals(30)
    bins = Bins(*np.ones((2, 2)), np.ones(2, dtype=int), *np.ones((3, 2)))
    returned = [
        plot_intervals(some, y, ax=every[0]),
        plot_band(y, some, ax=every[1]),
        plot_coverage_by_bin(bins, ax=every[2]),
        plot_methods(["a"], [1], [1], label="width", ax=every[3]),
        *plot_comparison(["a", "b"], panels(2), axes=every[4:]),
    ]
    assert all(a is b for a, b in zip(every, returned, strict=True))
    return [ax.figure for ax in returned[:5]]


def test_plots_return_the_given_axes_and_leave_the_settings_alone(tmp_path):
    before = dict(mpl.rcParams)
    for number, figure in enumerate(draw_all()):
        save_figure(figure, tmp_path / f"{number}.svg")
        assert not any(ax.spines["right"].get_visible() for ax in figure.axes)
    with style():
        inside = dict(mpl.rcParams)
        draw_all()
        assert dict(mpl.rcParams) == inside != before
        assert plt.figure().get_size_inches()[0] == 3.4  # a column's width
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("suffix", [".SVG", ".pdf", ".png"])
def test_equal_figures_have_equal_bytes(tmp_path, suffix):
    path, figures, written = tmp_path / f"a{suffix}", [], []
    for _ in range(2):
        with style():
            figures.append(plot_intervals(*intervals(50), ax=new_axes()).figure)
    for figure in (figures[0], figures[1], figures[1]):  # another one, and the same again
        save_figure(figure, path)
        written.append(path.read_bytes())
    assert written[0] == written[1] == written[2]
    start = {".svg": b"<?xml", ".pdf": b"%PDF", ".png": b"\x89PNG"}[suffix.lower()]
    assert written[0].startswith(start)
    if suffix == ".png":
        assert plt.imread(path).shape[1] == 680  # 200 dots per inch
    for word in (b"atplotlib v", b"Software", b"CreationDate", b"<dc:date>", b"<text"):
        assert word not in written[0]


def test_two_figures_on_a_page_share_no_names():
    parts = []
    for prefix in ("one", "two-2"):
        with style():
            ax = plot_intervals(*intervals(20), ax=new_axes())
            ax.bar([1], [1], hatch="//")
        parts.append(figure_svg(ax.figure, title='coverage < 1 & "so"', id_prefix=prefix))
    again = figure_svg(ax.figure, title='coverage < 1 & "so"', id_prefix="two-2")
    assert again == parts[1]
    page = ElementTree.fromstring(f"<div>{''.join(parts)}</div>")
    names = [element.get("id") for element in page.iter() if element.get("id")]
    assert len(names) == len(set(names)) > 50
    used = re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', "".join(parts))
    assert {a or b for a, b in used} <= set(names)
    assert any(b for _, b in used)
    for prefix, root in zip(("one", "two-2"), page, strict=True):
        assert root.get("id") == prefix
        assert (root.get("width"), root.get("height")) == ("100%", None)
        assert root.get("viewBox").startswith("0 0 244.8")
        assert (root.get("role"), root.get("aria-label")) == ("img", 'coverage < 1 & "so"')
        assert root[0].tag.endswith("title")
        assert root[0].text == 'coverage < 1 & "so"'
        (rules,) = [e.text for e in root.iter() if e.tag.endswith("}style")]
        assert rules.startswith(f"#{prefix} *{{")
    assert parts[0].startswith("<svg")
    assert not re.search("<!|<metadata", parts[0])


def test_without_matplotlib_the_error_names_the_extra():
    code = """
import sys
import lazyknife.plots
assert "matplotlib" not in sys.modules
sys.modules["matplotlib"] = None
lazyknife.plots.style()
"""
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "pip install 'lazyknife[plots]'" in finished.stderr


def test_influence_names_the_first_rows_and_marks_the_unusual():
    numbers = np.arange(8)
    found = lk.Influence(numbers, 1.0 * numbers, np.array([-5, 4, *np.zeros(6)]), numbers, numbers)
    ax = found.plot(plt.figure().subplots())
    assert texts(ax) == ["0", "1", "2", "3", "4"]
    unusual = [line for line in ax.get_lines() if line.get_marker() == "x"]
    assert unusual[0].get_xydata().tolist() == [[0, -5], [1, 4]]
    terms = (found.row, found.residual, found.studentized, numbers, numbers)
    named = lk.Influence(*terms, list("abc$efgh"))
    assert texts(named.plot(plt.figure().subplots()))[3] == r"\$"


def test_a_learning_curve_has_its_fits_and_the_wanted_width():
    sizes = np.array([50, 100, 150])
    widths = 1 + 50 / sizes[:, None] + np.array([[0.0, 0.1, -0.1, 0.0]])
    ax = lk.LearningCurve(0.1, sizes, widths, 1.2).plot(plt.figure().subplots())
    assert len(line(ax, "fits").get_xydata()) == 12
    assert set(line(ax, "wanted: 1.2").get_ydata()) == {1.2}
    assert ax.get_xscale() == "log"
    assert ax.get_ylim()[0] == 0
    assert (np.diff(line(ax, "middle curve").get_ydata()) < 0).all()
