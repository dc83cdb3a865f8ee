"""``lazyknife fit`` and ``lazyknife predict --model``: a model saved in a file."""

import numpy as np
import pandas as pd
import pytest

import lazyknife as lk
from command import check_self_contained, fail, run, succeed

QUICK = ("--hidden", "4", "--ridge", "1.0")


def fit(*options, train="train.csv"):
    return ("fit", train, "--target", "y", "--model", "m.lk", *options)


def predict(*options, new="test.csv"):
    return ("predict", new, "--model", "m.lk", "--output", "out.csv", *options)


def test_a_saved_model_predicts_as_in_python(folder):
    told = succeed(*fit(*QUICK, "--unit", "1000", "--alpha", "0.2"))
    assert "training rows  40" in told
    assert "alpha = 0.2" in told
    assert "Wrote the model to m.lk (" in told
    printed = succeed(*predict())
    assert "coverage of the new rows, alpha = 0.2" in printed
    assert "any new row" in printed
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    settings = {"network": lk.mlp((4,), skip=True), "ridge": 1.0}
    model = lk.LazyJackknifeRegressor(**settings, alpha=0.2, random_state=0)
    model.fit(train[["a", "b", "c"]], train["y"] / 1000)
    expected = model.predict_interval(test[["a", "b", "c"]])
    found = pd.read_csv("out.csv")
    for name in ("point", "lower", "upper"):
        np.testing.assert_allclose(found[name], 1000 * getattr(expected, name), rtol=1e-12)


def test_the_file_is_one_of_the_library(folder):
    succeed(*fit(*QUICK, "--alpha", "0.3"))
    model = lk.LazyJackknifeRegressor.load("m.lk")
    assert (model.alpha, model.ridge, model.random_state) == (0.3, 1.0, 0)
    assert list(model.feature_names_in_) == ["a", "b", "c"]


def test_a_model_saved_in_python_predicts_a_file(folder):
    train = pd.read_csv("train.csv")
    model = lk.LazyJackknifeRegressor(lk.mlp((4,)), ridge=1.0, random_state=0)
    model.fit(train[["a", "b", "c"]], train["y"]).save("m.lk")
    unscored = run(*predict())
    assert "test.csv: column 'y' is not used by the model." in unscored.stderr
    assert "coverage of" not in unscored.stdout
    assert "coverage of the new rows" in succeed(*predict("--target", "y"))
    model.fit(train[["a", "b", "c"]].to_numpy(), train["y"]).save("m.lk")
    assert "m.lk was fitted on an array, whose columns have no names" in fail(*predict())


def test_categories_gaps_and_names_of_rows(folder):
    options = ("--id", "name", "--categorical", "code")
    told = run(
        *fit(*options, "--feature-weights", "none", "--ridge", "0.1", train="mixed_train.csv")
    )
    assert told.exit_code == 0, told.stderr
    assert "note: gap: 6 missing values." in told.stderr
    succeed(*predict("--id", "name", new="mixed_test.csv"))
    whole = pd.read_csv("out.csv", index_col="name")
    assert list(whole.columns) == ["point", "lower", "upper", "width"]
    new = pd.read_csv("mixed_test.csv")
    # One row alone: its code looks like a number, and a column may have no values.
    new[:1].assign(gap=np.nan).to_csv("one.csv", index=False)
    succeed(*predict("--id", "name", new="one.csv"))
    alone = pd.read_csv("out.csv", index_col="name")
    if np.isnan(new["gap"][0]):
        np.testing.assert_allclose(alone, whole[:1])
    assert np.isfinite(alone).all(axis=None)
    new[["gap", "code", "name", "group", "c", "b", "a"]].to_csv("turned.csv", index=False)
    succeed(*predict("--id", "name", new="turned.csv"))
    np.testing.assert_allclose(pd.read_csv("out.csv", index_col="name"), whole)
    assert run(*predict(new="unseen.csv")).exit_code == 0  # a shift, which is said


def test_columns_must_be_those_of_the_fit(folder):
    succeed(*fit(*QUICK))
    assert "other.csv: no column 'a'" in fail(*predict(new="other.csv"))
    pd.read_csv("test.csv").assign(a="text").to_csv("text.csv", index=False)
    assert "'a' has text or categories, but had numbers" in fail(*predict(new="text.csv"))


def test_several_levels_reports_and_figures(folder):
    succeed(*fit(*QUICK))
    options = ("--alpha", "0.1", "--alpha", "0.3", "--html", "r.html", "--figure", "f.svg")
    printed = succeed(*predict(*options))
    assert printed.count("contains the true y with probability") == 2
    assert "lower_0.3" in pd.read_csv("out.csv").columns
    page = (folder / "r.html").read_text()
    check_self_contained(page)
    assert "m.lk → test.csv" in page
    assert (folder / "f.svg").stat().st_size > 1000


def test_low_coverage_is_said(folder):
    succeed(*fit(*QUICK))
    shifted = pd.read_csv("test.csv")
    shifted["y"] += 1e5
    shifted.to_csv("shifted.csv", index=False)
    result = run(*predict(new="shifted.csv"))
    assert result.exit_code == 0
    assert "COVERAGE BELOW THE CERTIFICATE" in result.stderr


def test_how_files_are_written_is_remembered(folder):
    for name in ("train", "test"):
        frame = pd.read_csv(f"{name}.csv")
        frame.to_csv(f"{name}.csv", index=False, sep="|", decimal=",")
    assert run(*fit(*QUICK, "--sep", "|", "--decimal", ",")).exit_code == 0
    assert run(*predict()).exit_code == 0
    assert len(pd.read_csv("out.csv")) == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (predict("--hidden", "4"), "--hidden with --model: pass it to lazyknife fit instead"),
        (predict("--seed", "4"), "--seed with --model: pass it to lazyknife fit instead"),
        (predict("train.csv"), "train.csv: with --model, give the file of new rows alone"),
        (("predict", "a.csv", "--model", "no.lk", "--output", "o.csv"), "no.lk: there is no such"),
        (("predict", "a.csv", "--model", "m.lk"), "give --output, --html or both"),
        (("predict", "train.csv", "--output", "o.csv"), "the file of new rows is missing"),
        (("predict", "train.csv", "test.csv", "--output", "o.csv"), "--target is missing: give"),
        (predict("--id", "q"), "test.csv: no column 'q'"),
        (predict("--target", "q"), "test.csv: no column 'q'"),
    ],
)
def test_what_is_refused(arguments, message, folder):
    (folder / "a.csv").write_text("a\n1\n")
    train = pd.read_csv("train.csv")
    model = lk.LazyJackknifeRegressor(lk.mlp(()), ridge=1.0)
    model.fit(train[["a", "b", "c"]], train.y).save("m.lk")
    assert message in fail(*arguments)


def test_fit_refuses_what_it_cannot_use(folder):
    assert "m.csv: give a name that ends in .lk" in fail(
        "fit", "train.csv", "--target", "y", "--model", "m.csv"
    )
    assert "no column 'z'" in fail("fit", "train.csv", "--target", "z", "--model", "m.lk")
    assert "2 rows are too few" in fail(*fit(train="two.csv"))
    (folder / "m.lk").write_bytes(b"x" * 200)
    assert "m.lk: not a model that lazyknife" in fail(*predict())
    succeed(*fit(*QUICK))
    (folder / "m.lk").write_bytes((folder / "m.lk").read_bytes()[:-1])
    assert "m.lk is damaged or was changed" in fail(*predict())


def test_a_scaling_learned_from_the_training_rows_has_no_guarantee(folder):
    told = succeed(*fit(*QUICK, "--scaling", "standardize"))
    assert "No coverage is guaranteed" in told


def test_a_feature_does_not_name_the_rows(folder):
    succeed(*fit(*QUICK))
    message = "test.csv: column 'a' is a feature of the model: give another column as --id"
    assert fail(*predict("--id", "a")) == message


def test_names_of_rows_are_no_category(folder):
    message = "mixed_train.csv: column 'name' is not a feature: remove it from --categorical"
    for option in ("--id", "--drop"):
        assert (
            fail(*fit(option, "name", "--categorical", "name", train="mixed_train.csv")) == message
        )
