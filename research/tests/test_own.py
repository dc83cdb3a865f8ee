"""Studies of a caller: own data, methods and constructions; rows that are held and checked."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from research.__main__ import app
from research.study import (
    DamagedRows,
    FailedTrials,
    Grid,
    Setting,
    Study,
    Trial,
    draw,
    read_rows,
    run_study,
    run_trial,
    run_trials,
    summarise,
    vary,
)
from research.study.libraries import LIBRARIES, cross_quantile
from research.study.own import as_intervals, make_data
from research.study.rows import line, locked, stored_rows
from research.study.run import together
from research.study.show import in_words, labels
from research.study.trial import SPLITS
from typer.testing import CliRunner

import lazyknife as lk
from lazyknife.intervals import CONSTRUCTIONS
from lazyknife.intervals.constructions import plus

SMALL = Setting(n=20, n_test=30)


def wider(loo, X, ranks):
    """Jackknife+ a tenth wider on both sides."""
    point, lower, upper = plus(loo, X, ranks)
    return point, 1.1 * lower - 0.1 * point[:, None], 1.1 * upper - 0.1 * point[:, None]


WIDE = replace(CONSTRUCTIONS["plus"], ends=wider)


def sine(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (60, 1))
    return X, np.sin(2 * X[:, 0]) + rng.normal(0, 0.1, 60)


def quantiles(X, y, X_new, alpha, seed):
    ends = np.quantile(y, [alpha / 2, 1 - alpha / 2])
    return np.tile(ends, (len(X_new), 1))


def fails(X, y, X_new, alpha, seed):
    raise RuntimeError("no luck")


def study(*methods, trials=2, settings=(SMALL,)):
    return Study("own", "A study of my own", (Grid(("sine",), methods, settings),), trials=trials)


DATA = {"sine": sine}
OWN = {
    "quantiles": quantiles,
    "lazy": lk.LazyJackknifeRegressor(lk.mlp((8,)), ridge=1.0),
    "wide": lk.LazyJackknifeRegressor(lk.mlp((8,)), ridge=1.0, construction=WIDE),
}


def test_data_methods_and_constructions_of_a_caller_run(tmp_path):
    path = tmp_path / "own.csv"
    run_study(study(*OWN), path, data=DATA, methods=OWN, jobs=1)
    rows = read_rows(path)
    assert rows["method"].tolist() == [*OWN] * 2
    own = rows[rows["trial"] == 1].set_index("method")
    assert own["certified"].isna().tolist() == [True, False, True]
    assert own["width"]["wide"] == pytest.approx(1.1 * own["width"]["lazy"], rel=1e-6)
    assert own["width"].nunique() == 3
    assert labels(summarise(rows), summarise(rows), in_words) == [*OWN]
    assert draw(study(*OWN), rows).axes[0].get_title(loc="left") == "sine"
    assert run_study(study(*OWN), path, data=DATA, methods=OWN, jobs=1).ran == 0


MODULE = """
from dataclasses import dataclass
import numpy as np
from research.study import Grid, Setting, Study

@dataclass(frozen=True)
class Radius:
    value: float

def load(seed):
    X = np.random.default_rng(seed).normal(size=(60, 2))
    return X, X[:, 0]

def constant(X, y, X_new, alpha, seed):
    middle, radius = np.full(len(X_new), y.mean()), Radius(3.0)
    return middle - radius.value, middle + radius.value

study = Study("mine", "Mine", (Grid(("line",), ("constant",), (Setting(n=20),)),), trials=2)
data, methods = {"line": load}, {"constant": constant}
"""


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_command_runs_a_file_of_a_caller(tmp_path, monkeypatch, jobs):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_study.py").write_text("from __future__ import annotations\n" + MODULE)
    arguments = ["study", "--module", "my_study.py", "--jobs", str(jobs), "-o", "here"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "2 of 2 trials run now; here/mine.csv, here/mine.svg" in result.stdout
    assert read_rows(tmp_path / "here/mine.csv")["width"].tolist() == pytest.approx([6.0] * 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such Python file"),
        ("x = 1", r"the file must define study = Study"),
        (MODULE + "methods = [1]", r"the dicts data = \{...\} and methods = \{...\}"),
    ],
)
def test_a_file_without_a_study_is_refused(tmp_path, content, message):
    path = tmp_path / "my_study.py"
    if content is not None:
        path.write_text(content)
    result = CliRunner().invoke(app, ["study", "--module", str(path)])
    assert result.exit_code == 2
    assert re.search(message, result.stderr)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": {"lazy_dp": quantiles}}, "'lazy_dp' is a name of the package itself"),
        ({"data": {"diabetes": sine}}, "'diabetes' is a name of the package itself"),
        ({"data": DATA}, "no method 'quantiles': pass it in methods="),
        ({"methods": OWN}, "no data set 'sine': pass it in data="),
    ],
)
def test_names_are_known_and_mean_one_thing(tmp_path, given, message):
    with pytest.raises(ValueError, match=message):
        run_study(study("quantiles"), tmp_path / "own.csv", jobs=1, **given)


def test_what_is_no_method_is_refused(tmp_path):
    with pytest.raises(TypeError, match="give a function fit_predict"):
        run_study(study("x"), tmp_path / "own.csv", data=DATA, methods={"x": 3}, jobs=1)


@pytest.mark.parametrize("given", [3, (np.ones(4), np.ones(4)), (np.ones((4, 1)), ["a"] * 4)])
def test_data_without_rows_are_refused(given):
    with pytest.raises(ValueError, match=r"data 'mine'.*shape"):
        make_data("mine", given, 0)


def test_failed_trials_are_raised_after_all_have_run(tmp_path):
    path = tmp_path / "own.csv"
    methods = {"quantiles": quantiles, "fails": fails}
    with pytest.raises(FailedTrials) as failed:
        run_study(study(*methods), path, data=DATA, methods=methods, jobs=1)
    assert "2 of 4 trials failed" in str(failed.value)
    assert "fails on sine: RuntimeError: no luck (2 times)" in str(failed.value)
    assert read_rows(path)["error"].isna().tolist() == [True, False] * 2
    assert failed.value.outcome.rows == 4


def test_the_forms_of_intervals():
    lower, upper = np.zeros(3), np.full(3, 4.0)
    forms = (
        lk.Intervals(lower + 2, lower, upper, 0.1),
        (lower, upper),
        (lower + 2, lower, upper),
        np.column_stack([lower, upper]),
    )
    for form in forms:
        found = as_intervals(form, 3, 0.1)
        assert found.point.tolist() == [2.0] * 3
        assert found.upper.tolist() == [4.0] * 3
    with pytest.raises(ValueError, match="for 5 rows: give Intervals"):
        as_intervals((lower, upper), 5, 0.1)
    with pytest.raises(ValueError, match="intervals with NaN"):
        as_intervals((lower, upper * math.nan), 3, 0.1)


def test_levels_of_one_fit_are_those_of_several():
    settings = vary(SMALL, alpha=(0.1, 0.3))
    trials = [Trial("simulated_p4", "lazy_public", setting, 0) for setting in settings]
    assert together(trials) == [tuple(trials)]
    both, alone = run_trials(trials), [run_trial(trial) for trial in trials]
    for one, other in zip(both, alone, strict=True):
        assert one["error"] == ""
        assert one["width"] == pytest.approx(other["width"], rel=1e-9)
        assert [one[k] for k in ("alpha", "coverage", "certified")] == [
            other[k] for k in ("alpha", "coverage", "certified")
        ]


def test_splits_are_those_of_the_papers():
    kept = [SPLITS["ten_fold"](506, SMALL, number)[1] for number in range(10)]
    assert sorted(np.concatenate(kept)) == [*range(506)]
    train, test = SPLITS["jaws"](50, SMALL, 3)
    np.random.seed(3)
    assert train.tolist() == np.random.choice(50, 20, replace=False).tolist()
    assert sorted([*train, *test]) == [*range(50)]


# Rows


def some_rows(path, count=2):
    run_study(study("quantiles"), path, data=DATA, methods=OWN, jobs=1, trials=count)
    return path.read_text().splitlines(keepends=True)


def test_two_runs_do_not_share_a_file(tmp_path):
    path = tmp_path / "own.csv"
    with locked(path), pytest.raises(BlockingIOError, match="another run is writing these rows"):
        some_rows(path)
    assert len(some_rows(path)) == 3  # free again


DAMAGES = {
    "too few cells": lambda head, row: head + row[:40] + "\n",
    "too many cells": lambda head, row: head + row.strip() + ",1\n",
    "a word for a number": lambda head, row: head + cell(row, "many"),
    "neither measures nor an error": lambda head, row: head + cell(row, ""),
    "an open quote": lambda head, row: head + '"' + row,
    "other columns": lambda head, row: row,
}


def cell(row, value):
    cells = row.split(",")
    return ",".join([*cells[:14], value, *cells[15:]])


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_rows_are_refused_with_the_line(tmp_path, damage):
    path = tmp_path / "own.csv"
    head, row, *_ = some_rows(path, 1)
    path.write_text(DAMAGES[damage](head, row))
    with pytest.raises(DamagedRows, match=r"line 2 is no row|not a table of rows|other columns"):
        read_rows(path)
    path.write_bytes(head.encode() + b"\xff\xfe\n")
    with pytest.raises(DamagedRows, match="not a table of rows"):
        stored_rows(path)


def test_a_row_reads_as_it_was_written(tmp_path):
    path = tmp_path / "own.csv"
    assert some_rows(path)[1:] == [line(row) for row in stored_rows(path)]
    with pytest.raises(FileNotFoundError, match="no rows yet: run the study first"):
        read_rows(tmp_path / "none.csv")


# Peers


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LIBRARIES if name != "laplace_network"])
def test_every_library_covers_a_simple_set(name):
    row = run_trial(Trial("simulated_p4", name, Setting(n=60, n_test=200), 0))
    if "pip install" in row["error"]:
        pytest.skip(row["error"])
    assert row["error"] == ""
    assert 0.7 < row["coverage"] < 1


def test_cross_conformal_quantiles_are_infinite_for_too_few_rows():
    X, y = sine(0)
    _, lower, upper = cross_quantile(X[:12], y[:12], X[:2], 0.01, 0)
    assert np.isinf(lower).all()
    assert np.isinf(upper).all()
