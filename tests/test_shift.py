"""The check of exchangeability: what it finds, what it names, and how often it errs."""

import datetime
import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.stats import binom, mannwhitneyu

import lazyknife as lk
from lazyknife.data.schema import as_frame
from lazyknife.shift import (
    MOST_ROWS,
    column_tests,
    deal,
    discriminant,
    held_out_scores,
    kept_rows,
    pool_rows,
    rank_sum_test,
)

RNG = np.random.default_rng


def mixed(n, seed, **changes):
    """Numbers, dates, categories, booleans and missing values."""
    rng = RNG(seed)
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, n), unit="D"),
            "colour": rng.choice(["red", "blue", "green"], n),
            "old": rng.random(n) < 0.3,
        }
    )
    return frame.assign(**{name: change(frame, rng) for name, change in changes.items()})


# Draws of small tables with exchangeable rows: few rows, many ties, rare categories.
DRAWS = {
    "normal": lambda rng: rng.normal(size=(50, 3)),
    "rare": lambda rng: (rng.random((50, 6)) < 0.05).astype(float),
    "heavy": lambda rng: np.exp(3 * rng.normal(size=(50, 1))) * rng.normal(size=(50, 2)).round(),
}


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize("n", [25, 44])
def test_exchangeable_rows_raise_an_alarm_in_at_most_1_percent_of_the_cases(kind, n):
    """Of 150 draws at 1 %, more than 8 have a probability below 1e-4."""
    rng = RNG(7)
    draws = [DRAWS[kind](rng) for _ in range(150)]
    found = [lk.check_exchangeable(rows[:n], rows[n:]).clear for rows in draws]
    assert sum(found) <= binom.isf(1e-4, 150, 0.01)


def test_sorted_files_changed_mixes_and_values_that_go_missing_are_found_and_named():
    frame = mixed(300, 0).sort_values("day")
    shift = lk.check_exchangeable(frame[:200], frame[200:])
    assert shift.clear
    assert shift.p_value < 1e-10
    assert shift.auc > 0.95
    assert shift.features[0].name == "day"
    for words in ("day (median date 2024-0", "do not look like the training rows"):
        assert words in str(shift)
    mix = {"colour": lambda f, rng: rng.choice(["red", "blue", "pink"], len(f), p=[0.2, 0.2, 0.6])}
    shift = lk.check_exchangeable(mixed(150, 0), mixed(150, 1, **mix))
    found = {one.name: one for one in shift.features}
    assert set(found) >= {"colour = pink", "colour = green"}
    assert str(found["colour = pink"]).startswith("colour = pink (share 0% → ")
    assert found["colour = pink"].new == pytest.approx(0.6, abs=0.1)
    gaps = {"size": lambda f, rng: f["size"].where(rng.random(len(f)) < 0.5)}
    shift = lk.check_exchangeable(mixed(100, 0), mixed(100, 1, **gaps))
    assert shift.features[0].name == "size is missing"


@pytest.mark.parametrize(
    ("change", "words"),
    [(lambda x: x + 0.8, "x13 (median "), (lambda x: 2.5 * x, "x13 (interquartile range ")],
)
def test_a_shift_of_one_feature_in_twenty_is_found_and_named(change, words):
    X, X_new = RNG(0).normal(size=(2, 150, 20))
    assert not lk.check_exchangeable(X, X_new).clear
    X_new[:, 13] = change(X_new[:, 13])
    shift = lk.check_exchangeable(X, X_new)
    assert [one.name for one in shift.features] == ["x13"]
    assert words in str(shift)


def test_a_shift_along_a_correlation_is_found_by_the_classifier_alone():
    rng = RNG(0)
    X, X_new = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], (2, 800))
    shift = lk.check_exchangeable(X, X_new + 0.12 * np.array([1, -1]))
    assert shift.clear
    assert shift.features == ()
    assert "a combination of features does" in str(shift)


def test_frames_arrays_and_tensors_of_every_kind_give_the_same_answer():
    old, new = mixed(60, 0), mixed(40, 1)
    expected = lk.check_exchangeable(old, new)
    polars = [pl.from_pandas(frame) for frame in (old, new)]
    for pair in (polars, [each.to_arrow() for each in polars], (old, new[new.columns[::-1]])):
        assert lk.check_exchangeable(*pair) == expected
    assert "look like the training rows" in str(expected)
    X = RNG(0).normal(size=(30, 4, 4))
    assert lk.check_exchangeable(X, torch.from_numpy(X + 3)).features[0].name.startswith("x")
    assert lk.check_exchangeable(X[:, 0].tolist(), X[:, 0]).p_value > 0.5


def test_columns_become_numbers():
    days = [datetime.date(1970, 1, 3), None, datetime.date(1970, 1, 5)]
    frame = pl.DataFrame({"d": days, "c": ["a", None, "a"], "n": [1.0, None, 3.0]})
    schema = lk.TableEncoder().schema(frame)
    rows = schema.read(as_frame(frame, "X"), "X")
    found = pool_rows(rows, rows, None, schema)
    values = dict(zip(found.names, found.values[:3].T.tolist(), strict=True))
    assert values["n"] == [1, 2, 3]
    assert values["d"] == [2, 3, 4]
    assert values["n is missing"] == values["d is missing"] == [0, 1, 0]
    assert values["c = a"] == [1, 0, 1]
    assert found.dates == {"d"}


def test_unknown_and_very_many_categories_are_compared():
    codes = RNG(1).permutation(np.arange(240) % 120)
    X = pd.DataFrame({"a": RNG(0).normal(size=240), "c": [f"c{code}" for code in codes]})
    assert not lk.check_exchangeable(X[:160], X[160:]).clear
    model = lk.LazyJackknifeRegressor(random_state=0).fit(X[:100].assign(c="u"), X["a"][:100])
    shift = model.check_exchangeable(X[100:140].assign(c="v"))
    assert {one.name for one in shift.features} == {"c = u", "c = (other)"}


def test_few_rows_are_compared_without_a_classifier_and_of_many_always_the_same_sample():
    X = RNG(0).normal(size=(5000, 2))
    shift = lk.check_exchangeable(X[:40], X[:3] + 9)
    assert shift.auc is None
    assert shift.clear
    assert "classifier" not in str(shift)
    shift = lk.check_exchangeable(X, X[:30])
    assert (shift.n_train, shift.n_new) == (MOST_ROWS, 30)
    assert lk.check_exchangeable(X, X[:30]) == shift
    assert kept_rows(RNG(0).normal(size=(300, 2000))).shape == (125, 2000)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (np.ones((3, 2)), np.ones((3, 3)), r"X_new has rows of shape \(3,\)"),
        (np.ones((3, 2)), np.ones((0, 2)), "X_new 0"),
        (np.ones(3), np.ones((3, 2)), r"X has shape \(3,\)"),
        (np.array([["a"]]), np.array([["a"]]), "give rows of numbers, or a frame for both"),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]}), "no column 'a'"),
        (pd.DataFrame({"a": ["u"]}), pd.DataFrame({"a": ["v"]}), "no features to compare"),
    ],
)
def test_rows_that_cannot_be_compared_are_refused(old, new, message):
    with pytest.raises(ValueError, match=message):
        lk.check_exchangeable(old, new)


def test_a_fitted_model_compares_new_rows_and_a_pool_with_its_own():
    X = pd.DataFrame(RNG(0).normal(size=(60, 2)), columns=["a", "b"])
    y, same, other = X.sum(axis=1), X[40:], X[40:].assign(b=X["b"] + 4)
    model = lk.LazyJackknifeRegressor(network=lk.mlp((2,)), random_state=0)
    with pytest.warns(lk.ShiftWarning, match=r"b \(median .* at most 1 % of the fits") as caught:
        model.fit(X[:40], y[:40], X_pool=other)
    assert caught[0].filename == __file__
    model.fit(X[:40], y[:40], X_pool=same)  # warnings are errors in the tests
    assert not model.check_exchangeable(same).clear
    assert [one.name for one in model.check_exchangeable(other).features] == ["b"]
    with pytest.raises(ValueError, match="no column 'a'"):
        model.check_exchangeable(X.rename(columns={"a": "z"}))


# The two tests of exchangeability against slow twins, their false alarms and their power.


def labels(n, m):
    return np.arange(n + m) >= n


def test_sums_of_columns_are_standardised_by_all_permutations():
    rng = np.random.default_rng(0)
    scores, new = rng.normal(size=(7, 3)), labels(4, 3)
    sums = np.array(
        [scores[list(pick)].sum(axis=0) for pick in itertools.combinations(range(7), 3)]
    )
    z, adjusted = column_tests(scores, new, rng)
    standardised = (sums - sums.mean(axis=0)) / sums.std(axis=0)
    np.testing.assert_allclose(z, standardised[-1], rtol=1e-9)
    exact = (np.abs(standardised).max(axis=1)[:, None] >= np.abs(z) - 1e-9).mean(axis=0)
    np.testing.assert_allclose(adjusted, exact, atol=0.06)  # 4 standard errors of 999 draws
    z, adjusted = column_tests(np.ones((7, 2)), new, rng)  # constant columns say nothing
    assert (z.tolist(), adjusted.tolist()) == ([0, 0], [1, 1])


def test_one_block_gives_the_rank_sum_of_scipy_and_each_is_scored_by_those_before_it():
    rng = np.random.default_rng(0)
    scores, new = rng.normal(size=80), labels(50, 30)
    expected = mannwhitneyu(scores[new], scores[~new], alternative="greater", method="asymptotic")
    p_value, area = rank_sum_test(scores, new, [np.arange(80)])
    assert p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert area == pytest.approx(expected.statistic / 1500)
    rows, new = rng.normal(size=(60, 2)), labels(30, 30)
    blocks = deal(new, rng)
    scores = held_out_scores(rows, new, blocks)
    assert np.isnan(scores[blocks[0]]).all()
    before = np.concatenate(blocks[:2])
    expected = discriminant(rows[before], new[before], rows[blocks[2]])
    np.testing.assert_allclose(scores[blocks[2]], expected)
    rows, new = rng.normal(size=(40, 301)), labels(20, 20)  # very many features: one by one
    rows[new, 7] += 9
    scores = discriminant(rows, new, rows)
    assert scores[new].min() > scores[~new].max()


RUNS = 400


def alarms(scored) -> int:
    """Runs with exchangeable rows whose p-value is at most .01."""
    rng, new, found = np.random.default_rng(0), labels(30, 30), 0
    for _ in range(RUNS):
        rows = rng.normal(size=(60, 8))
        blocks = deal(new, rng)
        found += rank_sum_test(*scored(rows, new, blocks))[0] <= 0.01
    return found


def test_held_out_scores_raise_few_false_alarms_and_in_sample_scores_many():
    """Of 400 runs at 1 %, more than 13 have a probability below 1e-4."""
    most = binom.isf(1e-4, RUNS, 0.01)
    assert alarms(lambda X, new, parts: (held_out_scores(X, new, parts), new, parts[1:])) <= most
    assert alarms(lambda X, new, parts: (discriminant(X, new, X), new, parts[1:])) > RUNS / 4
