"""``lazyknife fit`` and ``lazyknife predict --model``: a model saved in a file."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import lazyknife as lk
from command import check_self_contained, fail, run, succeed
from lazyknife.cli import read_table
from lazyknife.report import outcome
from lazyknife.report.outcome import is_too_low

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
    assert printed.count("Guaranteed: at least") == 2
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


def test_a_few_misses_of_few_rows_are_no_warning():
    """Far below by standard errors, and yet not rare: the law is skewed."""
    assert not is_too_low(3, 5, 0.95, 40)
    assert is_too_low(2, 5, 0.95, 40)
    assert is_too_low(4, 5, 1.0, 40)


def test_how_files_are_written_is_remembered(folder):
    for name in ("train", "test"):
        frame = pd.read_csv(f"{name}.csv").round(3)
        frame["day"] = [f"{k % 28 + 1:02}.02.2024" for k in range(len(frame))]
        frame.to_csv(f"{name}.csv", index=False, sep=";", decimal=",", encoding="utf-8-sig")
    assert run(*fit(*QUICK)).exit_code == 0
    assert run(*predict()).exit_code == 0
    whole = pd.read_csv("out.csv")
    # One row, whose numbers and date leave open how they are written.
    lines = (folder / "test.csv").read_text(encoding="utf-8-sig").splitlines()
    cells = lines[1].split(";")
    (folder / "one.csv").write_text(f"{lines[0]}\n{';'.join(cells)}\n")
    assert run(*predict(new="one.csv")).exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), whole[:1])
    typed = ", ".join(f"{n}={v}" for n, v in zip("abc", cells, strict=False))
    row = ("--row", f"{typed}, day={cells[4]}")
    assert run("predict", *row, "--model", "m.lk", "--output", "out.csv").exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), whole[:1])


def test_options_of_files_are_remembered(folder):
    for name in ("train", "test"):
        pd.read_csv(f"{name}.csv").to_csv(f"{name}.csv", index=False, sep="~", encoding="utf-16-le")
    assert run(*fit(*QUICK, "--sep", "~", "--encoding", "utf-16-le")).exit_code == 0
    succeed(*predict("--encoding", "utf-16-le"))
    assert len(pd.read_csv("out.csv")) == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (predict("--hidden", "4"), "--hidden with --model: pass it to lazyknife fit instead"),
        (predict("--seed", "4"), "--seed with --model: pass it to lazyknife fit instead"),
        (predict("train.csv"), "train.csv: with --model, give the file of new rows alone"),
        (("predict", "a.csv", "--model", "no.lk", "--output", "o.csv"), "no.lk: there is no such"),
        (("predict", "train.csv", "test.csv"), "--target is missing: give one of 'a', 'b', 'c', "),
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


# Batches


def table(rows, seed=0):
    """Numbers, a category, a code, dates, gaps and names of rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    return pd.DataFrame(
        {
            "name": [f"r{k:03}" for k in range(rows)],
            "a": X[:, 0],
            "group": rng.choice(["u", "v"], rows),
            "code": rng.choice([1, 2, 3], rows),
            "day": pd.Timestamp("2024-01-25") + pd.to_timedelta(rng.integers(0, 90, rows), "D"),
            "gap": np.where(rng.random(rows) < 0.2, np.nan, X[:, 1]),
            "y": X @ [1, -1] + 0.3 * rng.normal(size=rows),
        }
    )


@pytest.fixture
def fitted(tmp_path, monkeypatch):
    """A working folder with a model."""
    monkeypatch.chdir(tmp_path)
    table(40).to_csv("train.csv", index=False)
    options = ("--id", "name", "--categorical", "code", "--feature-weights", "none")
    told = run("fit", "train.csv", "--target", "y", "--model", "m.lk", "--ridge", "0.1", *options)
    assert told.exit_code == 0, told.stderr
    return tmp_path


@pytest.fixture
def in_batches(monkeypatch):
    """Call for small batches."""

    def call(size=2000):
        monkeypatch.setattr(read_table, "BATCH_BYTES", size)
        monkeypatch.setattr(read_table, "BATCH_ROWS", 40)

    return call


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
@pytest.mark.parametrize("output", ["out.csv", "out.parquet", "out.xlsx"])
def test_batches_give_the_intervals_of_the_whole_file(fitted, in_batches, suffix, output):
    new, frame = f"new{suffix}", table(150, seed=1)
    frame.to_parquet(new) if suffix == ".parquet" else frame.to_csv(new, index=False)
    read = {"csv": pd.read_csv, "parquet": pd.read_parquet, "xlsx": pd.read_excel}
    command = ("predict", new, "--model", "m.lk", "--id", "name", "--output", output)
    levels = ("--alpha", "0.1", "--alpha", "0.3")
    printed, tables = [], []
    for size in (None, 2000):
        if size:
            in_batches()
        printed.append(succeed(*command, *levels))
        tables.append(read[output.split(".")[1]](output))
    assert printed[0] == printed[1]
    assert tables[0]["name"].tolist() == frame["name"].tolist()
    pd.testing.assert_frame_equal(*tables, rtol=1e-6)


def test_marks_that_are_shown_late_and_odd_ones(fitted, in_batches):
    frame = table(150, seed=1)
    frame["day"] = frame["day"].dt.strftime("%d/%m/%Y")
    frame["a"] = [f"{a:.1f}".replace(".", ",") for a in frame["a"]]
    frame.loc[:100, "a"] = "3"
    frame["gap"] = [
        "-" if np.isnan(gap) else f"{gap:.1f}".replace(".", ",") for gap in frame["gap"]
    ]
    frame.to_csv("new.csv", index=False, sep=";")
    run(*predict(new="new.csv"))
    whole = pd.read_csv("out.csv")
    in_batches()
    assert run(*predict(new="new.csv")).exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), whole)
    frame.loc[140, "a"] = "odd"
    frame.to_csv("new.csv", index=False, sep=";")
    (fitted / "out.csv").write_text("old")
    assert "'a' has 'odd' in row" in fail_last(*predict(new="new.csv"))
    assert (fitted / "out.csv").read_text() == "old"
    assert not list(fitted.glob(".out*"))


def fail_last(*arguments):
    """The error, which notes may precede."""
    result = run(*arguments)
    assert result.exit_code == 2
    return result.stderr.splitlines()[-1]


def test_rows_without_a_target_are_not_scored(fitted, in_batches):
    frame = table(150, seed=1)
    frame.loc[140, "y"] = np.nan
    frame.to_csv("new.csv", index=False)
    in_batches()
    told = run(*predict(new="new.csv"))
    assert "coverage of the new rows" not in told.stdout
    assert "note: The new rows are not scored. new.csv: column 'y' is the target" in told.stderr


def test_a_file_without_rows_is_refused(fitted):
    table(3)[:0].to_parquet("new.parquet")
    table(3)[:0].to_csv("new.csv", index=False)
    for name in ("new.parquet", "new.csv"):
        assert "no rows" in fail(*predict(new=name))


def test_a_report_of_many_rows_has_a_sample_of_them(fitted, in_batches, monkeypatch):
    monkeypatch.setattr(outcome, "MOST_SHOWN", 60)
    table(150, seed=1).to_csv("new.csv", index=False)
    in_batches()
    assert "Wrote 150 intervals" in succeed(*predict("--html", "r.html", new="new.csv"))
    page = (fitted / "r.html").read_text()
    assert "60 of the 150 rows, drawn at random" in page


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_memory_does_not_grow_with_the_file(fitted, suffix):
    peaks = []
    for rows in (300_000, 900_000):
        frame = pd.concat([table(3000, seed=1)] * (rows // 3000), ignore_index=True)
        path = fitted / f"new{suffix}"
        frame.to_parquet(path) if suffix == ".parquet" else frame.to_csv(path, index=False)
        command = ("predict", path.name, "--model", "m.lk", "--output", "o.parquet")
        code = (
            "import atexit, resource; from lazyknife.cli.app import app\n"
            "peak = lambda: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
            f"atexit.register(peak); app({list(command)!r})"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        peaks.append(1024 * int(done.stdout.split()[-1]))
    assert peaks[1] - peaks[0] < 60 * 2**20  # the whole table takes 300 MiB more


# Columns


def test_a_feature_does_not_name_the_rows(folder):
    succeed(*fit(*QUICK))
    message = "test.csv: column 'a' is a feature of the model: give another as --id"
    assert fail(*predict("--id", "a")) == message


def test_names_of_rows_are_no_category(folder):
    message = "mixed_train.csv: column 'name' has another role: remove it from --categorical"
    for option in ("--id", "--drop"):
        assert (
            fail(*fit(option, "name", "--categorical", "name", train="mixed_train.csv")) == message
        )
