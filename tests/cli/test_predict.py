"""``lazyknife predict``: its numbers, its words, what it refuses, and its pages."""

import html
import inspect
import io
import re
import sys
from dataclasses import fields
from typing import Literal, get_args, get_origin

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import lazyknife as lk
from command import check_self_contained, fail, in_shell, intervals_of, predict, run, succeed
from lazyknife.base import BASES
from lazyknife.cli import options as opt
from lazyknife.cli.app import app
from lazyknife.cli.output import safe_cells
from lazyknife.cli.predict import in_unit
from lazyknife.data.targets import TARGETS
from lazyknife.intervals import CONSTRUCTIONS
from lazyknife.losses import LOSSES
from lazyknife.ridge.widths import WIDTHS
from lazyknife.sentences import percent

# Settings of the command that are not the defaults of the class.
DEFAULTS = {"random_state": 0}


def numeric(folder):
    train, test = (pd.read_csv(folder / name) for name in ("train.csv", "test.csv"))
    columns = ["a", "b", "c"]
    return train[columns].to_numpy(), train["y"].to_numpy(), test[columns].to_numpy()


# predict: the numbers


def test_options_are_the_settings_of_the_library():
    """Names, defaults and choices; the settings that only Python has are named here."""
    signature = inspect.signature(lk.LazyJackknifeRegressor).parameters
    renamed = {"hidden": "network", "seed": "random_state", "lower_bound": "bounds"}
    names = {renamed.get(name, name) for name in opt.SETTINGS} - {
        *("unit", "upper_bound", "preset", "skip")
    }
    only_python = {"parameters", "features", "memory_budget", "encoding", "base"}
    assert names == set(signature) - only_python
    given = {name: default for name, (_, default) in opt.SETTINGS.items()} | {"verbose": False}
    found = opt.settings_of(given)
    assert found == {name: signature[name].default for name in found} | DEFAULTS
    kinds = (lk.DPSGD, lk.Perturbed, lk.Public, lk.Split, lk.Plain)
    settings = {field.name for kind in kinds for field in fields(kind)} - {"training"}
    assert settings == set(opt.BASES) - {"base"}
    for name, known in {
        "construction": ("auto", *CONSTRUCTIONS),
        "widths": WIDTHS,
        "loss": LOSSES,
        "target_transform": ("auto", *TARGETS, "none"),
    }.items():
        assert choices(opt.SETTINGS[name]) == list(known)
    assert choices(opt.BASES["base"]) == list(BASES)


def choices(option):
    """The values of a setting with few of them."""
    kind = get_args(option[0])[0]
    literal = kind if get_origin(kind) is Literal else get_args(kind)[0]
    return list(get_args(literal))


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
        ("--widths leverage --n-starts 3", {"widths": "leverage", "n_starts": 3}),
        ("--loss huber --ridge 2", {"loss": "huber", "ridge": 2.0}),
        (
            "--readout network --no-fit-intercept --ridge 1e6",
            {"readout": "network", "fit_intercept": False, "ridge": 1e6},
        ),
        ("--hidden 8", {"network": lk.mlp((8,), skip=True), "scaling": "standardize"}),
        ("--feature-weights none", {"feature_weights": None}),
        ("--scaling none", {"scaling": None}),
        ("--scaling symlog", {"scaling": "symlog"}),
        ("--device cpu", {"device": "cpu"}),
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
    headline = in_shell(model.certificate_.headline).replace("passed as X_pool", "of test.csv")
    assert headline in printed


def test_a_preset_is_the_papers_method_and_options_beside_it_count(folder):
    options = ("--preset", "paper", "--epsilon", ".5", "--epochs", "1", "--readout", "tangent")
    found, _ = intervals_of(*options, base=())
    X, y, X_new = numeric(folder)
    model = lk.DPLazyPI(epsilon=0.5, epochs=1, readout="tangent", random_state=0).fit(X, y)
    pd.testing.assert_frame_equal(found, model.predict_interval(X_new).to_frame(), rtol=1e-9)


def test_several_levels_are_fitted_once(folder):
    found, printed = intervals_of("--alpha", ".1", "--alpha", ".25", "--alpha", ".1")
    X, y, X_new = numeric(folder)
    model = lk.LazyJackknifeRegressor(**DEFAULTS)
    intervals = model.fit(X, y, X_pool=X_new).predict_interval(X_new, alpha=[0.1, 0.25])
    pd.testing.assert_frame_equal(found, intervals.to_frame(), rtol=1e-9)
    truth = pd.read_csv(folder / "test.csv")["y"]
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


def test_a_function_of_the_target_is_learned_within_bounds(folder):
    for table in ("train.csv", "test.csv"):
        pd.read_csv(folder / table).eval("y = exp(y / 1000)").to_csv(table, index=False)
    X, y, X_new = numeric(folder)
    least = float(y.min())
    options = ("--lower-bound", str(least), "--target-transform", "log1p", "--nu", "0.1")
    found, printed = intervals_of(*options)
    settings = DEFAULTS | {"target_transform": "log1p", "bounds": (least, None), "nu": 0.1}
    model = lk.LazyJackknifeRegressor(**settings).fit(X, y, X_pool=X_new)
    pd.testing.assert_frame_equal(found, model.predict_interval(X_new).to_frame(), rtol=1e-9)
    assert (found["lower"] == least).any()
    assert f"within bounds=({least}, None)" in printed


def test_without_a_base_to_add_the_unit_makes_no_difference(folder):
    """A network whose output starts near 0 beside the target: nothing but the lazy step counts."""
    for table in ("train.csv", "test.csv"):
        pd.read_csv(folder / table).eval("y = 1e6 * y").to_csv(table, index=False)
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
    assert found.columns.tolist() == ["name", "point", "lower", "upper", "width"]
    assert found["name"].tolist() == [f"r{i}" for i in range(40, 60)]
    pd.testing.assert_frame_equal(found.drop(columns="name"), without)
    frame = pd.read_csv(folder / "mixed_test.csv").iloc[::-1]
    frame.to_csv("reversed.csv", index=False)
    backwards, _ = intervals_of("--id", "name", *options[2:], **files | {"test": "reversed.csv"})
    backwards = backwards.iloc[::-1].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, backwards, rtol=1e-8)


def test_categories_that_the_training_rows_lack_are_encoded(folder):
    """Nobody is told to leave rows out: that would select new rows by the training rows."""
    options = ("--id", "name", "--drop", "gap", "--drop", "code")
    result = run(*predict(*options, train="mixed_train.csv", test="unseen.csv"))
    assert result.exit_code == 0
    note, *others = result.stderr.splitlines()
    assert note == "note: group: 3 categories."
    assert any("group = q (share 0% → 100%)" in line for line in others)
    frame = pd.read_csv(folder / "mixed_test.csv")
    frame.loc[3, "group"] = "q"
    frame.loc[4, "group"] = None
    frame.to_csv("two.csv", index=False)
    result = run(*predict(*options, train="mixed_train.csv", test="two.csv"))
    assert result.exit_code == 0
    assert result.stderr == "note: group: 3 categories.\nnote: group: 1 missing value.\n"
    found = pd.read_csv("out.csv")
    assert len(found) == 20
    assert np.isfinite(found.drop(columns="name")).all(axis=None)


def test_dates_are_the_same_in_either_kind_of_file(folder):
    rng = np.random.default_rng(3)
    for table in ("train", "test"):
        frame = pd.read_csv(folder / f"{table}.csv")
        days = rng.integers(0, 20000, len(frame))
        dates = pd.Timestamp(0) + pd.to_timedelta(days, unit="D")
        frame.assign(d=dates.strftime("%Y-%m-%d")).to_csv(f"{table}_date.csv", index=False)
        frame.assign(d=dates).to_parquet(f"{table}_date.parquet")
    found = []
    for train, test in (("csv", "csv"), ("parquet", "csv"), ("parquet", "parquet")):
        result = run(*predict(train=f"train_date.{train}", test=f"test_date.{test}"))
        assert result.stderr == ""
        found.append(pd.read_csv("out.csv"))
    pd.testing.assert_frame_equal(found[0], found[1])
    pd.testing.assert_frame_equal(found[0], found[2])


def test_all_kinds_of_files_give_the_same(folder):
    expected, _ = intervals_of()
    train, test = pd.read_csv(folder / "train.csv"), pd.read_csv(folder / "test.csv")
    train.to_parquet("train.parquet")
    train.to_csv("train.csv.gz", index=False)
    test.to_csv("test.tsv", sep="\t", index=False)
    train.to_excel("train.xlsx", index=False)
    for file in ("train.parquet", "train.csv.gz", "train.xlsx"):
        found, _ = intervals_of(train=file, test="test.tsv")
        pd.testing.assert_frame_equal(found, expected)
    for output, read in (
        ("new/folder/out.parquet", pd.read_parquet),
        ("out.tsv", pd.read_table),
        ("out.csv.gz", pd.read_csv),
        ("out.xlsx", pd.read_excel),
    ):
        succeed(*predict(output=output))
        pd.testing.assert_frame_equal(read(output), expected, rtol=1e-12)


# predict: the words


@pytest.mark.parametrize(
    ("options", "scope"),
    [
        ([], "any new row"),
        (["--hidden", "8"], "the rows of test.csv, and no others"),
        (["--scaling", "standardize"], "the rows of test.csv, and no others"),
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
def test_medians_and_categories_narrow_the_scope_of_one_network(folder, kept):
    dropped = [name for name in ("name", "group", "gap", "code") if name != kept]
    options = [part for name in dropped for part in ("--drop", name)]
    files = {"train": "mixed_train.csv", "test": "mixed_test.csv"}
    whole = predict("--scaling", "none", *options, **files)
    result = run(*whole, "--categorical", "code") if kept == "code" else run(*whole)
    assert result.exit_code == 0
    assert "Scope: any new row;" in result.stdout
    note = {"gap": "missing values"}.get(kept, "categories")
    assert re.fullmatch(rf"note: {kept}: .*{note}.*\n", result.stderr)
    narrow = run(*whole, "--hidden", "8").stdout  # a network of finite width learns the encoding
    expected = "any new row" if kept == "code" else "the rows of mixed_test.csv, and no others"
    assert f"Scope: {expected};" in narrow
    pooled = "  - All rows of the two files together are exchangeable."
    assert (pooled in narrow) == (kept != "code")


def certificates_in(printed):
    """The lines of the certificates, below the table."""
    _, *parts = printed.rpartition("\n\n")[0].split("\n\n")
    return "\n\n".join(parts).splitlines()


def claims(*alphas, base=None):
    """The first lines of the certificates of fits, which say what "full" would certify."""
    terms, lines = {"n": 40, "base": base or lk.Public()}, []
    for alpha in alphas:
        plus, full = (lk.certify(alpha=alpha, construction=c, **terms) for c in ("plus", "full"))
        share, more = (percent(each.coverage or 0.0) for each in (plus, full))
        more = f"at least {share} ({more} with construction='full')"
        lines.append(plus.headline.replace(f"at least {share}", more))
    return lines


def test_every_level_has_its_certificate(folder):
    options = ("--alpha", ".2", "--alpha", ".1", "--alpha", ".6", "--html", "page.html")
    _, printed = intervals_of(*options)
    lines = certificates_in(printed)
    expected = claims(0.2, 0.1, 0.6)
    assert [lines[0], *lines[-2:]] == [*map(in_shell, expected)]
    assert printed.count("Scope: any new row") == 1
    page = html.unescape(re.sub(r"<[^>]+>", "|", (folder / "page.html").read_text()))
    for part in ("Guarantee of each level", *expected):
        assert part in page


def test_the_first_level_that_is_certified_is_told_in_full(folder):
    vacuous, *others = certificates_in(intervals_of("--alpha", ".6", "--alpha", ".1")[1])
    assert [vacuous, others[0]] == [*map(in_shell, claims(0.6, 0.1))]
    assert "It assumes:" in others
    options = ("--base", "plain", "--epochs", "1", "--alpha", ".1", "--alpha", ".2")
    none = certificates_in(intervals_of(*options)[1])
    first, second = claims(0.1, 0.2, base=lk.Plain())
    assert (none[0], none[-1]) == (first, second)
    assert "It assumes:" not in none


def test_nothing_is_guaranteed_for_a_plain_base(folder):
    _, printed = intervals_of("--base", "plain", "--epochs", "1")
    assert "\nNo coverage is guaranteed. " in printed
    assert "Scope" not in printed


def test_new_rows_without_a_target_are_not_scored(folder):
    scored, printed = intervals_of()
    assert "interval score" in printed
    pd.read_csv(folder / "test.csv").drop(columns="y").to_csv("bare.csv", index=False)
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
        ({"train": "folder"}, "folder is a folder: give a file inside it"),
        ({"test": "folder"}, "folder is a folder"),
        ({"train": "empty.csv"}, "empty.csv: the file is empty"),
        ({"train": "-"}, "standard input: the file is empty"),
        ({"train": "-", "test": "-"}, "TRAIN and TEST are both -: give one of them as a file"),
        ({"train": "header.csv"}, "header.csv: the file has no rows"),
        ({"train": "binary.csv"}, "binary.csv is a binary file"),
        ({"train": "two.csv"}, "two.csv: 2 rows are too few: give at least 3"),
        ({"train": "five.csv", "base": ("--base", "dpsgd")}, "batch_size=10 is more than the 5"),
        ({"test": "train.csv"}, "train.csv: TRAIN and TEST are the same file"),
        ({"output": "folder"}, "folder is a folder: give the name of a file"),
        ({"output": "train.csv"}, "train.csv contains the data"),
        ({"output": "folder/../test.csv"}, "test.csv contains the data"),
    ],
)
def test_a_file_that_will_not_do_is_named(folder, given, message):
    assert message in fail(*predict(**given))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--id lower_0.1", "test.csv: no column 'lower_0.1'"),
        ("--ridge abc", "--ridge abc: give auto or a number"),
        ("--ridge -1", "ridge=-1.0: give a number above 0"),
        ("--hidden 8,0", "--hidden '8,0'"),
        ("--alpha .1 --alpha 0", "alpha=0.0: give a number strictly between 0 and 1"),
        ("--alpha x", "Invalid value for '--alpha'"),
        ("--unit 0", "unit=0.0: give a number above 0"),
        ("--nu -5 --unit 10", "nu=-5.0: give 0 or a number above 0"),
        ("--unit 10 --upper-bound 5", "--unit 10 with bounds (None, 5.0)"),
        ("--target-transform root", "Invalid value for '--target-transform'"),
        ("--lower-bound 3 --upper-bound 2", "bounds=(3.0, 2.0)"),
        ("--device banana", "device='banana'"),
        ("--construction x", "'x' is not one of 'auto', 'plus', 'minmax'"),
        ("--base x", "'x' is not one of 'public', 'split', 'dpsgd'"),
        ("--construction full --widths constant", "widths='constant'"),
        ("--construction cv+ --folds 1", "folds=1: give at least 2"),
        ("--loss logistic", "requires y of 0 or 1"),
        ("--n-starts 0", "n_starts=0: give a whole number"),
        ("--base split --epsilon 1", "--epsilon requires --base dpsgd or perturbed, not split"),
        ("--fraction .5", "--fraction requires --base split, not public"),
        ("--base perturbed --epsilon 1", "--base perturbed requires --sensitivity"),
        ("--base dpsgd --epsilon 1 --noise-multiplier 1", "give --epsilon or --noise-multiplier"),
        ("--base plain --epochs 0", "epochs=0: give a whole number"),
        ("--html folder", "folder is a folder"),
        ("--row a=1", "give the file of new rows, or --row, one of the two"),
    ],
)
def test_a_setting_that_will_not_do_is_named_and_nothing_is_written(folder, options, message):
    (folder / "out.csv").write_text("old")
    before = sorted(folder.rglob("*"))
    assert message in fail(*predict(*options.split()))
    assert (folder / "out.csv").read_text() == "old"
    assert sorted(folder.rglob("*")) == before


def test_columns_of_different_types_are_named(folder):
    pd.read_csv(folder / "test.csv").assign(a="x").to_csv("letters.csv", index=False)
    pd.read_csv(folder / "train.csv").assign(a=range(40)).to_parquet("train.parquet")
    message = fail(*predict(train="train.parquet", test="letters.csv"))
    assert message.startswith("column 'a' has text or categories, but had numbers")


# Pages and figures


def test_a_page_holds_all_that_is_to_be_known(folder):
    options = ("--id", "name", "--drop", "code", "--alpha", ".2", "--alpha", ".1")
    arguments = predict(
        *options,
        *("--html", "page.html", "--figure", "new/figure.png", "--no-fit-intercept"),
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
        "gap: 9 missing values.",
        "coverage of the new rows, alpha = 0.1",
        "At alpha = 0.2.",
        "--id name",
        "--fit-intercept no",
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


# Without files


def test_intervals_are_printed_where_no_file_is_asked_for(folder):
    printed = succeed("predict", "train.csv", "test.csv", "--target", "y", "--id", "c")
    found, _ = intervals_of("--id", "c")
    lines = printed.splitlines()
    assert lines[0].split() == ["c", "point", "lower", "upper", "width"]
    assert len(lines[2:22]) == 20
    for line, row in zip(lines[2:22], found.itertuples(), strict=True):
        assert float(line.split()[0]) == row.c
        assert float(line.split()[2].replace(",", "")) == pytest.approx(row.lower, rel=1e-3)
    assert "Wrote" not in printed
    pd.concat([pd.read_csv("test.csv")] * 2).to_csv("more.csv", index=False)
    printed = succeed("predict", "train.csv", "more.csv", "--target", "y")
    assert printed.splitlines()[0].split() == ["row", "point", "lower", "upper", "width"]
    assert "… and 20 more rows: give --output for all." in printed


def test_rows_can_be_typed(folder):
    found, _ = intervals_of()
    rows = pd.read_csv("test.csv")[["c", "a", "b"]][:2]
    typed = [f"c={c!r}, a={a!r},b={b!r}" for c, a, b in rows.itertuples(index=False)]
    command = ("predict", "train.csv", "--target", "y", "--output", "out.csv")
    result = run(*command, *(part for row in typed for part in ("--row", row)))
    assert result.exit_code == 0, result.stderr
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), found[:2], rtol=1e-6)
    assert "--row, unlike train.csv: no column 'b'" in fail(*command, "--row", "a=1, c=2")
    assert "--row 'a': give it like 'a=1, b=2'" in fail(*command, "--row", "a")


def test_standard_input_and_output(folder):
    found, _ = intervals_of()
    for name, options in (("train.csv", ("-", "test.csv")), ("test.csv", ("train.csv", "-"))):
        command = ["predict", *options, "--target", "y", "--output", "-"]
        result = CliRunner().invoke(app, command, input=(folder / name).read_bytes())
        assert result.exit_code == 0, result.stderr
        pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(result.stdout)), found, rtol=1e-6)
        assert "training rows" in result.stderr
    pd.read_csv("test.csv").to_parquet("test.parquet")
    content = (folder / "test.parquet").read_bytes()
    command = ["predict", "train.csv", "-", "--target", "y"]
    assert "new rows" in CliRunner().invoke(app, command, input=content).stdout


def test_a_report_of_one_row_draws_it(folder):
    one = ("--row", "a=1, b=2, c=3", "--html", "page.html", "--figure", "f.svg")
    printed = run("predict", "train.csv", "--target", "y", *one).stdout
    assert "new rows" in printed
    assert "Wrote 1 interval to page.html and f.svg." in printed
    svg = (folder / "f.svg").read_text()
    band = re.search(r'href="#(\w+)"[^>]*fill: #9ecae1', svg)[1]
    path = re.search(rf'<path id="{band}" d="([^"]*)"', svg)[1]
    corners = np.array(re.findall(r"([-\d.]+) ([-\d.]+)", path), float)
    assert (np.ptp(corners, axis=0) > 40).all()  # points of the page


# What is left out of the features


def test_names_of_rows_and_remarks_are_no_features(folder):
    for file in ("train.csv", "test.csv"):
        frame = pd.read_csv(file)
        frame.insert(0, "sample", [f"{file[:2]}{k:03}" for k in range(len(frame))])
        frame["remark"] = ["repeated"] + [None] * (len(frame) - 1)
        frame["empty"] = None
        frame.to_csv(file)
    result = run(*predict())
    assert result.exit_code == 0, result.stderr
    assert "note: column 'sample' names rows: it is not a feature (--categorical)." in result.stderr
    assert "note: column 'remark' has a single value" in result.stderr
    assert "note: column 'empty' has no values" in result.stderr
    assert "note: column 'Unnamed: 0' has no name" in result.stderr
    found = pd.read_csv("out.csv")
    assert found["sample"].tolist() == [f"te{k:03}" for k in range(20)]


def test_columns_that_only_new_rows_have_are_ignored(folder):
    expected, _ = intervals_of()
    pd.read_csv("test.csv").assign(extra=1).to_csv("extra.csv", index=False)
    result = run(*predict(test="extra.csv"))
    assert "note: extra.csv: 'extra' ignored: train.csv has none." in result.stderr
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), expected)


def test_rows_without_a_target_are_left_out(folder):
    expected, _ = intervals_of()
    frame = pd.read_csv("train.csv")
    pd.concat([frame.head(2).assign(y=np.nan), frame]).to_csv("train.csv", index=False)
    result = run(*predict())
    assert "note: train.csv: 2 rows without a target left out" in result.stderr
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), expected, rtol=1e-6)


def test_a_file_with_semicolons_and_decimal_commas_gives_the_same(folder):
    expected, _ = intervals_of()
    for name in ("train", "test"):
        frame = pd.read_csv(f"{name}.csv")
        frame.to_csv(f"{name}2.csv", sep=";", decimal=",", index=False, encoding="utf-8-sig")
    result = run(*predict(train="train2.csv", test="test2.csv"))
    assert result.exit_code == 0
    assert "note: train2.csv: fields are separated by ';' (--sep)." in result.stderr
    assert "note: 'a', 'b', 'c', 'y': numbers with decimal commas (--decimal)." in result.stderr
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), expected, rtol=1e-6)


# Outputs


def test_names_of_rows_are_copied_and_no_spreadsheet_runs_them(folder):
    names = ["00001", "NA", "=1+1", "-5", "+A1", "@x", "a"]
    pd.read_csv("test.csv").head(7).assign(name=names).to_csv("named.csv", index=False)
    succeed(*predict("--id", "name", "--drop", "a", test="named.csv"))
    quoted = ["00001", "NA", "'=1+1", "-5", "'+A1", "'@x", "a"]
    assert pd.read_csv("out.csv", dtype=str, na_filter=False)["name"].tolist() == quoted
    found = safe_cells(pd.DataFrame({"=a": ["=b", "c"], "n": [-1.0, 2.0]}))
    assert found.to_dict("list") == {"'=a": ["'=b", "c"], "n": [-1.0, 2.0]}


@pytest.mark.parametrize("unit", [1.0, 0.1, 3.0, 1000.0])
def test_a_target_at_the_end_of_an_interval_is_not_lost_by_its_unit(unit):
    y = np.concatenate([np.random.default_rng(0).normal(size=1000), [0.0]])
    found = in_unit(lk.Intervals(y / unit, y / unit, y / unit, 0.1), unit)
    assert found.covers(y).all()
    np.testing.assert_allclose(found.lower, y, rtol=1e-14)
