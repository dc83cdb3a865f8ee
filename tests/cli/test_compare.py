"""``lazyknife compare``."""

import base64
import html
import re

import numpy as np
import pandas as pd
import pytest

from command import check_self_contained, fail, run, succeed
from lazyknife.cli.compare import NAMES
from lazyknife.compare import ABOUT, METHODS, PEERS, Recommendation
from lazyknife.report.comparison import draw

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
    assert " ".join(head.split()) == "method coverage interval score width time certified"
    own = rows[:2]
    width = float(first.split(" ± ")[2].split()[1].replace(",", ""))
    assert width == pytest.approx(own["width"].mean(), rel=0.01)
    assert first.startswith("lazyknife ")
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
    assert printed.count("Use lazyknife") == text.count("Recommendation Use lazyknife") == 1
    assert "The rule: the smallest interval score" in printed
    for name in ("lazyknife", "naive"):
        assert f"{name} {ABOUT[name]}" in html.unescape(text)
    assert text.index("Recommendation") < text.index("Interval score")
    data = re.search(
        r'download="methods.csv" href="data:text/csv;charset=utf-8;base64,(.*?)"', page
    )
    assert base64.b64decode(data[1]).decode() == rows.to_csv(index=False)


def test_a_method_that_fails_is_recorded_and_the_others_are_shown(folder):
    options = ("--method", "lazyknife", "--method", "lazy_finetune", "--train-rows", "2")
    outputs = ("--output", "rows.csv", "--figure", "figure.svg", "--html", "page.html")
    result = run(*compare(*options, "--alpha", ".5", *outputs))
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "error: lazyknife, 2 of 2 folds: ValueError: ridge='auto' needs at least 3 rows"
    )
    assert len(result.stderr.splitlines()) == 1
    assert re.search(r"\nlazyknife +failed", result.stdout)
    assert re.search(r"\nlazy_finetune +[01]\.", result.stdout)
    rows = pd.read_csv("rows.csv")
    assert rows["error"].notna().tolist() == [True, True, False, False]
    assert (folder / "figure.svg").exists()
    assert "lazy_finetune" in (folder / "page.html").read_text()


def test_warnings_of_a_comparison_are_said_once(folder):
    result = run(*compare("--method", "lazyknife", "--alpha", ".001"))
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("warning: lazyknife, 2 of 2 folds: 30 rows are too few")
    assert " ∞ " in result.stdout
    assert "nan" not in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--method x", "method='x': choose from"),
        ("--alpha 2", "alpha=2.0"),
        ("--alpha 0", "alpha=0.0: give a number strictly between 0 and 1"),
        ("--epochs 0", "epochs=0"),
        ("--folds 61", "folds=61: give between 2 and the number of rows, 60"),
        ("--train-rows 0", "train_rows=0"),
        ("--jobs 0", "jobs=0: give a whole number of at least 1"),
        ("--target z", "all.csv: no column 'z'"),
        ("--output all.csv", "all.csv contains the data"),
        ("--html folder", "folder is a folder"),
    ],
)
def test_a_comparison_that_cannot_start_is_one_line(folder, options, message):
    assert message in fail(*compare(*options.split()))


def test_a_comparison_of_a_folder_is_refused(folder):
    assert "folder is a folder: give a file inside it" in fail(*compare(data="folder"))


def test_a_wrong_name_lists_all_methods(folder):
    message = fail(*compare("--method", "x"))
    assert all(repr(name) in message for name in METHODS)
    assert tuple(METHODS) == NAMES


@pytest.mark.slow
def test_peers_run_by_their_names(folder):
    pytest.importorskip("mapie")
    frame = pd.concat([pd.read_csv("all.csv")] * 2)
    frame.to_csv("twice.csv", index=False)
    options = [part for name in PEERS for part in ("--method", name)]
    printed = succeed(*compare(*options, data="twice.csv"))
    for name in PEERS:
        assert re.search(rf"{name} +[01][. ]", printed)


def test_one_outlier_does_not_flatten_the_others():
    names = ["a", "b", "c", "far", "none"]
    values = [1.0, 1.2, 0.9, 500.0, np.inf]
    summary = pd.DataFrame({"method": names})
    for column in ("coverage", "score", "width", "seconds"):
        summary[column], summary[f"{column}_se"] = values, 0.1
    advice = Recommendation("a", (), (), (), None, 0.1)
    (ax,) = draw(summary, advice, "price", ["score"]).axes
    low, high = ax.get_xlim()
    assert 0 < 1.2 - 0.9 < high - low < 2
    assert [text.get_text() for text in ax.texts[3:]] == ["500 →", "∞ →"]
    assert ax.get_xlabel() == "interval score, price"
    bold = [text.get_text() for text in ax.get_yticklabels() if text.get_fontweight() == "bold"]
    assert bold == ["a"]
    drawn = draw(summary, advice, "price")
    assert drawn.axes[2].get_xlabel() == "width, price"
    assert drawn.axes[2].get_xlim()[1] < 5
    assert drawn.axes[3].get_xlim()[1] > 500  # times are on a logarithmic scale
