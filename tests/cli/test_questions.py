"""``lazyknife predict`` with one side, groups, quantiles and weights: the numbers are Python's."""

import re

import numpy as np
import pandas as pd
import pytest

import lazyknife as lk
from command import fail, in_shell, intervals_of, predict, run, succeed

MIXED = {"train": "mixed_train.csv", "test": "mixed_test.csv"}
COLUMNS = [*"abc", "group", "code", "gap"]
NUMBERS = ["a", "b", "c"]


def read(columns=COLUMNS, kind="mixed_"):
    train, test = (pd.read_csv(f"{kind}{name}.csv") for name in ("train", "test"))
    return train[columns], train["y"], test[columns], test["y"]


@pytest.mark.parametrize("side", ["upper", "lower"])
def test_a_limit_is_the_estimators_and_says_what_it_is(folder, side):
    found, printed = intervals_of("--side", side, "--unit", "1000", "--alpha", ".2")
    X, y, X_new, y_new = read(NUMBERS, "")
    limit = lk.LazyJackknifeRegressor(alpha=0.2, random_state=0).fit(X, y / 1000)
    expected = 1000 * getattr(limit.predict_interval(X_new, side=side), side)
    assert list(found) == ["point", side]
    np.testing.assert_allclose(found[side], expected, rtol=1e-9)
    assert f"mean {side} limit, alpha = 0.2" in printed
    assert "quantile loss, alpha = 0.2" in printed
    assert f"Expect about 80 % of the true y to be at {'most' if side == 'upper' else 'least'}" in (
        " ".join(printed.split())
    )
    over = (y_new - expected) * (1 if side == "upper" else -1)
    loss = np.where(over > 0, 0.8 * over, -0.2 * over).mean()
    shown = re.search(r"quantile loss, alpha = 0.2 +([0-9.]+)", printed)
    assert float(shown[1]) == pytest.approx(loss, rel=1e-3)


def test_groups_are_those_of_the_file_at_once_or_from_a_saved_model(folder):
    options = ("--groups", "group,code", "--drop", "name", "--html", "page.html")
    printed = run(*predict(*options, **MIXED)).stdout
    found = pd.read_csv("out.csv")
    X, y, X_new, y_new = read()
    model = lk.LazyJackknifeRegressor(random_state=0)
    model.fit(X, y, groups=["group", "code"], X_pool=X_new)
    expected = model.predict_interval(X_new, groups=["group", "code"])
    for end in ("lower", "upper"):
        np.testing.assert_allclose(found[end], getattr(expected, end), rtol=1e-6)
    inside = expected.covers(y_new)
    for column in ("group", "code"):
        for label, places in X_new.groupby(column).indices.items():
            share = inside[places].mean()
            assert re.search(rf"{column} = {label} +{len(places)} +{share:.3f} ±", printed)
    assert "in each group" in printed
    page = (folder / "page.html").read_text()
    assert "Coverage by group" in page
    assert "group = u" in page
    fit = ("fit", "mixed_train.csv", "--target", "y", "--groups", "group", "--drop", "name")
    assert run(*fit, "--model", "m.lk").exit_code == 0
    saved = run("predict", "mixed_test.csv", "--model", "m.lk", "--output", "saved.csv")
    assert "group = v" in saved.stdout
    alone = lk.LazyJackknifeRegressor(random_state=0).fit(X, y, groups="group")
    expected = alone.predict_interval(X_new, groups="group")
    np.testing.assert_allclose(pd.read_csv("saved.csv")["upper"], expected.upper, rtol=1e-9)


def test_quantiles_are_columns_and_are_scored(folder):
    options = ("--quantiles", "0.1,.5,0.9", "--unit", "1000", "--html", "page.html")
    found, printed = intervals_of(*options)
    X, y, X_new, y_new = read(NUMBERS, "")
    model = lk.LazyJackknifeRegressor(random_state=0).fit(X, y / 1000)
    spread = model.predict_distribution(X_new)
    assert list(found)[4:] == ["q0.1", "q0.5", "q0.9"]
    np.testing.assert_allclose(found.iloc[:, 4:], 1000 * spread.quantile([0.1, 0.5, 0.9]))
    score = 1000 * spread.crps(y_new / 1000).mean()
    assert float(re.search(r"CRPS +([0-9.]+)", printed)[1]) == pytest.approx(score, rel=1e-3)
    share = (y_new <= found["q0.9"]).mean()
    shown = re.search(r"share of y up to q0.9 +([0-9.]+)", printed)
    assert float(shown[1]) == pytest.approx(share, rel=1e-3)
    assert "q0.9" in (folder / "page.html").read_text()


def test_weights_account_for_a_shift_and_the_warning_names_them(folder):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 1))
    frame = pd.DataFrame({"x": X[:, 0], "y": X[:, 0] + rng.normal(size=240) * np.exp(X[:, 0] / 2)})
    far = rng.choice(np.arange(140, 240), 60, p=np.exp(X[140:, 0]) / np.exp(X[140:, 0]).sum())
    frame[:140].to_csv("train.csv", index=False)
    frame.iloc[far].to_csv("test.csv", index=False)
    plain = run(*predict())
    assert "--weights estimate counts training rows" in plain.stderr
    assert "weights='estimate'" not in plain.stderr
    found, printed = intervals_of("--weights", "estimate")
    train, test = (pd.read_csv(f"{name}.csv") for name in ("train", "test"))
    model = lk.LazyJackknifeRegressor(random_state=0).fit(train[["x"]], train["y"])
    expected = model.predict_interval(test[["x"]], weights="estimate")
    np.testing.assert_allclose(found["upper"], expected.upper, rtol=1e-9)
    assert in_shell(expected.certificate.headline) in printed
    assert "weights that leave the training rows as much as" in " ".join(printed.split())
    succeed("fit", "train.csv", "--target", "y", "--model", "m.lk")
    succeed("predict", "test.csv", "-m", "m.lk", "-o", "two.csv", "--weights", "estimate")
    np.testing.assert_allclose(pd.read_csv("two.csv")["upper"], expected.upper, rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--groups", "grop"], "--groups, among the features of mixed_train.csv: no column 'grop'"),
        (["--groups", "group", "--drop", "group"], "no column 'group'"),
        (["--quantiles", "0.5,1.5"], "quantiles=1.5: give a number strictly between 0 and 1"),
        (["--quantiles", "half"], "--quantiles half: give numbers such as 0.1,0.5,0.9"),
        (["--side", "left"], "Invalid value for '--side'"),
    ],
)
def test_questions_that_cannot_be_answered_are_one_line(folder, options, message):
    assert message in fail(*predict("--drop", "name", *options, **MIXED))
    assert not (folder / "out.csv").exists()


def test_whole_clusters_are_left_out_at_once_or_for_a_saved_model(folder):
    rng = np.random.default_rng(0)
    school, x = np.repeat([f"s{k}" for k in range(20)], 6), rng.normal(size=120)
    frame = pd.DataFrame({"school": school, "x": x, "y": x + np.repeat(rng.normal(size=20), 6)})
    frame.loc[3, "y"] = np.nan
    train, test = frame[:90], frame[90:]
    train.to_csv("train.csv", index=False)
    test.to_csv("test.csv", index=False)
    printed = run(*predict("--clusters", "school")).stdout
    kept = train.dropna()
    model = lk.LazyJackknifeRegressor(random_state=0)
    model.fit(kept[["x"]], kept["y"], clusters=kept["school"])
    expected = model.predict_interval(test[["x"]])
    found = pd.read_csv("out.csv")
    np.testing.assert_allclose(found["upper"], expected.upper, rtol=1e-9)
    assert "for any new row of a new cluster" in " ".join(printed.split())
    run("fit", "train.csv", "--target", "y", "--model", "m.lk", "--clusters", "school")
    test.drop(columns="school").to_csv("new.csv", index=False)
    succeed("predict", "new.csv", "--model", "m.lk", "--output", "saved.csv")
    pd.testing.assert_frame_equal(pd.read_csv("saved.csv"), found)
    assert "no column 'scool': did you mean 'school'?" in fail(*predict("--clusters", "scool"))
    train.assign(school=train["school"].where(train.index > 0)).to_csv("train.csv", index=False)
    assert "clusters has no label for row 0" in run(*predict("--clusters", "school")).stderr


@pytest.fixture
def joint(folder):
    """Rows with two targets and a class."""
    for name in ("train", "test"):
        frame = pd.read_csv(f"{name}.csv")
        frame["z"] = np.exp(frame["a"]) + frame["c"]
        frame["kind"] = np.where(frame["y"] > 0, "high", "low")
        frame.to_csv(f"{name}.csv", index=False)
    return folder


def test_several_targets_have_boxes_at_once_or_from_a_saved_model(joint):
    options = (
        "--target",
        "y",
        "--target",
        "z",
        "--drop",
        "kind",
        "--alpha",
        ".2",
        "--html",
        "page.html",
    )
    found, printed = intervals_of(*options)
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    model = lk.LazyJackknifeRegressor(alpha=0.2, random_state=0)
    model.fit(train[NUMBERS], train[["y", "z"]])
    boxes = model.predict_box(test[NUMBERS])
    names = [f"{part}_{name}" for name in "yz" for part in ("point", "lower", "upper")]
    assert list(found) == names
    np.testing.assert_allclose(found, boxes.to_frame(), rtol=1e-9)
    share = boxes.covers(test[["y", "z"]]).mean()
    assert re.search(rf"coverage of the new rows, alpha = 0.2 +{share:.3f} ±", printed)
    assert boxes.certificate.headline in printed
    page = (joint / "page.html").read_text()
    assert "Prediction boxes" in page
    assert "lower_z" in page
    fit = ("fit", "train.csv", "--target", "y,z", "--drop", "kind", "--model", "m.lk")
    succeed(*fit, "--alpha", ".2")
    levels = ("--alpha", "0.2", "--alpha", "0.4")
    assert run("predict", "test.csv", "-m", "m.lk", "-o", "saved.csv", *levels).exit_code == 0
    saved = pd.read_csv("saved.csv")
    np.testing.assert_allclose(saved["upper_z_0.2"], found["upper_z"], rtol=1e-9)
    assert (saved["upper_z_0.4"] < saved["upper_z_0.2"]).all()
    command = ("predict", "test.csv", "-m", "m.lk", "-o", "turned.csv")
    assert run(*command, "--target", "z,y").exit_code == 0  # in the order of the fit
    pd.testing.assert_frame_equal(pd.read_csv("turned.csv"), found)
    assert "m.lk predicts 'y', 'z': give the same" in fail(*command, "--target", "z")


def test_boxes_of_a_model_saved_in_python_have_numbers_for_names(joint):
    train = pd.read_csv("train.csv")
    lk.LazyJackknifeRegressor(random_state=0).fit(train[NUMBERS], train[["y", "z"]]).save("m.lk")
    command = ("predict", "test.csv", "-m", "m.lk", "-o", "out.csv")
    assert run(*command).exit_code == 0
    assert list(pd.read_csv("out.csv"))[::3] == ["point_y0", "point_y1"]
    assert "coverage of the new rows" in run(*command, "--target", "y,z").stdout


@pytest.mark.parametrize("numbers", [False, True])
def test_a_class_has_sets_at_once_or_from_a_saved_model(joint, numbers):
    for name in ("train", "test"):
        frame = pd.read_csv(f"{name}.csv").drop(columns=["y", "z"])
        frame["kind"] = (frame["kind"] == "high").astype(int) if numbers else frame["kind"]
        frame.to_csv(f"{name}.csv", index=False)
    options = ("--target", "kind", *(["--categorical", "kind"] if numbers else []))
    command = ("train.csv", "test.csv", *options, "--alpha", ".1", "--alpha", ".3")
    told = run("predict", *command, "--output", "out.csv", "--html", "page.html")
    assert told.exit_code == 0, told.stderr
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    model = lk.LazyJackknifeClassifier(random_state=0).fit(train[NUMBERS], train["kind"])
    expected = model.predict_set(test[NUMBERS], [0.1, 0.3])
    found = pd.read_csv("out.csv", dtype=str)
    assert list(found["class"]) == list(map(str, model.predict(test[NUMBERS])))
    for k, level in enumerate(("0.1", "0.3")):
        texts = [" | ".join(map(str, model.classes_[row])) for row in expected[:, :, k]]
        assert list(found[f"set_{level}"]) == texts
        assert list(found[f"size_{level}"]) == list(map(str, expected[:, :, k].sum(axis=1)))
        truth = test["kind"].to_numpy()[:, None] == model.classes_
        share = (truth & expected[:, :, k]).any(axis=1).mean()
        assert re.search(rf"coverage of the new rows, alpha = {level} +{share:.3f} ±", told.stdout)
    assert model.certificate_.headline in told.stdout
    assert "Prediction sets" in (joint / "page.html").read_text()
    options = ("--target", "kind", "--classes")
    assert run("fit", "train.csv", *options, "--model", "m.lk").exit_code == 0
    assert run("predict", "test.csv", "-m", "m.lk", "-o", "saved.csv").exit_code == 0
    assert list(pd.read_csv("saved.csv", dtype=str)["set"]) == list(found["set_0.1"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--target kind --hidden 4", "--hidden does not support classes: leave it out"),
        ("--target kind --side upper", "--side does not support classes: leave it out"),
        ("--target y,z --quantiles .5", "--quantiles does not support several targets"),
        ("--target y,z --figure f.svg", "--figure does not support several targets"),
        ("--target y,q", "no column 'q'"),
        ("--target kind,z --classes", "sets of classes have one target"),
        ("--target y,z --construction full", "construction='full' does not support several"),
    ],
)
def test_what_joint_targets_do_not_support_is_one_line(joint, options, message):
    result = run("predict", "train.csv", "test.csv", "-o", "o.csv", *options.split())
    assert result.exit_code == 2
    assert message in result.stderr.splitlines()[-1]
