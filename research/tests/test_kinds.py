"""Many kinds of tables: parts, means over sets and the figure, against loops over the rows."""

from __future__ import annotations

import statistics

import numpy as np
import pandas as pd
import pytest
from research.study import STUDIES, draw
from research.study.kinds import (
    METHODS,
    NONE,
    README,
    against_lines,
    by_set,
    mean_lines,
    readme_lines,
    set_lines,
)
from research.study.methods import BEFORE, DEFAULT
from research.study.sets import GAUSSIAN, MANY_FEATURES, PARTS, SETS, part_of
from research.study.words import in_words

DATA = ("steps", "piston", "blog_feedback", "robot_arm", "auto")
FACTOR = {method: 1 + 0.1 * k for k, method in enumerate(METHODS)}  # the default is the best


def made() -> pd.DataFrame:
    """Rows of two trials; the Gaussian process has too many features once."""
    rows = [
        {
            **{"data": data, "n": n, "method": method, "trial": trial, "certified": 0.8},
            "transform": "symlog" if data == "blog_feedback" else np.nan,
            "score": (1 + place + 0.2 * trial) * factor,
            "coverage": 0.9 + 0.01 * trial,
            "fit_seconds": 1.0,
            "predict_seconds": 0.5,
        }
        for n in (50, 100)
        for place, data in enumerate(DATA)
        for trial in (0, 1)
        for method, factor in FACTOR.items()
        if method != GAUSSIAN or data != "blog_feedback"
    ]
    return pd.DataFrame(rows)


def places(name: str) -> list[int]:
    return [place for place, data in enumerate(DATA) if part_of(data) == name]


def test_the_sets_are_parted_once_and_for_all() -> None:
    assert set(PARTS) == set(SETS)
    assert sorted(PARTS.values()).count("choosing") == 19
    assert [part_of(data) for data in ("auto", "piston", "meps_2016_panel21")] == [
        "choosing",
        "reporting",
        "choosing",
    ]


def test_the_study_has_every_set_and_enough_test_rows() -> None:
    trials = STUDIES["tables"].expand()
    assert {trial.data for trial in trials} == set(SETS)
    assert {t.data for t in trials if t.setting.n == 2000} == set(SETS) - {
        *("auto", "carseats", "college", "communities", "diabetes", "hitters", "housing")
    }
    assert all(trial.setting.y_in_sd and trial.setting.n_test == 1000 for trial in trials)
    processes = {trial.data for trial in trials if trial.method == GAUSSIAN}
    assert processes == set(SETS) - set(MANY_FEATURES)


def test_means_are_over_sets_that_all_methods_have() -> None:
    heads, lines = mean_lines(made(), "score", ".3g")
    assert heads[1:] == tuple(
        f"n = {n}, {name} (2 sets)" for n in (50, 100) for name in ("choosing", "reporting")
    )
    assert [line[0] for line in lines] == list(METHODS)
    shared = {"choosing": [0, 4], "reporting": places("reporting")}  # not where one is missing
    for line in lines:
        for (name, _, _), text in zip(by_set(made(), "score"), line[1:], strict=True):
            mean = statistics.mean(1.1 + place for place in shared[name])
            assert float(text) == pytest.approx(mean * FACTOR[line[0]], rel=0.005)


def test_the_default_is_held_against_each_method() -> None:
    heads, lines = against_lines(made())
    assert (heads[1], heads[2]) == ("n = 50, choosing", "n = 50, reporting")
    for line in lines:
        few = line[0] == GAUSSIAN
        ratio = f"{1 / FACTOR[line[0]]:.3f} ± 0.000, better in"
        assert line[1:3] == (f"{ratio} 2 of 2" if few else f"{ratio} 3 of 3", f"{ratio} 2 of 2")
    _, alone = against_lines(made().query(f"method != '{DEFAULT}'"))
    assert {*alone[0][1:]} == {NONE}


def test_every_set_has_a_line_with_the_ratio_to_the_best_peer() -> None:
    heads, lines = set_lines(made())
    assert heads == ("set", "n = 50", "n = 100")
    titles = [line[0] for line in lines]
    assert titles[:3] == ["steps (choosing)", "BlogFeedback, symlog (choosing)", "auto (choosing)"]
    assert len(titles) == len(DATA)
    best = 1.1 * min(FACTOR[method] for method in METHODS if method not in (DEFAULT, BEFORE))
    assert lines[0][1:] == (f"1.1 ({1.1 / best:.2f})",) * 2
    _, without = set_lines(made().query(f"method != '{DEFAULT}'"))
    assert without[0][1:] == (NONE, NONE)


def test_the_readme_has_mean_scores_on_the_sets_that_chose_nothing() -> None:
    heads, lines = readme_lines(made())
    assert heads == ("mean interval score, alpha = .1", "n = 50", "n = 100")
    assert [line[0] for line in lines] == list(README.values())
    mean = sum(1.1 + place for place in places("reporting")) / len(places("reporting"))
    for method, line in zip(README, lines, strict=True):
        assert line[1:] == (f"{mean * FACTOR[method]:.2f}",) * 2


def test_the_figure_has_a_panel_for_each_part_and_size() -> None:
    figure = draw(STUDIES["tables"], made())
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        f"{name} sets, n = {n}, 2 sets" for n in (50, 100) for name in ("choosing", "reporting")
    ]
    for ax in figure.axes:
        names = [label.get_text() for label in ax.get_yticklabels()]
        assert names == [in_words(method) for method in METHODS]
        marks = np.asarray(ax.lines[0].get_xdata(), dtype=float)
        np.testing.assert_allclose(marks, list(FACTOR.values()))
