"""Comparisons of methods: the folds, what is measured on them, and the methods themselves."""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.linear_model import Ridge

import lazyknife as lk
from lazyknife.compare import (
    ABOUT,
    DEFAULT,
    METHODS,
    PEERS,
    PRIVATE,
    differs,
    falls_short,
    make_folds,
    messages,
    named_method,
    recommend,
    summarise_folds,
    usual_methods,
)
from lazyknife.networks import CANDIDATES
from rows import linear

X, Y = linear(45)
TIMES = ["fit_seconds", "predict_seconds"]


def compare(*methods, **options):
    settings = {"folds": 3, "jobs": 1, "epochs": 1} | options
    return lk.compare_methods(X, Y, methods, **settings)


@pytest.mark.parametrize(("n", "folds"), [(45, 3), (47, 5), (10, 10), (2, 2)])
def test_folds_cut_the_rows_into_parts_chosen_by_the_seed(n, folds):
    found, again, other = (make_folds(n, folds, 1000, 1000, seed) for seed in (1, 1, 6))
    assert sorted(np.concatenate([test for _, test in found])) == list(range(n))
    for pair, same in zip(found, again, strict=True):
        assert sorted(np.concatenate(pair)) == list(range(n))
        assert len(pair[1]) in (n // folds, -(-n // folds))
        np.testing.assert_array_equal(np.concatenate(pair), np.concatenate(same))
    assert n == 2 or any(set(a[1]) != set(b[1]) for a, b in zip(found, other, strict=True))


def test_limits_draw_rows_of_each_part_at_random():
    whole = make_folds(60, 3, 1000, 1000, seed=0)
    found = make_folds(60, 3, train_rows=15, test_rows=7, seed=0)
    for fold, ((train, test), (all_train, all_test)) in enumerate(zip(found, whole, strict=True)):
        assert (len(set(train)), len(set(test))) == (15, 7)
        assert set(train) <= set(all_train)
        assert set(test) <= set(all_test)
        # The training rows come from all other folds, not from the first of them.
        assert all(set(part) & set(train) for k, (_, part) in enumerate(whole) if k != fold)
    rows = compare("lazyknife", train_rows=12, test_rows=4)
    assert rows[["n", "n_test"]].to_numpy().tolist() == [[12, 4]] * 3


WRONG = [
    ("methods", ["naive", "x"], ValueError, "method='x': choose from 'naive'"),
    ("methods", {"a": lk.LazyJackknifeRegressor(construction="x")}, ValueError, "construction='x'"),
    ("methods", {"a": Ridge()}, TypeError, r"methods\['a'\] is of type Ridge.*docs/studies"),
    ("y", Y[:40], ValueError, "inconsistent numbers of samples"),
    ("alpha", 2.0, ValueError, r"alpha=2\.0: give a number strictly between"),
    ("folds", 1, ValueError, "folds=1: give between 2 and the number of rows, 45"),
    *(
        (name, value, error, rf"^{name}={re.escape(repr(value))}[: ]")
        for name, error, values in (
            ("random_state", ValueError, (-5, "now", 1.5)),
            ("jobs", ValueError, (0, -7)),
            ("jobs", TypeError, (1.5, "2")),
            ("methods", TypeError, (b"naive", "naive", 3)),
            ("methods", ValueError, ([], {})),
            ("folds", TypeError, ("3", 2.5)),
            *((n, ValueError, (0,)) for n in ("train_rows", "test_rows", "epochs", "batch_size")),
            ("verbose", TypeError, ("no",)),
            ("scheduler", ValueError, (3,)),
        )
        for value in values
    ),
]


@pytest.mark.parametrize(("name", "value", "error", "words"), WRONG)
def test_settings_are_checked_before_anything_is_fitted(name, value, error, words):
    settings = {"methods": ["lazyknife"], "jobs": 1, "epochs": 1, "y": Y, name: value}
    with pytest.raises(error, match=words):
        lk.compare_methods(X, **settings)


@pytest.mark.parametrize("seed", [None, np.random.default_rng(0), np.random.RandomState(0)])
def test_seeds_that_are_no_numbers_draw_one(seed):
    first, second = (compare("naive", random_state=seed) for _ in range(2))
    assert not first["error"].any()
    assert (first["width"] != second["width"]).any()


def test_rows_are_what_the_estimators_give():
    found = compare("split_conformal", "lazyknife", random_state=5)
    assert found["method"].tolist() == ["split_conformal"] * 3 + ["lazyknife"] * 3
    assert found["fold"].tolist() == [0, 1, 2] * 2
    assert (found[["warning", "error"]] == "").all(axis=None)
    folds, scaled = make_folds(45, 3, 500, 5000, seed=5), (Y - Y.mean()) / Y.std()
    for row in found.to_dict("records"):  # so all methods have the same folds
        train, test = folds[row["fold"]]
        model = named_method(row["method"], {"epochs": 1, "scaling": "standardize"})
        model.set_params(random_state=5 + row["fold"]).fit(X[train], scaled[train], X_pool=X[test])
        intervals = model.predict_interval(X[test])
        assert (row["n"], row["n_test"], row["certified"]) == (30, 15, model.certificate_.coverage)
        assert row["coverage"] == pytest.approx(lk.coverage(scaled[test], intervals).value)
        width, score = lk.mean_width(intervals), lk.interval_score(scaled[test], intervals)
        assert row["width"] == pytest.approx(Y.std() * width.value, rel=1e-6)
        assert row["score"] == pytest.approx(Y.std() * score.value, rel=1e-6)


@pytest.mark.parametrize("container", [list, pd.DataFrame])
def test_estimators_of_ones_own_are_compared_with_their_own_settings(container):
    wide = lk.LazyJackknifeRegressor(alpha=0.4, scaling="symlog")
    models = {"mine": wide, "lazyknife": lk.LazyJackknifeRegressor()}
    found = lk.compare_methods(container(X), Y, models, folds=3, jobs=1)
    assert (found["error"] == "").all()
    assert found["method"].tolist() == ["mine"] * 3 + ["lazyknife"] * 3
    assert found["certified"][0] < found["certified"][3]
    train, test = make_folds(45, 3, 500, 5000, seed=0)[1]
    expected = wide.set_params(random_state=1).fit(X[train], Y[train]).predict_interval(X[test])
    assert found["width"][1] == pytest.approx(lk.mean_width(expected).value, rel=1e-9)


def test_the_scaling_is_pooled_so_that_the_certificate_holds():
    pooled = compare("lazyknife", "naive")
    expected = lk.certify(n=30, alpha=0.1, base=lk.Public()).coverage
    assert pooled["certified"].tolist()[:3] == [expected] * 3
    assert pooled["certified"][3:].isna().all()
    raw = lk.compare_methods(1000 * X, Y, ["lazyknife"], folds=3, jobs=1)
    np.testing.assert_allclose(raw["width"], pooled["width"][:3], rtol=1e-6)
    fixed = compare("lazyknife", scaling=None)
    assert not np.allclose(fixed["width"], pooled["width"][:3], rtol=1e-3)
    assert fixed["certified"].tolist() == [expected] * 3


class Sometimes(lk.LazyJackknifeRegressor):
    """Fails on one fold."""

    def _fit(self, given):
        if self.random_state == 1:
            raise RuntimeError("two\n  lines")
        return super()._fit(given)


def test_warnings_and_errors_are_recorded_fold_by_fold_and_not_shown():
    found = compare("lazyknife", "split_conformal", alpha=0.01)
    assert found["warning"].str.contains("rows are too few for alpha=0.01").all()
    assert found["warning"].str.count("are too few").eq(1).all()
    summary = summarise_folds(found)
    assert np.isinf(summary["width"]).all()
    assert summary["width_se"].isna().all()
    models = {"a": Sometimes(), "b": lk.LazyJackknifeRegressor()}
    found = lk.compare_methods(X, Y, models, folds=3, jobs=1)
    assert found["error"].tolist() == ["", "RuntimeError: two lines", "", "", "", ""]
    assert found["coverage"].isna().tolist() == [False, True, False, False, False, False]
    assert found["n"].tolist() == [30] * 6
    assert summarise_folds(found)["width"].notna().all()  # of the folds that are left
    for wrong in (np.nan, np.inf, "text"):  # targets that no method takes are its errors
        y = np.array([*Y[:-1], wrong])
        found = lk.compare_methods(X, y, ["naive"], folds=3, jobs=1, epochs=1)
        assert found["error"].str.match("ValueError: .*(NaN|infinity|text|number)").all()


def test_means_and_standard_errors_are_over_folds():
    nan = math.nan
    columns = {
        "coverage": [0.8, 0.9, 1.0, 0.5, nan, 0.7],
        "width": [1.0, 2.0, 6.0, 1.0, nan, 3.0],
        "score": [2.0, 2.0, 2.0, 1.0, nan, 1.0],
        "fit_seconds": [1.0, 2.0, 3.0, 1.0, nan, 1.0],
        "predict_seconds": [0.5, 0.5, 0.5, 0.0, nan, 1.0],
        "certified": [0.7, 0.7, 0.7, nan, nan, nan],
    }
    rows = pd.DataFrame({"method": [*"bbbaaa"], "fold": [0, 1, 2] * 2, **columns})
    found = summarise_folds(rows).set_index("method")
    assert found.index.tolist() == ["b", "a"]
    names = ["width", "width_se", "coverage_se", "score_se", "seconds", "certified"]
    b = [3.0, math.sqrt(7 / 3), 0.1 / math.sqrt(3), 0.0, 2.5, 0.7]
    np.testing.assert_allclose(found[names], [b, [2.0, 1.0, 0.1, 0.0, 1.5, nan]], atol=1e-12)


def test_processes_change_nothing_and_a_network_that_is_given_is_used():
    alone, pair = (compare("lazyknife", folds=2, jobs=jobs) for jobs in (1, 10**9))
    pd.testing.assert_frame_equal(alone.drop(columns=TIMES), pair.drop(columns=TIMES), rtol=1e-6)
    settings = (lk.mlp((1,)), CANDIDATES, None)
    narrow, same, default = (compare("lazyknife", network=one)["width"] for one in settings)
    np.testing.assert_array_equal(same, default)
    assert not np.allclose(narrow, default, rtol=1e-3)


def test_methods_by_name_do_not_depend_on_the_unit_of_y():
    """A network trained on targets of order 1e6 gives intervals that are of no use."""
    names = ("split_conformal", "lazy_finetune", "lazyknife")
    one, large = (
        lk.compare_methods(X, y, names, folds=3, jobs=1, epochs=2) for y in (Y, 1e6 * Y + 3e7)
    )
    np.testing.assert_allclose(large["coverage"], one["coverage"])
    np.testing.assert_allclose(large["width"], 1e6 * one["width"], rtol=1e-5)
    np.testing.assert_allclose(large["score"], 1e6 * one["score"], rtol=1e-5)
    constant = lk.compare_methods(X, 0 * Y + 3, ["naive"], folds=3, jobs=1, epochs=1)
    assert np.isfinite(constant["width"]).all()


# The methods


def test_alike_messages_are_said_once_with_their_methods_and_nothing_imports_research():
    warning = ["30 rows are too few", "29 rows are too few", "15 rows are too few", *3 * [""]]
    error = [*4 * [""], "ValueError: x", ""]
    rows = pd.DataFrame({"method": [*"aabbcc"], "warning": warning, "error": error})
    assert messages(rows, "warning") == ["a and b, 3 of 4 folds: 30 rows are too few"]
    assert messages(rows, "error") == ["c, 1 of 2 folds: ValueError: x"]
    for path in Path(lk.__file__).parent.rglob("*.py"):
        assert not re.search(r"^\s*(from|import) research", path.read_text("utf-8"), re.MULTILINE)


GIVEN = {"alpha": 0.2, "network": lk.mlp((8,)), "epochs": 7, "batch_size": 5}


@pytest.mark.parametrize("name", [name for name in METHODS if name not in PEERS])
def test_methods_use_the_settings_and_differ_in_what_their_name_says(name):
    own = named_method(name, GIVEN).get_params(deep=False)
    assert (own["alpha"], own["network"]) == (0.2, lk.mlp((8,)))
    if not name.startswith("lazy"):
        assert (own["epochs"], own["batch_size"]) == (7, 5)
        return
    bases = {"lazy_finetune": lk.Plain(7, 5), "lazy_dp": lk.DPSGD(epochs=7, batch_size=5)}
    assert own["base"] == bases.get(name)
    expected = {"device": "cpu"}
    if name in bases:
        expected |= {"ridge": 10.0, "readout": "network", "widths": "constant"}
    defaults = lk.LazyJackknifeRegressor().get_params(deep=False)
    changed = {key for key in own if own[key] != defaults[key]} - {"alpha", "network", "base"}
    assert {key: own[key] for key in changed} == expected
    assert METHODS[name].alpha == 0.1  # the dict's own stays as it is


def test_every_method_is_explained_in_a_line_and_private_ones_and_peers_are_extra(monkeypatch):
    assert list(ABOUT) == list(METHODS)
    assert all(len(line) <= 90 and line.endswith(".") for line in ABOUT.values())
    for known, usual in ((None, tuple(DEFAULT)), (object(), (*DEFAULT, *PEERS))):
        monkeypatch.setattr("lazyknife.compare.find_spec", lambda name, known=known: known)
        assert usual_methods() == usual
    assert not any(isinstance(getattr(DEFAULT[name], "base", None), lk.DPSGD) for name in DEFAULT)
    assert list(PRIVATE) == ["lazy_dp"]


# Recommendations: which method, which others are as good, which fall short.


def scores_of(**methods):
    """Rows of a comparison: scores of five folds, coverage and certified coverage of methods."""
    sizes = {"n": 200, "n_test": 100}
    return pd.DataFrame(
        {"method": name, "fold": fold, "score": score, "coverage": cov, "certified": level, **sizes}
        for name, (scores, cov, level) in methods.items()
        for fold, score in enumerate(scores)
    )


NOISE = np.array([0.0, 0.3, -0.3, 0.2, -0.2])
BEST = (10 + NOISE, 0.9, 0.8)
# Scores, coverage and certified coverage; who is recommended, the same, unclear and short; words.
RECOMMENDED = [
    (
        {
            "narrow": (5 + NOISE, 0.75, np.nan),
            "best": BEST,
            "close": (10.1 - NOISE, 0.91, 0.8),
            "worse": (20 + 2 * NOISE, 0.95, 0.9),
            "broken": (NOISE * np.nan, np.nan, np.nan),
        },
        ("best", ("close",), (), ("narrow",)),
        "Use best; close did about as well.",
        "not significantly below 90 %.*"
        r"best guarantees a coverage of at least 0\.800\..*Too little coverage: narrow\.$",
    ),
    (
        {"a": (10 + NOISE, 0.9, np.nan), "b": (12 + NOISE, 0.9, 0.8)},
        ("a", (), (), ()),
        "Use a: it did better than all others by more than noise.",
        r"a has no coverage guarantee\.",
    ),
    (  # a much larger score is not called as good, however noisy
        {"a": BEST, "b": (30 + 100 * NOISE, 0.9, 0.8)},
        ("a", (), ("b",), ()),
        "Use a, which has the smallest interval score.",
        r"More folds would tell whether b can do as well\.",
    ),
    (
        {"a": (NOISE + 1, 0.5, 0.8), "b": (NOISE + np.inf, 1.0, 0.8)},
        (None, (), (), ("a",)),
        "No method has finite intervals that cover enough on these data.",
        "",
    ),
]


@pytest.mark.parametrize(("methods", "names", "claim", "words"), RECOMMENDED)
def test_the_smallest_score_wins_among_those_that_cover(methods, names, claim, words):
    found = recommend(scores_of(**methods), alpha=0.1)
    assert (found.method, found.same, found.unclear, found.short) == names
    assert found.claim == claim
    assert re.search(words, str(found), re.DOTALL)


def test_a_method_that_covers_is_said_to_fall_short_in_about_1_percent_of_the_cases():
    """Of 2,000 draws at 1 %, more than 40 have a probability below 1e-5."""
    rng = np.random.default_rng(0)
    count = 0
    for _ in range(2000):
        chance = rng.beta(181, 20)  # of a miss-free row, given 200 training rows at alpha = .1
        drawn = scores_of(a=(NOISE, 0.0, 0.8))
        drawn["coverage"] = rng.binomial(100, chance, 5) / 100
        count += falls_short(drawn, 0.1)
    assert 5 <= count <= binom.isf(1e-5, 2000, 0.01)


def test_differences_are_told_from_noise_by_a_paired_test_and_the_aim_follows_alpha():
    assert differs(np.array([1.0, 1.1, 0.9]))
    for noise in ([1.0, -1.1, 0.9], [1.0, 5.0], [0.0] * 4):
        assert not differs(np.array(noise))
    for alpha, aim in ((0.05, "95"), (0.3, "70")):
        assert f"below {aim} %" in str(recommend(scores_of(a=(NOISE, 1.0, 0.5)), alpha))
