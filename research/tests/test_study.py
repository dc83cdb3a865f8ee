import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from research import datasets
from research.study import (
    COLLECTIONS,
    METHODS,
    STUDIES,
    FailedTrials,
    Grid,
    Setting,
    Study,
    Trial,
    draw,
    named,
    read_rows,
    run_study,
    run_trial,
    summarise,
    vary,
)
from research.study.methods import DEFAULT, EARLIER, PEERS, STRONG, VARIANTS
from research.study.rows import stored_rows
from research.study.trial import COLUMNS, split
from threadpoolctl import threadpool_limits

import lazyknife as lk

SMALL = Setting(n=20, n_test=30, epochs=1)
SIM = ("simulated_p4",)


def small(*methods, trials=2, settings=(SMALL,), **options):
    return Study(
        "small", "A small study", (Grid(SIM, methods, settings),), trials=trials, **options
    )


def test_a_study_expands_to_every_combination_once():
    settings = vary(SMALL, ridge=(1.0, 2.0), n=(20, 25))
    assert [(s.ridge, s.n) for s in settings] == [(1.0, 20), (1.0, 25), (2.0, 20), (2.0, 25)]
    again = Grid(SIM, ("naive",), settings[:1])
    own = Grid(SIM, ("cv+",), settings[:1], trials=1)
    study = Study("s", "", (Grid(SIM, ("naive", "lazy_dp"), settings), again, own), trials=3)
    trials = study.expand()
    assert len(trials) == len(set(trials)) == 2 * 4 * 3 + 1
    assert len(study.expand(trials=1)) == 2 * 4 + 1


def test_the_catalogue_has_the_papers_figures():
    assert COLLECTIONS["paper"] == (
        *("fig2a", "fig2b", "fig3a", "fig3b", "fig4", "fig5a", "fig5b", "fig6a", "fig6b"),
        "table1",
    )
    for name in COLLECTIONS["paper"][:-1]:
        trials = STUDIES[name].expand()
        assert {t.method for t in trials} == {"jackknife+", "lazy_finetune", "lazy_dp"}
        assert {t.number for t in trials} == set(range(15))
        transforms = {t.setting.transform for t in trials}
        assert transforms == ({None} if "simulated" in trials[0].data else {None, "symlog"})
        setting = trials[0].setting
        long, single = name in ("fig4", "fig5a", "fig5b"), name.startswith("fig6")
        assert setting.epochs == (20 if long else 2 if single else 10)
        assert setting.batch_size == (1 if single else 10)
        assert (setting.n, setting.alpha, setting.epsilon, setting.ridge) == (100, 0.1, 0.01, 10.0)
    for study in STUDIES.values():
        for trial in study.expand():
            assert trial.method in METHODS
            METHODS[trial.method](trial.setting)._check_settings()


def test_studies_are_found_by_name_and_collection():
    assert named("fig4") == (STUDIES["fig4"],)
    assert [s.name for s in named("all")] == list(STUDIES)
    with pytest.raises(ValueError, match=r"no study 'fig9': choose from fig2a.*paper"):
        named("fig9")


def test_lazy_dp_and_jackknife_are_the_papers():
    setting = Setting(epochs=7, batch_size=5)
    ours = METHODS["lazy_dp"](setting).get_params()
    paper = lk.DPLazyPI(epochs=7, batch_size=5).get_params()
    assert {name for name in paper if ours[name] != paper[name]} == {"device"}
    finetune = METHODS["lazy_finetune"](setting)
    assert finetune.base == lk.Plain(7, 5)
    trained = METHODS["jackknife+"](setting)
    assert (trained.fit_intercept, trained.network) == (False, lk.mlp((64, 64)))


@pytest.mark.parametrize("method", ["lazyknife", "lazyknife_public"])
def test_the_librarys_methods_have_the_settings_and_the_base_of_their_rows(method):
    defaults = lk.LazyJackknifeRegressor().get_params(deep=False)
    own = METHODS[method](Setting(ridge=7.0)).get_params(deep=False)
    fixed = {"device": "cpu", **EARLIER}
    base = lk.DPSGD() if method == "lazyknife" else None
    assert own == defaults | fixed | {"base": base}
    assert METHODS[DEFAULT](Setting(ridge=7.0)).get_params(deep=False) == defaults


def test_a_trial_is_what_the_estimator_gives():
    trial = Trial("simulated_p4", "lazy_dp", SMALL, 3)
    row = run_trial(trial)
    assert tuple(row) == COLUMNS
    assert row["error"] == ""
    data = datasets.simulated(4, seed=3)
    X, y, X_test, y_test = split(trial)
    assert len(X) == 20
    assert len(X_test) == 30
    both = np.concatenate([X, X_test])
    assert all((x == data.X).all(axis=1).sum() == 1 for x in both)
    assert len(np.unique(both, axis=0)) == 50
    with threadpool_limits(1):  # as trials run
        model = lk.DPLazyPI(epochs=1, random_state=3).fit(X, y)
        intervals = model.predict_interval(X_test)
    assert row["coverage"] == pytest.approx(lk.coverage(y_test, intervals).value)
    # A study's methods predict in float32.
    assert row["width"] == pytest.approx(lk.mean_width(intervals).value, rel=1e-4)
    assert row["score"] == pytest.approx(lk.interval_score(y_test, intervals).value, rel=1e-4)
    assert row["certified"] == pytest.approx(model.certificate_.coverage, rel=1e-12)
    assert row["fit_seconds"] > 0
    assert row["predict_seconds"] > 0
    assert f"torch {torch.__version__.split('+')[0]}" in row["versions"]


def test_methods_of_one_number_share_their_rows_and_numbers_differ():
    first, second = (split(Trial("simulated_p4", m, SMALL, 1)) for m in ("naive", "lazy_dp"))
    other = split(Trial("simulated_p4", "naive", SMALL, 2))
    for a, b, c in zip(first, second, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)
    everything = split(Trial("simulated_p4", "naive", replace(SMALL, n_test=None), 1))
    assert len(everything[2]) == 4980


def test_y_can_be_in_standard_deviations():
    trial = Trial("simulated_p4", "naive", SMALL, 1)
    unit = datasets.simulated(4, seed=1).y.std()
    _, y, _, y_test = split(trial)
    _, scaled, _, scaled_test = split(replace(trial, setting=replace(SMALL, y_in_sd=True)))
    np.testing.assert_allclose(scaled * unit, y)
    np.testing.assert_allclose(scaled_test * unit, y_test)


@pytest.mark.parametrize(
    ("method", "trained", "certified"),
    [
        ("naive", 1, False),
        ("jackknife", 21, False),
        ("jackknife+", 21, True),
        ("cv+", 11, True),
        ("split_conformal", 1, True),
        ("lazy_finetune", 1, False),
        ("lazy_dp", 1, True),
        ("lazy_public", 0, True),
        ("lazy_split", 1, True),
        ("lazyknife", 1, True),
        *((name, 0, True) for name in ("lazyknife_public", *VARIANTS)),
        (DEFAULT, 0, True),
        *((name, 11, True) for name in (*PEERS, *STRONG) if "cv" in name),
        *((name, math.nan, True) for name in PEERS if "split" in name),
        ("mapie_normalised_gradient", math.nan, True),
    ],
)
def test_every_method_runs(method, trained, certified):
    row = run_trial(Trial("simulated_p4", method, SMALL, 0))
    assert row["error"] == ""
    assert row["models_trained"] == pytest.approx(trained, nan_ok=True)
    assert math.isfinite(row["certified"]) == certified
    has_base = method.startswith("lazy") and method != "lazyknife_tables"
    assert math.isfinite(row["base_r2"]) == has_base
    assert 0 <= row["coverage"] <= 1


def test_without_noise_nothing_is_certified_and_no_bound_is_claimed():
    row = run_trial(Trial("simulated_p4", "lazy_dp", replace(SMALL, epsilon=math.inf), 0))
    assert row["error"] == ""
    assert math.isnan(row["certified"])
    assert math.isnan(row["paper_bound"])
    noisy = run_trial(Trial("simulated_p4", "lazy_dp", SMALL, 0))
    assert noisy["paper_bound"] == pytest.approx(
        lk.certify(n=20, alpha=0.1, base=lk.DPSGD(epochs=1), eta=0.0).bounds["paper"]
    )


def test_a_failed_trial_is_a_row_with_its_error(tmp_path):
    study = small("lazy_public", settings=(SMALL, replace(SMALL, n=5000)), trials=1)
    with pytest.raises(FailedTrials, match="n=5000: simulated_p4 has only 5000 rows") as failed:
        run_study(study, tmp_path / "s.csv", jobs=1)
    outcome = failed.value.outcome
    assert outcome.ran == outcome.rows == 2
    assert len(outcome.failures) == 1
    rows = read_rows(tmp_path / "s.csv")
    assert rows["error"].isna().tolist() == [True, False]
    assert rows["coverage"].isna().tolist() == [False, True]
    with pytest.raises(FailedTrials) as again:
        run_study(study, tmp_path / "s.csv", jobs=1)
    assert again.value.outcome.ran == 1  # only the failed one is tried once more
    assert len(read_rows(tmp_path / "s.csv")) == 2


@pytest.mark.slow
def test_rows_are_reproducible_and_side_by_side_is_the_same(tmp_path):
    study = small("lazy_public", "naive")
    alone = run_study(study, tmp_path / "a.csv", jobs=1)
    pair = run_study(study, tmp_path / "b.csv", jobs=2)
    drop = ["fit_seconds", "predict_seconds"]
    first, second = (read_rows(outcome.path).drop(columns=drop) for outcome in (alone, pair))
    pd.testing.assert_frame_equal(first, second, rtol=1e-6)
    assert first["method"].tolist() == ["lazy_public", "naive"] * 2


def test_a_run_goes_on_where_it_was_stopped(tmp_path):
    path = tmp_path / "s.csv"
    study = small("lazy_public", trials=4)
    run_study(study, path, jobs=1, trials=3)
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][: len(lines[3]) // 2])  # killed while writing
    assert len(stored_rows(path)) == 2
    outcome = run_study(study, path, jobs=1)
    assert (outcome.ran, outcome.rows) == (2, 4)
    assert path.read_text().startswith("".join(lines[:3]))
    assert [row["trial"] for row in stored_rows(path)] == ["0", "1", "2", "3"]
    before = path.read_text()
    assert run_study(study, path, jobs=1).ran == 0
    assert path.read_text() == before


def test_rows_of_another_grid_are_kept(tmp_path):
    path = tmp_path / "s.csv"
    run_study(small("naive", trials=1), path, jobs=1)
    kept = path.read_text().splitlines()[1]
    run_study(small("lazy_public", trials=1), path, jobs=1)
    assert kept in path.read_text().splitlines()
    assert len(stored_rows(path)) == 2


def test_a_row_tells_what_the_method_really_ran_with(tmp_path):
    run_study(small("lazyknife", "lazy_public", trials=1), tmp_path / "s.csv", jobs=1)
    own, other = stored_rows(tmp_path / "s.csv")
    assert (own["ridge"], own["readout"], own["intercept"]) == ("auto", "tangent", "True")
    assert (other["ridge"], other["readout"], other["intercept"]) == ("10.0", "network", "False")
    model = METHODS["lazyknife"](SMALL)
    assert (model.ridge, model.readout, model.fit_intercept) == ("auto", "tangent", True)
    assert METHODS["lazyknife_public"](SMALL).ridge == "auto"


def test_means_and_standard_errors_are_over_trials(tmp_path):
    outcome = run_study(small("lazy_public", "naive", trials=3), tmp_path / "s.csv", jobs=1)
    rows = read_rows(outcome.path)
    summary = summarise(rows)
    assert summary["method"].tolist() == ["lazy_public", "naive"]
    own = rows[rows["method"] == "naive"]
    line = summary.iloc[1]
    assert line["trials"] == 3
    assert line["width"] == pytest.approx(own["width"].mean())
    assert line["width_se"] == pytest.approx(own["width"].std(ddof=1) / math.sqrt(3))
    seconds = own["fit_seconds"] + own["predict_seconds"]
    assert line["seconds"] == pytest.approx(seconds.mean())
    assert math.isnan(line["certified"])


def test_a_comparison_shows_a_line_of_three_panels_for_each_set(tmp_path):
    settings = vary(SMALL, n=(20, 30))
    study = small("lazy_public", "naive", settings=settings)
    run_study(study, tmp_path / "s.csv", jobs=1)
    figure = draw(study, read_rows(tmp_path / "s.csv"))
    assert len(figure.axes) == 6
    labels = [ax.get_xlabel() for ax in figure.axes]
    assert labels == ["coverage", "time (s)", "width"] * 2
    assert figure.axes[0].get_title(loc="left") == "simulation, p = 4"
    assert figure.axes[1].get_xscale() == "log"
    dotted = [line for line in figure.axes[0].lines if line.get_linestyle() in (":", "dotted")]
    assert any(np.allclose(line.get_xdata(), 0.8) for line in dotted)
