"""What is checked before anything is loaded, what is read, and what is written."""

import base64
import io
import os
import re
import signal
import stat
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from command import fail, predict, run, succeed
from lazyknife.cli.files import is_formula, safe_cells
from lazyknife.cli.spelling import spelled

HEAVY = ["torch", "pandas", "sklearn", "scipy", "matplotlib", "numpy"]
CHECKED = """
import sys
from typer.testing import CliRunner
from lazyknife.cli.app import app
result = CliRunner().invoke(app, sys.argv[1:])
print(result.exit_code, result.stderr.strip())
print([name for name in {heavy} if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (predict(train="nowhere.csv"), "nowhere.csv cannot be read"),
        (predict("--target", "z"), "train.csv: no column 'z'"),
        (predict("--id", "z"), "test.csv: no column 'z'"),
        (predict("--drop", "z"), "no column 'z'"),
        (predict(test="other.csv"), "other.csv: no column 'a', which train.csv has"),
        (predict(output="train.csv/out.csv"), "cannot be written to"),
        (predict(output="out.txt"), "give a name that ends in"),
        (predict("--figure", "a.txt"), "give a name that ends in .svg"),
        (predict("--sep", "ab"), "--sep 'ab'"),
        (predict("--html", "out.csv"), "give a name that ends in .html"),
        (("predict", "train.csv", "test.csv", "--target", "y"), "give --output, --html or both"),
        (("compare", "all.csv", "--target", "z"), "all.csv: no column 'z'"),
    ],
)
def test_a_wrong_file_or_column_is_answered_before_anything_is_loaded(folder, arguments, message):
    code = CHECKED.format(heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    answer, loaded = done.stdout.splitlines()
    assert answer.startswith("2 error: ")
    assert message in answer
    assert loaded == "[]"


def test_the_command_heeds_signals_before_it_loads_anything():
    found = f"[name for name in {[*HEAVY, 'typer']} if name in sys.modules]"
    code = f"import sys, lazyknife.cli.__main__; print({found})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_ends_the_command_and_removes_half_written_files(tmp_path, name, code):
    script = f"""
import os, signal, sys
from pathlib import Path
from lazyknife.cli import __main__, app
from lazyknife.files import replacing
def write():
    with replacing(Path("out.csv")) as temporary:
        temporary.write_text("half")
        os.kill(os.getpid(), signal.{name})
app.main = write
signal.signal(signal.SIGINT, signal.default_int_handler)
__main__.main()
"""
    (tmp_path / "out.csv").write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = {"SIGINT": "interrupted\n", "SIGTERM": "terminated\n"}
    assert (done.returncode, done.stderr) == (code, said[name])
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert (tmp_path / "out.csv").read_text() == "old"


def test_a_command_that_is_still_loading_can_be_terminated(tmp_path):
    script = """
import os, signal
from lazyknife.cli import __main__, app
app.main = lambda: os.kill(os.getpid(), signal.SIGTERM)
__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == -signal.SIGTERM  # by the system: a handler waits for the import


def test_a_file_with_semicolons_and_decimal_commas_gives_the_same(folder):
    succeed(*predict())
    expected = pd.read_csv("out.csv")
    for name in ("train", "test"):
        frame = pd.read_csv(f"{name}.csv")
        frame.to_csv(f"{name}2.csv", sep=";", decimal=",", index=False, encoding="cp1252")
    result = run(*predict(train="train2.csv", test="test2.csv"))
    assert result.exit_code == 0
    assert "note: train2.csv: fields are separated by ';' (--sep)." in result.stderr
    assert "numbers with decimal commas" in result.stderr
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), expected, rtol=1e-6)


def test_rows_without_a_target_are_left_out(folder):
    succeed(*predict())
    expected = pd.read_csv("out.csv")
    frame = pd.read_csv("train.csv")
    extra = frame.head(2).assign(y=np.nan)
    pd.concat([extra, frame]).to_csv("train.csv", index=False)
    result = run(*predict())
    assert "note: train.csv: 2 rows without a target left out" in result.stderr
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), expected, rtol=1e-6)


def test_names_of_rows_are_copied_and_quoted_if_asked(folder):
    names = ["00001", "NA", "=1+1", "-5", "+A1", "@x", "a"]
    frame = pd.read_csv("test.csv").head(7).assign(name=names)
    frame.to_csv("named.csv", index=False)
    result = run(*predict("--id", "name", test="named.csv"))
    assert "note: 3 values of 'name' look like formulas" in result.stderr
    assert pd.read_csv("out.csv", dtype=str, na_filter=False)["name"].tolist() == names
    succeed(*predict("--id", "name", "--safe-cells", test="named.csv"))
    quoted = ["00001", "NA", "'=1+1", "-5", "'+A1", "'@x", "a"]
    assert pd.read_csv("out.csv", dtype=str, na_filter=False)["name"].tolist() == quoted


def test_cells_of_the_page_are_quoted_too(folder):
    for file in ("train.csv", "test.csv"):
        frame = pd.read_csv(file).rename(columns={"y": "=y"})
        frame.assign(name="=1+1").to_csv(file, index=False)
    page = ("--target", "=y", "--id", "name", "--html", "page.html")
    command = ("predict", "train.csv", "test.csv", *page)
    found = []
    for option, note in (((), True), (("--safe-cells",), False)):
        said = run(*command, *option).stderr
        assert ("note: 20 values of 'name' look like formulas" in said) == note
        text = (folder / "page.html").read_text()
        data = re.search(r'href="data:text/csv;charset=utf-8;base64,(.+?)"', text)
        frame = pd.read_csv(io.StringIO(base64.b64decode(data[1]).decode()))
        found.append([*frame["id"].unique(), *frame.columns[-2:]])
    assert found == [["=1+1", "=y", "covered"], ["'=1+1", "'=y", "covered"]]


def test_names_of_rows_may_be_dropped_from_the_features_too(folder):
    succeed(*predict("--id", "a", "--drop", "a"))
    both = pd.read_csv("out.csv")
    succeed(*predict("--id", "a"))
    pd.testing.assert_frame_equal(both, pd.read_csv("out.csv"))


def test_cells_that_a_spreadsheet_runs():
    assert all(map(is_formula, ["=cmd|' /C calc'!A0", "+1+2", "-A1", "@SUM(1)", "\t=1"]))
    assert not any(map(is_formula, ["", "a=1", "-5", "+1.5", "-1e5", 5, None, "5-1"]))
    found = safe_cells(pd.DataFrame({"=a": ["=b", "c"], "n": [-1.0, 2.0]}))
    assert found.to_dict("list") == {"'=a": ["'=b", "c"], "n": [-1.0, 2.0]}


def test_a_page_is_enough(folder):
    printed = succeed("predict", "train.csv", "test.csv", "--target", "y", "--html", "page.html")
    assert "page.html" in printed
    assert not (folder / "out.csv").exists()
    assert "name" in fail(*predict("--html", "b.html", "--figure", "b.html"))


def test_outputs_keep_their_mode_and_links(folder):
    (folder / "real.csv").write_text("old")
    (folder / "real.csv").chmod(0o600)
    os.symlink("real.csv", "link.csv")
    succeed(*predict(output="link.csv"))
    assert (folder / "link.csv").is_symlink()
    assert stat.S_IMODE((folder / "real.csv").stat().st_mode) == 0o600
    assert len(pd.read_csv("real.csv")) == 20


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("ridge=-1.0: give a number", "--ridge -1.0: give a number"),
        ("use readout='tangent' or network=None", "use --readout tangent or no --hidden"),
        ("features=Sketch(dimension=9) needs 1", "--sketch 9 needs 1"),
        ("use network=mlp((64, 64), skip=True)", "use --hidden 64,64"),
        ("widths=(64, 0): every hidden layer", "--hidden 64,0: every hidden layer"),
        ("base=Split(0.5, training=Plain(epochs=1)) is", "--base split is"),
        ("use DPSGD(), or fit_intercept=False", "use --base dpsgd, or --no-fit-intercept"),
        ("scaling=None, or 'standardize' with X_pool", "--scaling none, or 'standardize'"),
        ("bounds=(0.0, None): no", "--lower-bound 0.0 no --upper-bound: no"),
        ("pass encoding=TableEncoder(ignore=['a b'])", "pass --drop 'a b' or --id 'a b'"),
        ('encoding=TableEncoder(categorical=["a\'])"])', """--categorical 'a'"'"'])'"""),
        ("y[3]=5 and other=7 and a == b", "y[3]=5 and other=7 and a == b"),
    ],
)
def test_messages_name_options(message, expected):
    options = ["ridge", "readout", "hidden", "sketch", "widths", "base", "fit_intercept", "scaling"]
    roles = ["drop", "id_column", "categorical"]
    assert spelled(message, [*options, *roles, "lower_bound", "upper_bound"]) == expected
