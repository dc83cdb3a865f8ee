"""Tables and figures of many methods side by side, against made-up rows whose truth is known."""

from __future__ import annotations

import math
import re
import statistics

import numpy as np
import pandas as pd
import pytest
from research.pages import RESULTS
from research.study import METHODS as KNOWN
from research.study import STUDIES, Study, draw
from research.study.methods import DEFAULT, NATIVE, STRONG
from research.study.sets import GAUSSIAN, MANY_FEATURES, PARTS, SETS, part_of
from research.study.show import in_words
from research.study.tables import (
    CELL,
    NONE,
    ONE_NETWORK,
    README,
    against_lines,
    behind_sentence,
    level_lines,
    paired,
    readme_lines,
    set_lines,
)

# Choices: mean score and mean coverage of each method.
KINDS = {
    ONE_NETWORK: (3.0, 0.90),
    "lazyknife_narrow": (1.0, 0.80),  # the least score, but it covers too little
    "lazyknife_best": (2.0, 0.885),
    "cheat": (0.5, 0.50),
    "cv+": (4.0, 0.90),
    "worst": (9.0, 0.99),
}
CELLS = {
    "simulation, p = 16, n = 100": ("simulated_p16", np.nan, 100),
    "Communities and Crime, symlog, n = 100": ("communities", "symlog", 100),
}


def choices(trials: int = 4) -> pd.DataFrame:
    """Rows of a study of choices."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            **dict(zip(CELL, cell, strict=True)),
            "method": method,
            "trial": trial,
            "score": score * (1 + place) + 0.1 * rng.normal(),
            "coverage": coverage + 0.002 * (trial - (trials - 1) / 2),
        }
        for trial in range(trials)
        for place, cell in enumerate(CELLS.values())
        for method, (score, coverage) in KINDS.items()
    )


def ratios(rows: pd.DataFrame, data: str, method: str, other: str) -> list[float]:
    """Of two methods' scores, trial by trial."""
    scores = rows[rows["data"] == data].set_index(["method", "trial"])["score"]
    return [scores[method, trial] / scores[other, trial] for trial in range(4)]


def test_scores_are_compared_trial_by_trial():
    rows = choices()
    part = rows[rows["data"] == "communities"].sample(frac=1, random_state=3)
    found = ratios(rows, "communities", "cv+", "worst")
    error = statistics.stdev(found) / math.sqrt(4)
    assert paired(part, "cv+", "worst") == pytest.approx((statistics.mean(found), error))


def test_the_figure_of_choices_has_a_panel_for_each_cell():
    rows = choices()
    figure = draw(Study("choices", "Who is better?", (), figure="scores"), rows)
    assert [ax.get_title(loc="left") for ax in figure.axes] == [*CELLS]
    assert figure.get_suptitle() == "Who is better?"
    for ax, (data, *_) in zip(figure.axes, CELLS.values(), strict=True):
        others = [method for method in KINDS if method != ONE_NETWORK]
        assert [label.get_text() for label in ax.get_yticklabels()] == [*map(in_words, others)]
        drawn = np.asarray(ax.lines[0].get_xdata(), dtype=float)
        means = [statistics.mean(ratios(rows, data, method, ONE_NETWORK)) for method in others]
        np.testing.assert_allclose(drawn, [m for m in means if m <= ax.get_xlim()[1]])


def test_the_committed_choices_certify() -> None:
    committed = pd.read_csv(RESULTS / "choices.csv")
    assert {trial.method for trial in STUDIES["choices"].expand()} == set(committed["method"])
    ours = committed[committed["method"].str.startswith("lazyknife")]
    assert ours["certified"].notna().all()


# Many kinds of tables

DATA = ("steps", "piston", "blog_feedback", "robot_arm", "auto")
MEASURED = (DEFAULT, *STRONG)
FACTOR = {method: 1 + 0.1 * k for k, method in enumerate(MEASURED)}  # the default is the best


def tables() -> pd.DataFrame:
    """Rows of two trials; the Gaussian process has too many features once."""
    return pd.DataFrame(
        {
            **{"data": data, "n": n, "method": method, "trial": trial},
            "transform": "symlog" if data == "blog_feedback" else np.nan,
            "score": (1 + place + 0.2 * trial) * factor,
        }
        for n in (50, 100)
        for place, data in enumerate(DATA)
        for trial in (0, 1)
        for method, factor in FACTOR.items()
        if method != GAUSSIAN or data != "blog_feedback"
    )


def test_the_study_has_every_set_in_one_part_and_enough_test_rows():
    assert set(PARTS) == set(SETS)
    assert sorted(PARTS.values()).count("choosing") == 19
    assert part_of("meps_2016_panel21") == "choosing"
    trials = STUDIES["tables"].expand()
    assert {trial.data for trial in trials} == set(SETS)
    assert {t.data for t in trials if t.setting.n == 2000} == set(SETS) - {
        *("auto", "carseats", "college", "communities", "diabetes", "hitters", "housing")
    }
    assert all(trial.setting.y_in_sd and trial.setting.n_test == 1000 for trial in trials)
    processes = {trial.data for trial in trials if trial.method == GAUSSIAN}
    assert processes == set(SETS) - set(MANY_FEATURES)


def test_the_default_is_held_against_each_method():
    heads, lines = against_lines(tables())
    assert heads == ("method", "n = 50", "n = 100")
    for line in lines:
        assert line[1:] == (f"{1 / FACTOR[line[0]]:.2f} ± 0.00, 2/2",) * 2
    _, alone = against_lines(tables().query(f"method != '{DEFAULT}'"))
    assert {*alone[0][1:]} == {NONE}


def test_every_reporting_set_has_a_line_with_the_ratio_to_the_best_peer():
    heads, lines = set_lines(tables())
    assert heads == ("set", "n = 50", "n = 100")
    assert [line[0] for line in lines] == ["piston", "robot arm"]
    best = 2.1 * min(FACTOR[method] for method in STRONG)
    assert lines[0][1:] == (f"2.1 ({2.1 / best:.2f})",) * 2


def test_the_sets_on_which_a_peer_is_ahead_are_named():
    rows = tables()
    assert behind_sentence(rows).startswith("In 10 of 10 cells")
    rows.loc[(rows["method"] == DEFAULT) & (rows["data"] == "steps"), "score"] *= 2
    assert "steps (1.82 at 50, 1.82 at 100)." in behind_sentence(rows)


def test_frames_are_held_against_boosting_at_every_level():
    boosting = min(NATIVE)
    rows = pd.DataFrame(
        {
            **{"data": "star", "transform": np.nan, "n": 100, "method": method, "trial": 0},
            **{"alpha": alpha, "score": score / alpha, "coverage": 1 - alpha},
        }
        for alpha in (0.05, 0.1)
        for method, score in {DEFAULT: 1.0, boosting: 2.0}.items()
    )
    heads, lines = level_lines(rows)
    assert heads == ("aim", "method", "n = 100")
    assert [line[0] for line in lines] == ["90%", "90%", "95%", "95%"]
    assert lines[0][1] == boosting
    assert lines[0][2].startswith("0.50")
    assert [line[2] for line in lines[1::2]] == ["0.900", "0.950"]


def test_the_readme_has_mean_scores_on_the_sets_that_chose_nothing():
    heads, lines = readme_lines(tables())
    assert heads == ("mean interval score, alpha = .1", "n = 50", "n = 100")
    for (method, words), line in zip(README.items(), lines, strict=True):
        assert line == (words, *(f"{3.1 * FACTOR[method]:.2f}",) * 2)


def test_the_figure_of_tables_has_a_panel_for_each_part_and_size():
    figure = draw(STUDIES["tables"], tables())
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        f"{name} sets, n = {n}, 2 sets" for n in (50, 100) for name in ("choosing", "reporting")
    ]
    for ax in figure.axes:
        assert [label.get_text() for label in ax.get_yticklabels()] == [*map(in_words, MEASURED)]
        marks = np.asarray(ax.lines[0].get_xdata(), dtype=float)
        np.testing.assert_allclose(marks, list(FACTOR.values()))


def test_figures_name_methods_in_words():
    names = [in_words(method) for method in KNOWN]
    assert len(set(names)) == len(names)
    assert not [name for name in names if re.search("_", name)]
