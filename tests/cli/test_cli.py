import math
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from scipy.stats import betabinom
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from typer.testing import CliRunner

import lazyknife as lk
from lazyknife.cli import app, console, outcome, values
from lazyknife.cli.tables import read_table
from lazyknife.estimators.methods import DEFAULT, METHODS

COMMANDS = ("predict", "compare", "certify", "plan")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def fail(*arguments, code=2):
    """Return the one line that says what is wrong."""
    result = run(*arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0].removeprefix("error: ")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """40 training rows and 20 new ones, the target in thousands, and files that will not do."""
    made = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["y"] = 1000 * (X @ [1, -1, 0.5] + 0.3 * rng.normal(size=60))
    frame[:40].to_csv(made / "train.csv", index=False)
    frame[40:].to_csv(made / "test.csv", index=False)
    frame.to_csv(made / "all.csv", index=False)
    mixed = frame.assign(
        name=[f"r{i}" for i in range(60)],
        group=rng.choice(["u", "v"], 60),
        code=rng.choice([1, 2, 3], 60),
        gap=np.where(np.arange(60) % 7, X[:, 0], np.nan),
    )
    mixed[:40].to_csv(made / "mixed_train.csv", index=False)
    mixed[40:].to_csv(made / "mixed_test.csv", index=False)
    (made / "empty.csv").touch()
    (made / "header.csv").write_text("a,b,c,y\n")
    (made / "binary.csv").write_bytes(bytes(range(256)))
    (made / "folder").mkdir()
    frame[:2].to_csv(made / "two.csv", index=False)
    frame[:5].to_csv(made / "five.csv", index=False)
    frame[40:].rename(columns={"a": "z"}).to_csv(made / "other.csv", index=False)
    mixed[40:].assign(group="q").to_csv(made / "unseen.csv", index=False)
    return made


@pytest.fixture
def folder(files, tmp_path, monkeypatch):
    """A working folder with the files."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


PUBLIC = ("--base", "public")


def predict(*options, train="train.csv", test="test.csv", output="out.csv", base=PUBLIC):
    """Arguments of the command; options that stand twice take their last value."""
    return ("predict", train, test, "--target", "y", "--output", output, *base, *options)


# The command's own, with a base that needs no training.
DEFAULTS = {
    "base": lk.Public(),
    "scaling": "standardize",
    "precision": "mixed",
    "random_state": 0,
}


def intervals_of(*options, **files):
    printed = succeed(*predict(*options, **files))
    return pd.read_csv("out.csv"), printed


def numeric(folder):
    train, test = (read_table(folder / name) for name in ("train.csv", "test.csv"))
    columns = ["a", "b", "c"]
    return train[columns].to_numpy(), train["y"].to_numpy(), test[columns].to_numpy()


# The command as a whole


def test_help_loads_no_heavy_package():
    heavy = ["torch", "pandas", "matplotlib", "sklearn", "joblib", "scipy", "numpy"]
    code = f"import sys, lazyknife.cli; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_version_and_the_help_are_shown():
    assert succeed("--version") == f"lazyknife {lk.__version__}\n"
    text = succeed()
    assert text == succeed("--help")
    for command in COMMANDS:
        assert re.search(rf"│ {command} ", text)
        assert "Usage: lazyknife" in succeed(command, "--help")


def test_help_breaks_its_lines_where_the_screen_ends():
    lines = [line.strip() for line in succeed("predict", "--help").splitlines()]
    assert "which leaks nothing; the certificate then holds for the rows of TEST." in lines
    assert "Usage: lazyknife predict [OPTIONS] {TRAIN} {TEST}" in lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], "No such command 'bogus': see lazyknife --help"),
        (["predict"], "Missing argument 'TRAIN': see lazyknife predict --help"),
        (["predict", "a", "b", "--bogus"], "No such option: --bogus"),
        (["certify", "--n", "x"], "'--n': .*valid integer.*: see lazyknife certify --help"),
        (["certify", "--n", "9", "--base", "x"], "'--base': 'x' is not one of 'dpsgd', 'public'"),
        (["certify", "--n", "0"], "n=0: give a whole number of at least 1"),
        (["plan", "--n", "9", "--coverage", "2"], "coverage=2.0: give a number strictly between"),
        (["plan", "--n", "9", "--coverage", ".8", "--construction", "naive"], "'plus', 'minmax'"),
        (
            ["plan", "--n", "9", "--coverage", ".8", "--alpha", ".1", "--epsilon", "1"],
            "give --alpha to find the most ε, or --epsilon or --noise-multiplier to find alpha",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, message):
    assert re.search(message, fail(*arguments))


def test_an_interrupted_command_says_so_in_one_line(folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lazyknife.estimators.lazy.LazyJackknifeRegressor.fit", interrupted)
    result = run(*predict())
    assert (result.exit_code, result.stderr, result.stdout) == (130, "stopped\n", "")


def heed_interrupts():
    """A job in the background may have been started with interrupts ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_from_outside_ends_the_process(folder):
    files = {"train": "mixed_train.csv", "test": "mixed_test.csv", "base": ("--base", "plain")}
    arguments = predict("--epochs", "100000", "--drop", "gap", "--id", "name", **files)
    command = [sys.executable, "-m", "lazyknife.cli", *arguments]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    ) as process:
        assert process.stderr.readline() == "note: group: 2 categories became 2 columns.\n"
        time.sleep(0.5)  # to get into the training
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1] == "stopped\n"
    # Python ends itself by the signal where that came in the middle of an import; to a shell both
    # are 130.
    assert process.returncode in (130, -signal.SIGINT)
    assert not (folder / "out.csv").exists()


def test_a_defect_is_not_hidden(folder, monkeypatch):
    def broken(*_, **__):
        raise AssertionError("a defect")

    monkeypatch.setattr("lazyknife.estimators.lazy.LazyJackknifeRegressor.fit", broken)
    assert isinstance(run(*predict()).exception, AssertionError)


# predict: the numbers


def test_every_setting_of_the_estimator_has_an_option():
    own = {"network": "hidden", "features": "sketch", "random_state": "seed", "progress": None}
    text = succeed("predict", "--help")
    for name in lk.LazyJackknifeRegressor().get_params(deep=False):
        option = own.get(name, name)
        assert option is None or f"{values.flag(option)} " in text
    kinds = (lk.DPSGD, lk.Perturbed, lk.Public, lk.Pretrained, lk.Split, lk.Plain)
    # There is but one objective to choose.
    settings = {field.name for kind in kinds for field in fields(kind)} - {"training", "objective"}
    assert settings == set(values.BASE_OPTIONS)
    for name in settings:
        assert f"{values.flag(name)} " in text


SYMLOG_PIPELINE = make_pipeline(FunctionTransformer(lk.symlog), StandardScaler())


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["--base", "dpsgd", "--epochs", "1"], {"base": lk.DPSGD(epochs=1)}),
        (
            "--base dpsgd --noise-multiplier 3 --delta .01 --epochs 1 --batch-size 5 --lr .1 "
            "--max-grad-norm 2 --seed 7",
            {
                "base": lk.DPSGD(
                    noise_multiplier=3.0,
                    delta=0.01,
                    epochs=1,
                    batch_size=5,
                    lr=0.1,
                    max_grad_norm=2.0,
                ),
                "random_state": 7,
            },
        ),
        ("--construction minmax --ridge 5", {"construction": "minmax", "ridge": 5.0}),
        ("--construction full", {"construction": "full"}),
        ("--construction cv+ --folds 8", {"construction": "cv+", "folds": 8}),
        ("--widths constant", {"widths": "constant"}),
        ("--widths leverage --starts 3", {"widths": "leverage", "starts": 3}),
        ("--loss huber --ridge 2", {"loss": "huber", "ridge": 2.0}),
        ("--base pretrained --epochs 2", {"base": lk.Pretrained(epochs=2)}),
        (
            "--readout network --no-intercept --ridge 1e6",
            {"readout": "network", "intercept": False, "ridge": 1e6},
        ),
        ("--hidden 8 --parameters last", {"network": lk.mlp((8,)), "parameters": "last"}),
        (
            "--parameters skip.* --parameters body.4.bias",
            {"parameters": ["skip.*", "body.4.bias"]},
        ),
        ("--sketch 50 --alpha .3", {"features": lk.Sketch(50), "alpha": 0.3}),
        ("--scaling none", {"scaling": None}),
        ("--scaling symlog", {"scaling": "symlog"}),
        ("--scaling symlog+standardize", {"scaling": SYMLOG_PIPELINE}),
        ("--precision float32 --device cpu", {"precision": "float32", "device": "cpu"}),
        ("--precision float64", {"precision": "float64"}),
        ("--memory-budget 1MB", {"memory_budget": 2**20}),
        ("--base plain --epochs 2 --lr .01", {"base": lk.Plain(epochs=2, lr=0.01)}),
        (
            "--base split --fraction .4 --epochs 2",
            {"base": lk.Split(0.4, training=lk.Plain(epochs=2))},
        ),
        (
            "--base perturbed --sensitivity .5 --epsilon 2 --norm l1 --batch-size 20",
            {"base": lk.Perturbed(0.5, 2.0, "l1", training=lk.Plain(batch_size=20))},
        ),
    ],
)
def test_the_intervals_are_the_estimators(folder, options, settings):
    options = options.split() if isinstance(options, str) else options
    found, printed = intervals_of(*options)
    X, y, X_new = numeric(folder)
    model = lk.LazyJackknifeRegressor(**(DEFAULTS | settings)).fit(X, y, X_pool=X_new)
    expected = model.predict_interval(X_new).to_frame()
    assert len(found) == 20
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9)
    assert str(model.certificate_).splitlines()[0] in printed


def test_several_levels_are_fitted_once(folder):
    found, printed = intervals_of("--alpha", ".1", "--alpha", ".25", "--alpha", ".1")
    X, y, X_new = numeric(folder)
    model = lk.LazyJackknifeRegressor(**DEFAULTS)
    intervals = model.fit(X, y, X_pool=X_new).predict_interval(X_new, alpha=[0.1, 0.25])
    pd.testing.assert_frame_equal(found, intervals.to_frame(), rtol=1e-9)
    truth = read_table(folder / "test.csv")["y"]
    shares = intervals.covers(truth).mean(axis=0)
    for level, share in zip(("0.1", "0.25"), shares, strict=True):
        assert re.search(rf"coverage of the new rows, alpha = {level} +{share:.3f} ±", printed)
    assert printed.count("mean width, alpha = 0.1 ") == 1


def test_the_unit_is_taken_back_and_nu_is_in_the_targets_unit(folder):
    scaled, _ = intervals_of("--unit", "1000")
    X, y, X_new = numeric(folder)
    model = lk.LazyJackknifeRegressor(**DEFAULTS)
    intervals = model.fit(X, y / 1000, X_pool=X_new).predict_interval(X_new)
    pd.testing.assert_frame_equal(scaled, 1000 * intervals.to_frame(), rtol=1e-9)
    widened, _ = intervals_of("--unit", "1000", "--nu", "50")
    np.testing.assert_allclose(widened["lower"], scaled["lower"] - 50, rtol=1e-5)
    np.testing.assert_allclose(widened["upper"], scaled["upper"] + 50, rtol=1e-5)


def test_without_a_base_to_add_the_unit_makes_no_difference(folder):
    """A network whose output starts near 0 beside the target: nothing but the lazy step counts."""
    for table in ("train.csv", "test.csv"):
        read_table(folder / table).eval("y = 1e6 * y").to_csv(table, index=False)
    plain, _ = intervals_of()
    scaled, _ = intervals_of("--unit", "1000")
    spread = plain["upper"] - plain["lower"]
    for column in plain:
        assert (abs(scaled[column] - plain[column]) < 1e-4 * spread).all()


def test_names_are_carried_over_and_the_order_is_kept(folder):
    options = ("--drop", "name", "--drop", "group", "--drop", "gap", "--drop", "code")
    files = {"train": "mixed_train.csv", "test": "mixed_test.csv"}
    without, _ = intervals_of(*options, **files)
    found, _ = intervals_of("--id", "name", *options[2:], **files)
    assert found.columns.tolist() == ["name", "point", "lower", "upper"]
    assert found["name"].tolist() == [f"r{i}" for i in range(40, 60)]
    pd.testing.assert_frame_equal(found.drop(columns="name"), without)
    frame = read_table(folder / "mixed_test.csv").iloc[::-1]
    frame.to_csv("reversed.csv", index=False)
    backwards, _ = intervals_of("--id", "name", *options[2:], **files | {"test": "reversed.csv"})
    backwards = backwards.iloc[::-1].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, backwards, rtol=1e-8)


def test_categories_that_the_training_rows_lack_are_encoded(folder):
    """Nobody is told to leave rows out: that would select new rows by the training rows."""
    options = ("--id", "name", "--drop", "gap", "--drop", "code")
    result = run(*predict(*options, train="mixed_train.csv", test="unseen.csv"))
    assert result.exit_code == 0
    assert result.stderr == "note: group: 3 categories became 3 columns.\n"
    frame = read_table(folder / "mixed_test.csv")
    frame.loc[3, "group"] = "q"
    frame.loc[4, "group"] = None
    frame.to_csv("two.csv", index=False)
    result = run(*predict(*options, train="mixed_train.csv", test="two.csv"))
    assert result.exit_code == 0
    note = "2 categories became 2 columns; 2 categories that occur in one row only have none"
    assert result.stderr == f"note: group: {note}.\n"
    found = pd.read_csv("out.csv")
    assert len(found) == 20
    assert np.isfinite(found.drop(columns="name")).all(axis=None)


def test_dates_are_days_in_either_kind_of_file(folder):
    rng = np.random.default_rng(3)
    for table in ("train", "test"):
        frame = read_table(folder / f"{table}.csv")
        days = rng.integers(0, 20000, len(frame))
        frame.assign(d=days).to_csv(f"{table}_number.csv", index=False)
        dates = pd.Timestamp(0) + pd.to_timedelta(days, unit="D")
        frame.assign(d=dates.strftime("%Y-%m-%d")).to_csv(f"{table}_date.csv", index=False)
        frame.assign(d=dates).to_parquet(f"{table}_date.parquet")
    expected, _ = intervals_of(train="train_number.csv", test="test_number.csv")
    for train, test in (("csv", "csv"), ("parquet", "csv"), ("parquet", "parquet")):
        result = run(*predict(train=f"train_date.{train}", test=f"test_date.{test}"))
        assert result.stderr == "note: d: dates became days since 1970-01-01.\n"
        pd.testing.assert_frame_equal(pd.read_csv("out.csv"), expected)


def test_the_type_of_a_column_is_that_of_both_files_together(folder):
    rng = np.random.default_rng(4)
    for table, codes in (("train", ["01", "02"]), ("test", ["01", "02", "b7"])):
        frame = read_table(folder / f"{table}.csv")
        frame.assign(code=rng.choice(codes, len(frame))).to_csv(f"{table}.csv", index=False)
    result = run(*predict("--categorical", "code"))
    assert result.exit_code == 0
    assert result.stderr == "note: code: 3 categories became 3 columns.\n"


def test_all_kinds_of_files_give_the_same(folder):
    expected, _ = intervals_of()
    train, test = read_table(folder / "train.csv"), read_table(folder / "test.csv")
    train.to_parquet("train.parquet")
    train.to_csv("train.csv.gz", index=False)
    test.to_csv("test.tsv", sep="\t", index=False)
    for file in ("train.parquet", "train.csv.gz"):
        found, _ = intervals_of(train=file, test="test.tsv")
        pd.testing.assert_frame_equal(found, expected)
    for output in ("new/folder/out.parquet", "out.tsv", "out.csv.gz"):
        succeed(*predict(output=output))
        pd.testing.assert_frame_equal(read_table(folder / output), expected, rtol=1e-12)


# predict: the words


@pytest.mark.parametrize(
    ("options", "scope"),
    [
        ([], "the rows of test.csv, and no others"),
        (["--scaling", "symlog+standardize"], "the rows of test.csv, and no others"),
        (["--scaling", "none"], "any new row"),
        (["--scaling", "symlog"], "any new row"),
    ],
)
def test_the_scope_names_the_file_if_anything_was_fitted(folder, options, scope):
    printed = intervals_of(*options)[1]
    assert f"\nScope: {scope}; on average" in printed
    pooled = "  - All rows of the two files together are exchangeable.\n" in printed
    assert pooled == (scope != "any new row")
    assert "X_pool" not in printed


@pytest.mark.parametrize("kept", ["group", "gap", "code"])
def test_medians_and_categories_narrow_the_scope(folder, kept):
    dropped = [name for name in ("name", "group", "gap", "code") if name != kept]
    options = [part for name in dropped for part in ("--drop", name)]
    files = {"train": "mixed_train.csv", "test": "mixed_test.csv"}
    whole = predict("--scaling", "none", *options, **files)
    result = run(*whole, "--categorical", "code") if kept == "code" else run(*whole)
    assert result.exit_code == 0
    assert "Scope: the rows of mixed_test.csv, and no others;" in result.stdout
    assert "  - All rows of the two files together are exchangeable." in result.stdout
    note = {"gap": "missing values filled with the median"}.get(kept, "categories became")
    assert re.fullmatch(rf"note: {kept}: .*{note}.*\n", result.stderr)
    plain = "Scope: any new row;" in run(*whole).stdout
    assert plain == (kept == "code")  # numbers as they are


def certificates_in(printed):
    """The lines of the certificates."""
    return printed.partition("\n\n")[2].rpartition("\n\n")[0].splitlines()


def test_every_level_has_its_certificate(folder):
    options = ("--alpha", ".2", "--alpha", ".1", "--alpha", ".6", "--html", "page.html")
    _, printed = intervals_of(*options)
    first, *others = certificates_in(printed)
    claims = [
        re.fullmatch(r".*at least (0\.\d{4}) \(.*alpha = (.*), n = 40, Public base\)\.", line)
        for line in (first, others[-2])
    ]
    expected = [lk.certify(n=40, alpha=alpha, base=lk.Public()).coverage for alpha in (0.2, 0.1)]
    for claim, alpha, coverage in zip(claims, ("0.2", "0.1"), expected, strict=True):
        assert claim[2] == alpha
        assert 0 <= coverage - float(claim[1]) < 1e-4
    assert others[-1].startswith("The guarantee is vacuous")
    assert "alpha = 0.6" in others[-1]
    assert printed.count("Scope: the rows of test.csv") == 1
    page = re.sub(r"<[^>]+>", "|", (folder / "page.html").read_text())
    assert "Guarantee of each level" in page
    for line in (first, *others[-2:]):
        assert line.replace("'", "&#39;") in page
    for coverage in expected:
        assert f"{coverage:.4f}" in page


def test_the_first_level_that_is_certified_is_told_in_full(folder):
    vacuous, *others = certificates_in(intervals_of("--alpha", ".6", "--alpha", ".1")[1])
    assert vacuous.startswith("The guarantee is vacuous")
    assert "n = 40, Public base, alpha = 0.1" in others[0]
    assert "It assumes:" in others
    none = certificates_in(
        intervals_of("--base", "plain", "--epochs", "1", "--alpha", ".1", "--alpha", ".2")[1]
    )
    assert [line[:25] for line in none if line] == ["No coverage is guaranteed"] * 2
    assert all(line.endswith("with a finite epsilon.") for line in none if line)


@pytest.mark.parametrize("base", [PUBLIC, ("--base", "plain", "--epochs", "1")])
def test_coverage_far_below_the_certificate_is_said_loudly(folder, base):
    frame = read_table(folder / "test.csv")
    frame.assign(y=frame["y"] * 1000).to_csv("metres.csv", index=False)
    arguments = predict("--alpha", ".1", "--alpha", ".3", "--html", "page.html", base=base)
    plain, result = (
        run(*arguments),
        run(*("metres.csv" if a == "test.csv" else a for a in arguments)),
    )
    assert (plain.exit_code, result.exit_code) == (0, 0)
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", (folder / "page.html").read_text()))
    assert plain.stderr == ""
    if base != PUBLIC:  # there is no certificate
        assert result.stderr == ""
        assert "BELOW" not in page
        return
    *levels, advice = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in levels] == ["warning"] * 2
    share = re.search(r"coverage of the new rows, alpha = 0.1 +(0\.\d+)", result.stdout)[1]
    certified = lk.certify(n=40, alpha=0.1, base=lk.Public()).coverage
    assert levels[0].startswith("warning: COVERAGE BELOW THE CERTIFICATE at alpha = 0.1: ")
    assert f"{share} of the 20 new rows are covered, {certified:.3f} is certified" in levels[0]
    assert "at most 1% of the runs" in levels[0]
    assert "at alpha = 0.3: " in levels[1]
    for cause in ("time", "population", "unit", "selected", "several times"):
        assert cause in advice
    for line in (*levels, advice):
        assert line.removeprefix("warning: ") in page


def test_low_coverage_is_significant_3_standard_errors_below_the_certificate():
    def limit(certified, count, models):
        error = math.sqrt(certified * (1 - certified) * (1 / count + 1 / (models + 2)))
        return math.ceil(count * (certified - 3 * error))

    for certified, count, models in ((0.9, 10000, 2000), (0.8, 500, 1000), (0.95, 3000, 400)):
        least = limit(certified, count, models)
        assert not outcome.is_too_low(least, count, certified, models)
        assert outcome.is_too_low(int(0.98 * least) - 1, count, certified, models)
    assert outcome.is_too_low(0, 10, 0.9, 40)
    assert not outcome.is_too_low(0, 1, 0.9, 40)
    assert not outcome.is_too_low(20, 20, 1.0, 5)


@pytest.mark.parametrize("models", [20, 40, 100, 1000])
def test_exchangeable_rows_are_warned_about_in_at_most_1_percent_of_the_runs(models):
    """Coverage given the training rows has the law Beta(n + 1 − κ, κ): an exact computation."""
    for kappa in {max(1, int(alpha * (models + 1))) for alpha in (0.01, 0.05, 0.1, 0.2)}:
        certified = 1 - kappa / (models + 1)
        for count in (1, 5, 20, 31, 100, 400):
            law = betabinom(count, models + 1 - kappa, kappa)
            alarms = [
                law.pmf(covered)
                for covered in range(count + 1)
                if outcome.is_too_low(covered, count, certified, models)
            ]
            assert sum(alarms) <= outcome.FALSE_ALARMS


def test_nothing_is_guaranteed_for_a_plain_base(folder):
    _, printed = intervals_of("--base", "plain", "--epochs", "1")
    assert "\nNo coverage is guaranteed (" in printed
    assert "Scope" not in printed


def test_new_rows_without_a_target_are_not_scored(folder):
    scored, printed = intervals_of()
    assert "interval score" in printed
    read_table(folder / "test.csv").drop(columns="y").to_csv("bare.csv", index=False)
    found, printed = intervals_of(test="bare.csv")
    assert "coverage of the new rows" not in printed
    assert "mean width, alpha = 0.1" in printed
    pd.testing.assert_frame_equal(found, scored)
    assert "Wrote 20 intervals to out.csv." in printed


def test_warnings_of_the_library_are_one_line(folder):
    result = run(*predict("--readout", "network", train="five.csv"))
    lines = result.stderr.splitlines()
    assert lines[-1] == (
        "warning: 5 rows are too few for alpha=0.1: the intervals are infinite. "
        "At least 9 rows are needed"
    )
    assert all(line.startswith("warning: ") for line in lines)
    assert result.exit_code == 0
    assert np.isinf(pd.read_csv("out.csv")["upper"]).all()


# predict: what is refused


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train": "folder"}, "folder: this is a folder: give a file inside it"),
        ({"test": "folder"}, "folder: this is a folder"),
        ({"train": "nowhere.csv"}, "nowhere.csv: there is no such file"),
        ({"train": "empty.csv"}, "empty.csv: the file is empty"),
        ({"train": "header.csv"}, "header.csv: there are no rows"),
        ({"train": "binary.csv"}, "binary.csv: a binary file"),
        ({"train": "two.csv"}, "two.csv: too few rows, 2: give at least 3"),
        ({"train": "five.csv", "base": ()}, "batch_size=10 is more than the 5 rows"),
        ({"test": "train.csv"}, "train.csv: TRAIN and TEST are the same file"),
        ({"test": "other.csv"}, "other.csv: no column 'a', which train.csv has"),
        ({"train": "mixed_train.csv", "test": "mixed_test.csv"}, "column 'name' has 60 values"),
        ({"output": "folder"}, "folder: this is a folder: give the name of a file"),
        ({"output": "out.txt"}, "out.txt: give a name that ends in .csv"),
        ({"output": "train.csv/out.csv"}, "train.csv cannot be written to"),
        ({"output": "train.csv"}, "train.csv: the data are in this file"),
        ({"output": "folder/../test.csv"}, "test.csv: the data are in this file"),
    ],
)
def test_a_file_that_will_not_do_is_named(folder, given, message):
    assert message in fail(*predict(**given))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--target z", "train.csv: no column 'z'"),
        ("--drop z", "no column 'z'"),
        ("--id z", "test.csv: no column 'z'"),
        ("--id lower_0.1", "--id lower_0.1: the output has its own column of this name"),
        ("--ridge abc", "--ridge abc: give 'auto' or a number"),
        ("--ridge -1", "ridge=-1.0: give a number above 0"),
        ("--hidden x", "--hidden 'x': give widths of layers such as 64,64"),
        ("--hidden 8,0", "--hidden '8,0'"),
        ("--alpha 2", "alpha=2.0: give a number strictly between 0 and 1"),
        ("--alpha .1 --alpha 0", "alpha=0.0: give a number strictly between 0 and 1"),
        ("--alpha x", "Invalid value for '--alpha'"),
        ("--memory-budget zz", "--memory-budget zz: give bytes, or such as 800MB"),
        ("--memory-budget 1.2.3GB", "--memory-budget 1.2.3GB"),
        ("--unit 0", "unit=0.0: give a number above 0"),
        ("--unit nan", "unit=nan: give a finite number"),
        ("--nu -5 --unit 10", "nu=-5.0: give 0 or a number above 0"),
        ("--seed -1", "Invalid value for '--seed'"),
        ("--sketch 0", "dimension=0: give a whole number"),
        ("--sketch 9 --readout network", "use readout='tangent'"),
        ("--parameters nothing.*", "no parameter of the network matches ['nothing.*']"),
        ("--parameters last --parameters x", "no parameter of the network matches"),
        ("--device banana", "device='banana': give 'auto', 'cpu'"),
        ("--construction x", "'x' is not one of 'plus', 'minmax'"),
        ("--widths x", "'x' is not one of 'noise', 'leverage', 'constant'"),
        ("--loss x", "'x' is not one of 'squared', 'huber', 'logistic', 'poisson'"),
        (
            "--construction full --widths noise",
            "widths='noise' does not go with construction='full'",
        ),
        ("--construction full --readout network", "use readout='tangent', not 'network'"),
        ("--construction cv+ --folds 1", "folds=1: give at least 2"),
        ("--construction cv+ --folds 41", "folds=41 is more than the 40 rows"),
        ("--widths noise --sketch 9", "widths='noise' needs the kernel of all rows"),
        ("--loss huber --construction cv+", "construction='cv+' has a closed form for the squared"),
        ("--loss huber --widths leverage", "loss='huber' goes with widths='constant'"),
        ("--loss logistic", "is not a valid target for loss='logistic': give targets of 0 and 1"),
        ("--starts 0", "starts=0: give a whole number"),
        ("--base split --epsilon 1", "--epsilon does not go with --base split: leave it out"),
        ("--fraction .5", "--fraction does not go with --base public"),
        ("--base perturbed --epsilon 1", "--base perturbed needs --sensitivity"),
        ("--base perturbed --sensitivity 1", "--base perturbed needs --epsilon"),
        ("--base dpsgd --epsilon 1 --noise-multiplier 1", "give --epsilon or --noise-multiplier"),
        ("--base dpsgd --batch-size 41", "batch_size=41 is more than the 40 rows"),
        ("--base plain --epochs 0", "epochs=0: give a whole number"),
        ("--figure f.txt", "f.txt: give a name that ends in .svg"),
        ("--html folder", "folder: this is a folder"),
    ],
)
def test_a_setting_that_will_not_do_is_named_and_nothing_is_written(folder, options, message):
    (folder / "out.csv").write_text("old")
    before = sorted(folder.rglob("*"))
    assert message in fail(*predict(*options.split()))
    assert (folder / "out.csv").read_text() == "old"
    assert sorted(folder.rglob("*")) == before


def test_columns_that_cannot_be_used_are_named(folder):
    read_table(folder / "test.csv").assign(a="x").to_csv("letters.csv", index=False)
    read_table(folder / "train.csv").assign(a=range(40)).to_parquet("train.parquet")
    message = fail(*predict(train="train.parquet", test="letters.csv"))
    assert message.startswith("train.parquet and letters.csv: column 'a' holds numbers in one file")
    assert message.endswith("pass --categorical a or --drop a")


def test_a_run_that_fails_at_the_end_leaves_the_old_files(folder, monkeypatch):
    def broken(*_, **__):
        raise OSError("no space left")

    outputs = {name: folder / f"old.{name}" for name in ("csv", "svg", "html")}
    for path in outputs.values():
        path.write_text("old")
    before = sorted(folder.rglob("*"))
    page = ("--html", "old.html", "--figure", "old.svg")
    with monkeypatch.context() as patch:
        patch.setattr("lazyknife.plots.figure_svg", broken)
        assert fail(*predict(*page, output="old.csv")) == "no space left"
        assert {path.read_text() for path in outputs.values()} == {"old"}
    with monkeypatch.context() as patch:
        patch.setattr(pd.DataFrame, "to_csv", broken)
        assert "old.csv: the file cannot be written (no space left)" in fail(
            *predict(*page, output="old.csv")
        )
        assert {path.read_text() for path in outputs.values()} == {"old"}
    assert sorted(folder.rglob("*")) == before
    succeed(*predict(*page, output="old.csv"))
    assert "old" not in {path.read_text() for path in outputs.values()}


# Pages and figures


def check_self_contained(page):
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    assert not re.search(r"""(src|href)=["'](?!#|data:)|@import|url\((?!#)""", page)


def test_a_page_holds_all_that_is_to_be_known(folder):
    options = ("--id", "name", "--drop", "code", "--alpha", ".2", "--alpha", ".1")
    arguments = predict(
        *options,
        *("--html", "page.html", "--figure", "new/figure.png", "--no-intercept"),
        train="mixed_train.csv",
        test="mixed_test.csv",
    )
    result = run(*arguments)
    assert result.exit_code == 0
    page = (folder / "page.html").read_text()
    check_self_contained(page)
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    for part in (
        "mixed_train.csv → mixed_test.csv",
        "Intervals, sorted by prediction",
        "Coverage by width of the interval",
        "gap: 9 missing values filled with the median",
        "coverage of the new rows, alpha = 0.1",
        "At alpha = 0.2.",
        "--id name",
        "--intercept no",
        "--alpha 0.2, 0.1",
        "--base public",
        "r59",
    ):
        assert part in text, part
    assert "--epsilon" not in text
    assert (folder / "new" / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_page_names_the_command_that_made_it(folder, monkeypatch):
    arguments = predict("--html", "a page.html")
    monkeypatch.setattr(sys, "argv", ["/usr/bin/lazyknife", *arguments])
    succeed(*arguments)
    text = re.sub(r"<[^>]+>", "", (folder / "a page.html").read_text())
    typed = "lazyknife predict train.csv test.csv --target y --output out.csv --base public"
    assert f"{typed} --html &#39;a page.html&#39;" in re.sub(r"\s+", " ", text)


# compare

QUICK = ("--jobs", "1", "--folds", "2", "--epochs", "1")


def compare(*options, data="all.csv"):
    return ("compare", data, "--target", "y", *QUICK, *options)


def test_methods_are_compared_in_a_table_a_figure_and_a_page(folder):
    printed = succeed(
        *compare("--method", "lazyknife", "--method", "naive", "--method", "naive"),
        *("--output", "rows.csv", "--figure", "figure.svg", "--html", "page.html"),
    )
    rows = pd.read_csv("rows.csv")
    assert rows["method"].tolist() == ["lazyknife"] * 2 + ["naive"] * 2
    assert rows["error"].isna().all()
    title, head, _, first, second = printed.splitlines()[:5]
    assert title.strip() == (
        "all.csv: 60 rows, 3 features, 2 folds of 30 training rows, alpha = 0.1."
    )
    assert " ".join(head.split()) == "method coverage width interval score seconds certified"
    own = rows[:2]
    width = console.plus_minus(own["width"].mean(), own["width"].sem())
    assert first.startswith("lazyknife ")
    assert f" {width} " in first
    assert first.endswith(f" {own['certified'].mean():.3f}")
    assert second.startswith("naive ")
    assert second.endswith(" none")
    assert "Wrote 4 rows to rows.csv." in printed
    assert (folder / "figure.svg").read_text().startswith("<?xml")
    page = (folder / "page.html").read_text()
    check_self_contained(page)
    assert "lazyknife" in page
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "--method lazyknife, naive" in text


def test_the_comparison_is_in_the_targets_unit(folder):
    for unit in ("1", "1000"):
        options = ("--method", "lazyknife", "--unit", unit, "--output", f"{unit}.csv")
        succeed(*compare(*options))
    one, thousand = (pd.read_csv(f"{unit}.csv") for unit in ("1", "1000"))
    for column in ("width", "score", "coverage"):  # the network's own start counts a little
        np.testing.assert_allclose(one[column], thousand[column], rtol=0.1)


def test_a_method_that_fails_is_recorded_and_the_others_are_shown(folder):
    options = ("--method", "lazyknife", "--method", "lazy_public", "--train-rows", "2")
    outputs = ("--output", "rows.csv", "--figure", "figure.svg", "--html", "page.html")
    result = run(*compare(*options, "--alpha", ".5", *outputs))
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "error: lazyknife, 2 of 2 folds: ValueError: ridge='auto' needs at least 3 rows"
    )
    assert len(result.stderr.splitlines()) == 1
    assert re.search(r"\nlazyknife +failed", result.stdout)
    assert re.search(r"\nlazy_public +[01]\.", result.stdout)
    rows = pd.read_csv("rows.csv")
    assert rows["error"].notna().tolist() == [True, True, False, False]
    assert (folder / "figure.svg").exists()
    assert "lazy_public" in (folder / "page.html").read_text()


def test_warnings_of_a_comparison_are_said_once(folder):
    result = run(*compare("--method", "lazyknife", "--alpha", ".001"))
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("warning: lazyknife, 2 of 2 folds: 30 rows are too few")
    assert " inf " in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--method x", "method='x': choose from 'naive'"),
        ("--alpha 2", "alpha=2.0"),
        ("--epochs 0", "epochs=0"),
        ("--folds 61", "folds=61: give between 2 and the number of rows, 60"),
        ("--train-rows 0", "train_rows=0"),
        ("--jobs 0", "--jobs 0: give 1 or more"),
        ("--unit 0", "unit=0.0"),
        ("--target z", "all.csv: no column 'z'"),
        ("--output all.csv", "all.csv: the data are in this file"),
        ("--html folder", "folder: this is a folder"),
    ],
)
def test_a_comparison_that_cannot_start_is_one_line(folder, options, message):
    assert message in fail(*compare(*options.split()))


def test_a_comparison_of_a_folder_is_refused(folder):
    assert "folder: this is a folder: give a file inside it" in fail(*compare(data="folder"))


def test_all_methods_are_named_in_the_help():
    text = " ".join(succeed("compare", "--help").replace("│", " ").split())
    assert ", ".join(DEFAULT) in text
    assert all(re.search(rf"[ ,]{re.escape(name)}[,;.]", text) for name in METHODS)


# certify, plan


def test_certificates_are_the_librarys():
    printed = succeed("certify", "--n", "200", "--construction", "minmax", "--base", "public")
    expected = lk.certify(n=200, alpha=0.1, construction="minmax", base=lk.Public())
    assert printed == f"{expected}\n"
    options = ("--base", "perturbed", "--sensitivity", "1", "--epsilon", ".3", "--norm", "l2")
    options += ("--parameters", "1000", "--eta", ".01", "--nu", ".2")
    printed = succeed("certify", "--n", "200", "--alpha", ".2", *options)
    base = lk.Perturbed(1.0, 0.3)
    expected = lk.certify(n=200, alpha=0.2, base=base, n_parameters=1000, eta=0.01, nu=0.2)
    assert printed == f"{expected}\n"
    assert "ν = 0.2" in printed
    assert "No coverage is guaranteed" in succeed("certify", "--n", "200", "--base", "plain")


@pytest.mark.parametrize("folds", [4, 10, 7])
def test_certificates_of_folds_are_the_librarys(folds):
    options = ("--construction", "cv+", "--folds", folds, "--base", "public")
    printed = succeed("certify", "--n", "200", *options)
    expected = lk.certify(n=200, alpha=0.1, construction="cv+", base=lk.Public(), folds=folds)
    assert printed == f"{expected}\n"
    assert f"'cv+' with {folds} folds" in printed
    assert ("200 is not divisible by 7" in printed) == (folds == 7)


def test_full_conformal_is_certified_like_minmax():
    options = ("certify", "--n", "200", "--base", "public", "--construction")
    full, minmax = (succeed(*options, construction) for construction in ("full", "minmax"))
    assert full == minmax.replace("'minmax'", "'full'")
    assert "at least 0.9004" in full  # 1 − 20/201, rounded down


def test_plans_of_full_conformal_and_folds_are_the_librarys():
    for options, settings in (
        (("--construction", "full"), {"construction": "full"}),
        (("--construction", "cv+", "--folds", "20"), {"construction": "cv+", "folds": 20}),
    ):
        printed = succeed("plan", "--n", "200", "--coverage", ".7", *options, *PUBLIC)
        assert printed == f"{lk.plan(n=200, coverage=0.7, base=lk.Public(), **settings)}\n"
    wrong = ("plan", "--n", "200", "--coverage", ".7", *PUBLIC, "--construction")
    assert "folds=7: 'cv+' requires equal folds" in fail(*wrong, "cv+", "--folds", "7")
    assert "'naive' is not one of 'plus', 'minmax', 'full', 'cv+'" in fail(*wrong, "naive")


def test_plans_are_the_librarys():
    printed = succeed("plan", "--n", "100", "--coverage", ".8", "--base", "public")
    assert printed == f"{lk.plan(n=100, coverage=0.8, base=lk.Public())}\n"
    options = ("--base", "perturbed", "--sensitivity", "1", "--alpha", ".05")
    printed = succeed("plan", "--n", "1000", "--coverage", ".8", *options)
    base = lk.Perturbed(1.0, 1.0)
    assert printed == f"{lk.plan(n=1000, coverage=0.8, alpha=0.05, base=base)}\n"
    noisy = ("--noise-multiplier", "30", "--epochs", "1", "--construction", "minmax")
    printed = succeed("plan", "--n", "100", "--coverage", ".85", *noisy)
    base = lk.DPSGD(noise_multiplier=30.0, epochs=1)
    expected = lk.plan(n=100, coverage=0.85, construction="minmax", base=base)
    assert printed == f"{expected}\n"


def test_no_plan_is_exit_code_1():
    result = run("plan", "--n", "100", "--coverage", ".999", "--base", "public")
    assert result.exit_code == 1
    assert result.stdout.startswith("No alpha certifies 0.999")


# How numbers, tables and values are read and shown


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [
        (5339.2, 862.1, "5340 ± 860"),
        (0.8833, 0.01734, "0.883 ± 0.017"),
        (0.9, 0.1, "0.90 ± 0.10"),
        (-12.3456, 1.26, "-12.3 ± 1.3"),
        (0.9, 0.0, "0.9"),
        (1234.5678, math.nan, "1235"),
        (math.inf, math.nan, "inf"),
        (1.0, 1e-9, "1.0000 ± 0.0000"),
        (0.0, 0.25, "0.00 ± 0.25"),
    ],
)
def test_means_are_shown_to_the_errors_second_digit(mean, error, text):
    assert console.plus_minus(mean, error) == text


def test_the_table_of_a_comparison_fits_a_narrow_screen(folder, monkeypatch):
    monkeypatch.setattr(console, "WIDE", 80)
    methods = ("lazyknife", "split_conformal", "cv+")
    options = [part for name in methods for part in ("--method", name)]
    printed = succeed(*compare(*options))
    assert all(len(line) <= 80 for line in printed.splitlines())
    assert len(printed.splitlines()) <= 7
    assert all(re.search(rf"^{re.escape(name)} ", printed, re.MULTILINE) for name in methods)


def test_long_lines_are_whole_in_a_file_and_broken_on_a_screen(capsys, monkeypatch):
    text = "word " * 100
    console.print_text(text)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    console.print_text(text)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4 * 2**30), ("800 MB", 800 * 2**20), (".5k", 512), ("12", 12), ("2GiB", 2**31)],
)
def test_sizes_are_read(text, size):
    assert values.parse_bytes(text) == size
